"""HopSkipJump, on linear decisions, whose gradient and boundary are known."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from driving import Exchange, Pixels, context_of, converse, random_image
from parsimon.attacks import HopSkipJump
from parsimon.attacks.hopskipjump import _estimate
from parsimon.core.types import Ask, Reply

SHAPE = (1, 6, 6)


def linear(image: Pixels, radius: float, seed: int = 1) -> tuple[Any, Any]:
    """A linear decision whose boundary lies at this L-infinity distance from the image, and its weights."""
    weights = np.random.default_rng(seed).normal(size=image.shape)
    level = radius * np.abs(weights).sum()
    return lambda shown: float((weights * (shown.astype(np.float64) - image)).sum()) > level, weights


def asked(attack: HopSkipJump, image: Pixels, adversarial: Any, asks: int) -> list[Exchange]:
    return converse(attack, context_of(image), lambda shown: 0.0 if adversarial(shown) else -np.inf, asks)


def returned(search: Generator[Ask, Reply, Any], adversarial: Any) -> tuple[Any, list[Ask]]:
    """Answer a part of a search until it returns."""
    asks: list[Ask] = []
    reply: Any = None
    while True:
        try:
            asks.append(search.send(reply))
        except StopIteration as stop:
            return stop.value, asks
        shown = asks[-1].points.pixels  # type: ignore[union-attr]
        reply = Reply(np.array([0.0 if adversarial(each) else -np.inf for each in shown]))


@pytest.mark.parametrize("offset", [0.0, 0.01])
def test_the_estimate_converges_to_the_direction_of_the_gradient(offset: float) -> None:
    """At the boundary, and beside it, where one answer is more frequent than the other."""
    point = np.full(SHAPE, 0.5, np.float32)
    weights = np.random.default_rng(1).normal(size=SHAPE)
    cosines = []
    for probes in (50, 500, 20_000):
        search = _estimate(point, 0.1, probes, np.random.default_rng(0))
        gradient, asks = returned(search, lambda shown: float((weights * (shown - point)).sum()) > offset)
        assert sum(ask.points.size for ask in asks) == probes
        cosines.append(float((gradient * weights).sum() / np.linalg.norm(gradient) / np.linalg.norm(weights)))
    assert cosines == sorted(cosines)
    assert cosines[-1] > 0.98


@pytest.mark.parametrize("answer", [True, False])
def test_if_all_answers_are_alike_the_estimate_points_away_from_the_mean_probe_or_to_it(answer: bool) -> None:
    point = np.full(SHAPE, 0.5, np.float32)
    gradient, asks = returned(_estimate(point, 0.1, 30, np.random.default_rng(0)), lambda _: answer)
    probes = np.concatenate([ask.points.pixels for ask in asks]) - point.astype(np.float64)  # type: ignore[union-attr]
    np.testing.assert_allclose(gradient, (1 if answer else -1) * probes.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(probes.reshape(30, -1), axis=1), 0.1, rtol=1e-5)


def test_on_a_linear_decision_it_comes_close_to_the_nearest_point_of_the_boundary() -> None:
    image = random_image(SHAPE, margin=0.4)
    adversarial, _ = linear(image, 0.05)
    exchanges = asked(HopSkipJump(gamma=30), image, adversarial, asks=800)
    found = [
        float(np.abs(shown - image).max())
        for each in exchanges
        for shown, loss in zip(each.images, each.losses, strict=True)
        if np.isfinite(loss)
    ]
    assert 0.05 - 1e-6 <= min(found) < 0.053
    assert max(found[:2]) > 0.1


def test_estimates_grow_with_the_square_root_of_their_number_and_probes_are_in_range() -> None:
    image = random_image(SHAPE)
    adversarial, _ = linear(image, 0.05)
    exchanges = asked(HopSkipJump(probes=25), image, adversarial, asks=300)
    sizes, run = [], 0
    for each in exchanges:
        if each.ask.points.size > 1:
            run += each.ask.points.size
        elif run:
            sizes.append(run)
            run = 0
    # The sixth ends with an ask for one probe, which looks like another query.
    assert sizes[:5] == [int(25 * math.sqrt(number)) for number in range(1, 6)]
    shown = np.concatenate([each.images for each in exchanges])
    assert shown.min() >= 0
    assert shown.max() <= 1


def test_without_an_adversarial_image_it_gives_up_after_ten_thousand_draws() -> None:
    exchanges = asked(HopSkipJump(), random_image((1, 1, 1)), lambda _: False, asks=10_001)
    assert len(exchanges) == 10_000

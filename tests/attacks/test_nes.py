"""NES, against a slow and literal twin, and against the arithmetic of what it estimates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from driving import (
    Exact,
    Loss,
    Pixels,
    Startled,
    Steadfast,
    asked_images,
    context_of,
    converse,
    in_ball,
    linear_loss,
    pixels_of,
    random_image,
    run,
    smooth_loss,
)
from parsimon import InputError, Threat
from parsimon.attacks import NES
from parsimon.core.types import Reply

SHAPE = (3, 5, 6)


class Twin:
    """The attack on one image, a sample after another, in double precision."""

    def __init__(self, attack: NES, image: Pixels, eps: float, loss: Loss) -> None:
        self.attack, self.clean, self.eps, self.loss = attack, image.astype(np.float64), eps, loss
        self.asked: list[Exact] = []
        self.halvings = 0

    def ask(self, image: Exact) -> float:
        self.asked.append(image)
        return self.loss(image.astype(np.float32))

    def run(self, steps: int, rng: np.random.Generator) -> Exact:
        sigma = self.attack.sigma
        if self.attack.by_length:
            sigma /= math.sqrt(self.clean.size)
        image, step, velocity = self.clean, self.attack.step, np.zeros(self.clean.shape)
        since_halving: list[float] = []
        for _ in range(steps):
            gradient, mean = np.zeros(image.shape), 0.0
            for _ in range(self.attack.samples // 2):
                noise = rng.standard_normal(image.shape, np.float32).astype(np.float64)
                for sample in (noise, -noise):
                    loss = self.ask(image + sigma * sample)
                    gradient += loss * sample / (self.attack.samples * sigma)
                    mean += loss / self.attack.samples
            velocity = self.attack.momentum * velocity + (1 - self.attack.momentum) * gradient
            since_halving.append(mean)
            if self.attack.anneal and len(since_halving) >= 5 and since_halving[-1] < since_halving[-5]:
                step, since_halving = max(step / 2, 5e-5), []
                self.halvings += 1
            image = image + step * np.sign(velocity)
            image = np.clip(np.clip(image, self.clean - self.eps, self.clean + self.eps), 0, 1)
            self.ask(image)
        return np.stack(self.asked)


@pytest.mark.parametrize(
    ("attack", "halvings"),
    [
        (NES(samples=10), 0),
        (NES(samples=20, sigma=0.05, step=0.08, momentum=0.5), 1),
        (NES(samples=4, sigma=0.3, by_length=True, momentum=0.0, anneal=False), 0),
        (NES.preset("imagenet-0.03", samples=8), 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_asks_what_the_twin_asks(attack: NES, halvings: int, seed: int) -> None:
    image, steps = random_image(SHAPE, seed), 14
    twin = Twin(attack, image, 0.2, smooth_loss(SHAPE, seed))
    expected = twin.run(steps, np.random.default_rng(seed))
    asks = steps * (attack.samples // 2 + 1)
    asked = asked_images(converse(attack, context_of(image, 0.2), smooth_loss(SHAPE, seed), asks, seed))
    assert asked.shape == expected.shape
    np.testing.assert_allclose(asked, expected, atol=2e-6)
    assert twin.halvings >= halvings


def steps_taken(attack: NES, means: list[float]) -> list[float]:
    """How far the image moves after each estimate, if the probes' mean losses are these."""
    image = np.full(SHAPE, 0.5, np.float32)
    search = attack.search(context_of(image, 0.5), np.random.default_rng(0))
    taken = []
    next(search)
    for mean in means:
        check = search.send(Reply(np.array([mean + 0.5, mean - 0.5])))
        moved = pixels_of(check)
        assert isinstance(moved, np.ndarray)
        taken.append(float(np.abs(moved - image).max()))
        image = moved
        search.send(Reply(np.zeros(1)))
    return taken


WHOLE, HALF, QUARTER = 0.01, 0.005, 0.0025


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ([5, 4, 3, 2, 1], [WHOLE] * 4 + [HALF]),
        ([1, 2, 3, 4, 0.5], [WHOLE] * 4 + [HALF]),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9], [WHOLE] * 9),
        ([1, 5, 4, 3, 2], [WHOLE] * 5),  # it is the fifth last that counts
        ([1, 5, 4, 3, 2, 4.5], [WHOLE] * 5 + [HALF]),
        ([9, 8, 7, 6, 5, 4, 3, 2, 1, 0], [WHOLE] * 4 + [HALF] * 5 + [QUARTER]),  # a halving starts a new five
        ([9, 8, 7, 6, 5, 0, 1, 2, 3, 4, 5], [WHOLE] * 4 + [HALF] * 7),
        ([1, 1, 1, 1, 1, 1], [WHOLE] * 6),  # as published, a loss that stands still is no reason
    ],
)
def test_the_step_is_halved_when_the_loss_has_fallen_over_five_estimates(
    means: list[float], expected: list[float]
) -> None:
    assert steps_taken(NES(samples=2, step=WHOLE), means) == pytest.approx(expected, rel=1e-3)


def test_without_annealing_the_step_stays() -> None:
    falling = [float(-number) for number in range(12)]
    assert steps_taken(NES(samples=2, step=WHOLE, anneal=False), falling) == pytest.approx([WHOLE] * 12, rel=1e-3)


def test_annealing_goes_down_to_the_least_step_and_stays_there() -> None:
    falling = [float(-number) for number in range(20)]
    expected = [1.5e-4] * 4 + [7.5e-5] * 5 + [5e-5] * 11
    assert steps_taken(NES(samples=2, step=1.5e-4), falling) == pytest.approx(expected, rel=1e-2)


def test_annealing_never_lengthens_a_step() -> None:
    falling = [float(-number) for number in range(6)]
    assert steps_taken(NES(samples=2, step=1e-5), falling) == pytest.approx([1e-5] * 6, rel=1e-1)


@pytest.mark.parametrize(("momentum", "expected"), [(0.9, 0.01), (0.0, 0.0)])
def test_momentum_goes_on_where_an_estimate_says_nothing(momentum: float, expected: float) -> None:
    image = np.full(SHAPE, 0.5, np.float32)
    search = NES(samples=2, momentum=momentum).search(context_of(image, 0.5), np.random.default_rng(0))
    next(search)
    first = pixels_of(search.send(Reply(np.array([1.0, 0.0]))))
    search.send(Reply(np.zeros(1)))
    second = pixels_of(search.send(Reply(np.array([0.0, 0.0]))))
    assert isinstance(first, np.ndarray)
    assert isinstance(second, np.ndarray)
    np.testing.assert_allclose(second - first, expected * np.sign(first - image), atol=1e-6)


@pytest.mark.parametrize(
    ("attack", "deviation"),
    [(NES(sigma=0.02), 0.02), (NES(sigma=0.02, by_length=True), 0.02 / math.sqrt(90))],
    ids=str,
)
def test_probes_lie_in_pairs_on_opposite_sides_at_sigma(attack: NES, deviation: float) -> None:
    image = random_image(SHAPE, margin=0.2)
    (exchange,) = converse(attack, context_of(image), smooth_loss(SHAPE), asks=1, seed=4)
    noise = np.random.default_rng(4).standard_normal(SHAPE, np.float32)
    above, below = exchange.images.astype(np.float64) - image
    np.testing.assert_allclose(above, deviation * noise, atol=2e-7)
    np.testing.assert_allclose(below, -deviation * noise, atol=2e-7)


def test_the_first_step_points_along_the_gradient_the_better_the_more_samples() -> None:
    """On a linear loss with weights of size 1, a share of signs is right that is known in the limit.

    The estimate at a pixel is about normal: m times its weight, with the variance m (d + 1), for m pairs in d pixels.
    """
    shape, eps = (3, 8, 8), 0.1
    image = random_image(shape, margin=eps)
    weights = np.sign(np.random.default_rng(1).normal(size=shape))
    cosines = []
    for samples in (10, 100, 1000):
        attack, pairs = NES(samples=samples, momentum=0.0), samples // 2
        found = []
        for seed in range(4):
            *_, check = converse(attack, context_of(image, eps), linear_loss(weights), pairs + 1, seed)
            step = np.sign(check.images[0] - image)
            found.append(float((step * weights).mean()))  # the cosine of two vectors of signs
        cosines.append(np.mean(found))
        assert cosines[-1] == pytest.approx(math.erf(math.sqrt(pairs / (2 * (weights.size + 1)))), abs=0.08)
    assert cosines == sorted(cosines)
    assert cosines[-1] > 0.85


@pytest.mark.parametrize(
    ("preset", "table"),
    [
        ("cifar10", {"sigma": 0.001, "samples": 100, "step": 0.01, "momentum": 0.9, "anneal": True}),
        ("imagenet-0.05", {"sigma": 0.1, "samples": 100, "step": 0.01, "momentum": 0.0, "anneal": False}),
        ("imagenet-0.03", {"sigma": 1.0, "samples": 100, "step": 0.005, "momentum": 0.0, "anneal": False}),
        ("imagenet-0.01", {"sigma": 1.0, "samples": 100, "step": 0.001, "momentum": 0.0, "anneal": False}),
        ("imagenet-targeted", {"sigma": 0.001, "samples": 50, "step": 0.01, "momentum": 0.7, "anneal": True}),
    ],
)
def test_presets_are_the_papers_table(preset: str, table: dict[str, Any]) -> None:
    attack = NES.preset(preset)
    assert {name: getattr(attack, name) for name in table} == table
    assert attack.by_length == (not table["anneal"])  # the implementation of Bandits' authors has both
    assert not attack.strict


def test_every_preset_is_in_the_table() -> None:
    assert set(NES.presets) == {"cifar10", "imagenet-0.05", "imagenet-0.03", "imagenet-0.01", "imagenet-targeted"}


def test_as_published_each_step_has_a_free_check() -> None:
    model, image = Steadfast(SHAPE), random_image(SHAPE)
    outcome = run(NES(samples=10), model, image, Threat(0.1), budget=40)
    assert (outcome.ended, outcome.queries, outcome.uncharged) == ("budget", 40, 4)
    assert len(model.shown) == 44


def test_a_strict_one_pays_for_its_checks() -> None:
    model, image = Steadfast(SHAPE), random_image(SHAPE)
    outcome = run(NES(samples=10, strict=True), model, image, Threat(0.1), budget=40)
    assert (outcome.ended, outcome.queries, outcome.uncharged) == ("budget", 40, 0)
    assert len(model.shown) == 40


def test_both_ask_for_the_same_images() -> None:
    image = random_image(SHAPE)
    published, strict = (
        asked_images(converse(NES(samples=6, strict=strict), context_of(image), smooth_loss(SHAPE), asks=12))
        for strict in (False, True)
    )
    np.testing.assert_array_equal(published, strict)


def test_probes_outside_the_ball_are_counted() -> None:
    model, image = Steadfast(SHAPE), random_image(SHAPE)
    outcome = run(NES(samples=10, sigma=0.01, step=0.04), model, image, Threat(0.1), budget=50)
    outside = ~in_ball(context_of(image, 0.1), np.stack(model.shown))
    checks = np.arange(len(model.shown)) % 11 == 10
    assert not outside[checks].any()
    assert outcome.outside == np.count_nonzero(outside)
    assert 10 <= outcome.outside < 50  # the first ones, around the image, are inside but for the darkest pixels


@pytest.mark.parametrize(("strict", "queries"), [(False, 10), (True, 11)])
def test_only_a_check_can_be_a_success(strict: bool, queries: int) -> None:
    image = random_image(SHAPE, margin=0.1)
    outcome = run(NES(samples=10, strict=strict), Startled(image), image, Threat(0.1), budget=100)
    assert (outcome.success, outcome.predicted, outcome.queries) == (True, 1, queries)
    assert (outcome.uncharged, outcome.outside) == (1 - strict, 0)


def test_a_free_check_can_still_be_a_success_when_the_budget_is_gone() -> None:
    image = random_image(SHAPE, margin=0.1)
    outcome = run(NES(samples=10), Startled(image), image, Threat(0.1), budget=10)
    assert (outcome.success, outcome.queries, outcome.uncharged) == (True, 10, 1)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"samples": 0}, "samples must be a whole number, at least 2; got 0"),
        ({"samples": 7}, "must be even; got 7"),
        ({"sigma": 0}, "sigma must be a number"),
        ({"step": -0.1}, "step must be a number"),
        ({"momentum": 1.0}, "momentum must be a number from 0 to 0.999999"),
        ({"momentum": -0.1}, "momentum must be a number from 0 to 0.999999"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        NES(**settings)

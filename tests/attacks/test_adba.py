"""ADBA, against a plain loop over directions and against its distribution, integrated numerically."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from driving import Exchange, Pixels, context_of, converse, drawn, random_image
from parsimon.attacks import ADBA
from parsimon.attacks.adba import NextRadius, _median, _pairs
from parsimon.core.types import Reply

Decide = Callable[[Pixels], bool]


def wavy(image: Pixels, level: float) -> Decide:
    """A decision with a curved boundary, that the clean image is not beyond."""
    weights = np.random.default_rng(3).normal(size=(6, *image.shape)) / np.sqrt(image.size)

    def adversarial(shown: Pixels) -> bool:
        change = (weights * (shown.astype(np.float64) - image)).sum(axis=(1, 2, 3))
        return float(np.abs(np.sin(4 * change)).max()) > level

    return adversarial


def asked(attack: ADBA, image: Pixels, adversarial: Decide, asks: int) -> list[Exchange]:
    return converse(attack, context_of(image), lambda shown: 0.0 if adversarial(shown) else -np.inf, asks)


def plain_loop(image: Pixels, adversarial: Decide, queries: int) -> list[Pixels]:
    """The first images that ADBA with middle radii asks for, block by block, by the first and last pixel of each."""
    shown: list[Pixels] = []

    def fooled(signs: list[int], radius: float) -> bool:
        step = np.float32(radius) * np.array(signs, np.float32).reshape(image.shape)
        shown.append(np.clip(image + step, 0, 1))
        return adversarial(shown[-1])

    best, reach = [1] * image.size, 1.0
    level = [(0, image.size - 1)]
    while len(shown) < queries:
        halves: list[tuple[int, int]] = []
        for first, last in level:
            cut = first + (last - first) // 2
            pair = [(first, cut), (cut + 1, last)]
            halves += pair
            both = [[-s if a <= i <= b else s for i, s in enumerate(best)] for a, b in pair]
            hits = [fooled(signs, reach) for signs in both]
            if sum(hits) == 1:
                best = both[hits.index(True)]
            if sum(hits) < 2:
                continue
            low, high, won = 0.0, reach, None
            for turn in range(8):
                radius = (low + high) / 2
                hits = [fooled(signs, radius) for signs in both]
                if sum(hits) == 1:
                    won, high = hits.index(True), radius
                    break
                low, high = (low, radius) if all(hits) else (radius, high)
                if turn >= 4 and high - low <= 0.0002:
                    break
            best, reach = both[won or 0], high
        level = halves
    return shown[:queries]


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 9, 7), (3, 5, 4)])
@pytest.mark.parametrize("level", [0.05, 0.3])
def test_every_query_equals_that_of_a_plain_loop(shape: tuple[int, int, int], level: float) -> None:
    image = random_image(shape)
    adversarial = wavy(image, level)
    exchanges = asked(ADBA("middle"), image, adversarial, asks=50)
    expected = np.stack(plain_loop(image, adversarial, 100))
    np.testing.assert_array_equal(np.concatenate([each.images for each in exchanges]), expected)
    assert {bool(np.isfinite(loss)) for each in exchanges for loss in each.losses} == {True, False}


@pytest.mark.parametrize("next_radius", ["median", "middle"])
@settings(max_examples=60)
@given(answers=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=9, max_size=9))
def test_a_comparison_takes_at_most_eighteen_queries_and_never_raises_the_radius(
    next_radius: NextRadius, answers: list[tuple[bool, bool]]
) -> None:
    image, present = np.full((1, 2, 2), 0.5, np.float32), 0.25
    directions = np.array([1, 1, -1, -1], np.float32), np.array([-1, -1, 1, 1], np.float32)
    search = ADBA(next_radius)._compare(image, directions, present)
    ask, radii = next(search), []
    try:
        for pair in answers:
            shown = np.abs(drawn(context_of(image), ask) - image)
            assert shown.shape[0] == 2
            radii.append(float(shown.max()))
            np.testing.assert_allclose(shown, radii[-1], atol=1e-6)
            ask = search.send(Reply(np.where(pair, 0.0, -np.inf)))
    except StopIteration as stop:
        better, radius = stop.value
    assert 1 <= len(radii) <= 9
    hits = [(pair, asked_at) for pair, asked_at in zip(answers, radii, strict=False) if any(pair)]
    assert (better is None) == (not hits)
    closest = min((asked_at for _, asked_at in hits), default=present)
    assert radius == pytest.approx(closest, abs=1e-6)
    if hits:
        (first, _), _ = hits[-1]
        assert better is directions[0 if first else 1]


@pytest.mark.parametrize("next_radius", ["median", "middle"])
@pytest.mark.parametrize("beyond", [0.0, 0.25])
def test_directions_that_nothing_tells_apart_end_a_comparison_with_the_first(
    next_radius: NextRadius, beyond: float
) -> None:
    """Both are adversarial at every radius, or at none below the present one."""
    image, directions = np.full((1, 2, 2), 0.5, np.float32), (np.ones(4, np.float32), -np.ones(4, np.float32))
    search = ADBA(next_radius)._compare(image, directions, 0.25)
    ask, queries = next(search), 0
    try:
        while queries < 100:
            queries += 2
            shown = np.abs(drawn(context_of(image), ask) - image).max()
            ask = search.send(Reply(np.full(2, 0.0 if shown >= beyond else -np.inf)))
    except StopIteration as stop:
        better, radius = stop.value
    assert 12 <= queries <= 18
    assert better is directions[0]
    assert (radius == 0.25) == (beyond == 0.25)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 0.05), (0.3, 0.9), (0.5, 0.501)])
def test_half_of_the_distribution_lies_below_its_median(low: float, high: float) -> None:
    def density(at: float) -> Any:
        return 0.03133292769944518 / (at + 0.13403850261898806) ** 3.0659694403842903 + 0.16755646970211466

    median = _median(low, high)
    assert low < median < high
    assert quad(density, low, median)[0] == pytest.approx(quad(density, median, high)[0], rel=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 16, 45])
def test_a_pass_halves_every_block_down_to_single_pixels_and_then_starts_again(size: int) -> None:
    pairs = _pairs(size)
    whole = next(pairs)
    assert [*whole[0], *whole[1]] == list(range(size))
    passed = [whole]
    while (pair := next(pairs)) != whole and len(passed) < 200:
        passed.append(pair)
    halves = [half for each in passed for half in each]
    assert all(len(one) - len(other) in (0, 1) for one, other in passed)
    assert {half.start for half in halves if len(half) == 1} == set(range(size))

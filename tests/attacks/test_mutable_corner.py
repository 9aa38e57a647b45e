"""Flips of a corner: what is kept, what is undone, and the margins, against sums over all pixels."""

from __future__ import annotations

import numpy as np
import pytest

from linear_margins import LinearMargins, Signs, drive
from parsimon.attacks.mutable_corner import MutableCorner
from parsimon.core.grid import Window
from parsimon.core.types import Corners, Reply

SHAPE = (4, 4, 3)
WINDOWS: list[Window] = [
    (slice(0, 2), slice(0, 2), slice(0, 1)),
    (slice(2, 4), slice(0, 4), slice(0, 3)),
    (slice(0, 2), slice(3, 4), slice(2, 3)),
]


def some_flips(seed: int) -> tuple[list[tuple[Window, Signs]], Signs]:
    """Return flips of random pixels of three windows that share none, and all of these pixels."""
    rng = np.random.default_rng(seed)
    together = np.zeros(SHAPE, bool)
    flips = []
    for window in WINDOWS:
        pixels = rng.random(together[window].shape) < 0.7
        together[window] = pixels
        flips.append((window, pixels))
    return flips, together


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("single", [True, False])
def test_a_gain_is_kept_anything_else_is_undone_and_the_margins_are_those_of_the_corner(
    seed: int, single: bool
) -> None:
    model = LinearMargins(SHAPE, seed=seed)
    start = np.random.default_rng(seed).random(SHAPE) < 0.5
    corner = MutableCorner(start, margins=True)
    drive(corner.ask(), model)
    assert corner.margins is not None
    assert corner.margins.tolist() == model.margins(start).tolist()
    flips, pixels = some_flips(seed)
    if single:
        flips, pixels = flips[:1], np.zeros(SHAPE, bool)
        pixels[flips[0][0]] = flips[0][1]
    gain = drive(corner.flip(*flips[0]) if single else corner.flip_all(flips), model)

    np.testing.assert_array_equal(model.asked[-1], start ^ pixels)
    assert gain == model.margins(start ^ pixels).max() - model.margins(start).max()
    expected = start ^ pixels if gain > 0 else start
    np.testing.assert_array_equal(corner.signs, expected)
    assert corner.loss == model.margins(expected).max()
    assert corner.margins.tolist() == model.margins(expected).tolist()
    assert corner.margin_change is not None
    assert corner.margin_change.tolist() == model.effects(start, pixels).tolist()  # kept or not


def test_both_kept_and_undone_flips_occur_above() -> None:
    gains = []
    for seed in range(10):
        model, start = LinearMargins(SHAPE, seed=seed), np.random.default_rng(seed).random(SHAPE) < 0.5
        gains.append(model.margins(start ^ some_flips(seed)[1]).max() - model.margins(start).max())
    assert min(gains) < 0 < max(gains)


@pytest.mark.parametrize("raises", [True, False])
def test_the_next_query_names_all_windows_that_have_changed(raises: bool) -> None:
    corner = MutableCorner(np.zeros(SHAPE, bool))
    asking = corner.ask()
    next(asking)
    with pytest.raises(StopIteration):
        asking.send(Reply(np.zeros(1)))
    flips, _ = some_flips(0)
    flipping = corner.flip_all(flips)
    ask = next(flipping)
    assert isinstance(ask.points, Corners)
    assert ask.points.changed == WINDOWS
    with pytest.raises(StopIteration):
        flipping.send(Reply(np.array([1.0 if raises else 0.0])))
    assert ask.points.changed == ([] if raises else WINDOWS)  # those of an undone flip have changed back


def test_without_margins_it_asks_for_none_and_knows_none() -> None:
    model, corner = LinearMargins(SHAPE), MutableCorner(np.zeros(SHAPE, bool))
    asking = corner.ask()
    assert not next(asking).margins
    drive(corner.ask(), model)
    drive(corner.flip_all(some_flips(0)[0]), model)
    assert corner.margins is None
    assert corner.margin_change is None

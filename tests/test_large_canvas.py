"""Drawing in place, against drawing every point on its own in full, and beside a model that is looking at a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import parsimon.engine
from parsimon import Attack, InputError, Threat
from parsimon.attacks import ATTACKS
from parsimon.blocks import Grid
from parsimon.canvas import Part, render
from parsimon.large_canvas import LargeCanvas
from parsimon.oracles import CallableOracle
from parsimon.protocol import Corners, Images, Window
from parsimon.testing import SHAPES, THREATS, Network
from parsimon.testing.twin import Case

PLACES = 7


@dataclass(frozen=True)
class Reader(Network):
    """Says that it only reads what it is shown."""

    only_reads: ClassVar[Literal[True]] = True


class Searcher:
    """Asks about one image what searches ask: sets near the last one, the next level, sketches, whole images."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, int, int]) -> None:
        self.rng, self.shape = rng, shape
        self.image = rng.integers(0, 256, shape).astype(np.float32) / np.float32(255)
        self.grid = Grid(shape, (8, 8), 4)
        self.base = np.zeros(self.grid.count, np.bool_)
        self.pixels = Grid(shape, shape[1:], 1)
        self.sketches = [rng.random(self.pixels.count) < 0.5 for _ in range(2)]
        self.changed: list[list[Window]] = [[], []]

    def ask(self) -> Corners | Images:
        rng = self.rng
        for sketch, windows in zip(self.sketches, self.changed, strict=True):  # some time after they were asked for
            for _ in range(rng.integers(0, 3)):
                windows.append(self._window())
                sketch.reshape(self.pixels.cells)[windows[-1]] ^= rng.random() < 0.7
        kind = rng.random()
        if kind < 0.1:
            return Images(rng.random((3, *self.shape), np.float32))
        if kind < 0.5:
            number = int(rng.integers(2))
            changed, self.changed[number] = self.changed[number], []
            return Corners(self.pixels, self.sketches[number], changed=changed)
        if kind < 0.6 and self.grid.block > 1:
            self.base, self.grid = self.grid.split(self.base), self.grid.halved()
        before = self.base
        self.base = before.copy()
        moves = rng.permutation(self.grid.count)[: rng.choice([0, 1, 2, self.grid.count], p=[0.3, 0.4, 0.2, 0.1])]
        self.base[moves] ^= True
        moved = (before, int(moves[0])) if len(moves) == 1 and rng.random() < 0.5 else None
        flips = rng.permutation(self.grid.count)[: rng.integers(0, 5)].tolist()
        return Corners(self.grid, self.base, flips, moved)

    def _window(self) -> Window:
        channels, height, width = self.shape
        rows, columns, of_channels = (sorted(self.rng.integers(0, n + 1, 2)) for n in (height, width, channels))
        return slice(*rows), slice(*columns), slice(*of_channels)


@pytest.mark.parametrize("lends", [True, False])
@settings(max_examples=60)
@given(st.sampled_from([(3, 8, 8), (1, 9, 13), (3, 11, 8)]), st.integers(1, 4), st.integers(0, 9999), st.booleans())
def test_batches_show_what_was_asked_and_leave_alone_what_the_model_is_looking_at(
    lends: bool, shape: tuple[int, int, int], batch_size: int, seed: int, eight_bit: bool
) -> None:
    rng = np.random.default_rng(seed)
    threat = Threat(5 / 255, eight_bit=eight_bit)
    oracle: Any = Reader(shape) if lends else CallableOracle(Network(shape))
    canvas = LargeCanvas(shape, PLACES, batch_size, threat, oracle)
    assert canvas.lends == lends
    searchers = [Searcher(rng, shape) for _ in range(PLACES)]
    for place, searcher in enumerate(searchers):
        canvas.place(place, searcher.image)
    looked_at: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None  # by the model: as it is, and as it was
    waiting: list[int] = []
    for _ in range(12):
        if rng.random() < 0.5:  # the model has answered
            looked_at, waiting = None, []
        idle = [place for place in rng.permutation(PLACES).tolist() if place not in waiting]
        one_each = rng.random() < 0.7
        at_least = batch_size if looked_at is not None else 1  # what is drawn ahead is full
        parts: list[Part] = []
        expected: list[NDArray[np.float32]] = []
        for place in idle[: rng.integers(at_least, batch_size + 1)]:
            if rng.random() < 0.1:  # another image lands in the place
                searchers[place] = Searcher(rng, shape)
                canvas.place(place, searchers[place].image)
            points = searchers[place].ask()
            start = int(rng.integers(0, points.size))
            stop = start + 1 if one_each else int(rng.integers(start + 1, points.size + 1))
            parts.append((place, points, start, stop))
            expected += [render(searchers[place].image, threat, points.point(n)) for n in range(start, stop)]
        padding = 0 if one_each else int(rng.integers(0, 2))
        images, rows, outside = canvas.draw(parts, len(expected) + padding, beside=looked_at is not None)
        assert images.shape == (len(expected) + padding, *shape)
        assert np.array_equal(images[rows], np.stack(expected))
        in_place = np.shares_memory(images, canvas._rows)
        assert in_place == (lends and padding == 0 and len(parts) == len(expected))
        bounds = [threat.bounds(searchers[place].image) for place, _, start, stop in parts for _ in range(start, stop)]
        out = [(image < low).any() or (image > high).any() for image, (low, high) in zip(expected, bounds, strict=True)]
        assert np.array_equal(np.zeros(len(out), bool) if outside is None else outside, out)
        if looked_at is not None:
            assert np.array_equal(*looked_at)
        looked_at, waiting = (images, images.copy()), [place for place, _, _, _ in parts]


@pytest.mark.parametrize(("block", "flips"), [(4, []), (1, [3])])
def test_only_sets_of_single_pixels_without_flips_are_changed_in_place(block: int, flips: list[int]) -> None:
    shape = (3, 8, 8)
    canvas = LargeCanvas(shape, 1, 1, Threat(0.1), Reader(shape))
    canvas.place(0, np.full(shape, 0.5, np.float32))
    grid = Grid(shape, (8, 8), block)
    points = Corners(grid, np.zeros(grid.count, np.bool_), flips, changed=[])
    with pytest.raises(InputError, match="not one of single pixels, or asks for its flips"):
        canvas.draw([(0, points, 0, 1)], 1, beside=False)


@pytest.mark.parametrize("attack", [attack() for attack in ATTACKS.values()], ids=ATTACKS)
def test_attacks_come_to_the_same_end_in_place_as_by_hand(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsimon.engine, "_LARGE", 0)
    for threat in (THREATS[0], THREATS[2]):
        case = Case(Reader(SHAPES[0]), threat, count=11)
        alone = case.alone(attack)
        for batch_size, in_flight in ((1, 3), (2, 5), (4, 11)):
            case.hold(attack, alone, "in place", batch_size=batch_size, in_flight=in_flight)


def test_a_batch_of_one_point_each_is_not_copied() -> None:
    shape = (3, 8, 8)
    canvas = LargeCanvas(shape, 4, 2, Threat(0.1), Reader(shape))
    grid = Grid(shape, (8, 8), 4)
    bases = [np.zeros(grid.count, np.bool_) for _ in range(4)]
    for place in range(4):
        canvas.place(place, np.full(shape, 0.5, np.float32))
    batches = []
    for places in ((0, 1), (2, 3), (1, 0), (0, 2)):
        parts = [(place, Corners(grid, bases[place], [place]), 0, 1) for place in places]
        batches.append(canvas.draw(parts, 2, beside=False).images)
    assert np.shares_memory(batches[0], batches[2])
    assert not np.shares_memory(batches[0], batches[1])

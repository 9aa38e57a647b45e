"""Drawing in place, against drawing every point on its own in full, and beside a model that is looking at a batch."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import parsimon.core.engine
from parsimon import Attack, InputError, Threat, Thrift
from parsimon.attacks import ATTACKS
from parsimon.attacks.mutable_corner import MutableCorner
from parsimon.core.canvas import Canvas, Part, render
from parsimon.core.engine import Engine
from parsimon.core.grid import Grid, Window
from parsimon.core.large_canvas import LargeCanvas
from parsimon.core.model import ScoreGradient
from parsimon.core.types import Ask, Corners, Images, Outcome, Reply
from parsimon.testing import SHAPES, THREATS, Network
from parsimon.testing.twin import Case

PLACES = 11
ONE_PLACE = SHAPES[0], 1, Threat(0.1)


@dataclass(frozen=True)
class Writer(Network):
    """Normalises in place."""

    only_reads = False

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        scores = super().__call__(images)
        images -= np.float32(0.5)
        return scores

    def vjp(self, images: NDArray[np.float32], slope: ScoreGradient) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        return Network(self.shape).vjp(images, slope)


@dataclass(frozen=True)
class FixedWriter(Writer):
    fixed_batch = True


@dataclass(frozen=True)
class Starer(Network):
    """Looks at what it is shown for a while, and sees whether it changes."""

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        before = images.copy()
        time.sleep(3e-4)
        assert np.array_equal(images, before), "what the model is looking at has changed"
        return super().__call__(images)


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
    oracle = Network(shape) if lends else Writer(shape)
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
        padding = int(rng.integers(0, 2)) if rng.random() < 0.5 else 0
        images, rows, outside, _ = canvas.draw(parts, len(expected) + padding)
        assert images.shape == (len(expected) + padding, *shape)
        assert np.array_equal(images[rows], np.stack(expected))
        if np.shares_memory(images, canvas._rows):
            assert lends
        bounds = [threat.bounds(searchers[place].image) for place, _, start, stop in parts for _ in range(start, stop)]
        out = [(image < low).any() or (image > high).any() for image, (low, high) in zip(expected, bounds, strict=True)]
        assert np.array_equal(np.zeros(len(out), bool) if outside is None else outside, out)
        if looked_at is not None:
            assert np.array_equal(*looked_at)
        looked_at, waiting = (images, images.copy()), [place for place, _, _, _ in parts]


@pytest.mark.parametrize(("block", "flips"), [(4, []), (1, [3])])
@pytest.mark.parametrize("large", [True, False])
def test_only_sets_of_single_pixels_without_flips_are_changed_in_place(
    block: int, flips: list[int], large: bool
) -> None:
    network = Network(SHAPES[0])
    canvas = LargeCanvas(network.shape, 1, 1, Threat(0.1), network) if large else Canvas(*ONE_PLACE, network)
    canvas.place(0, np.full(network.shape, 0.5, np.float32))
    grid = Grid(network.shape, (8, 8), block)
    points = Corners(grid, np.zeros(grid.count, np.bool_), flips, changed=[])
    with pytest.raises(InputError, match="not one of single pixels, or asks for its flips"):
        canvas.draw([(0, points, 0, 1)], 1)


@pytest.mark.parametrize("large", [True, False])
def test_corners_of_another_shape_are_refused(large: bool) -> None:
    network = Network(SHAPES[0])
    canvas = LargeCanvas(network.shape, 1, 1, Threat(0.1), network) if large else Canvas(*ONE_PLACE, network)
    canvas.place(0, np.full(network.shape, 0.5, np.float32))
    grid = Grid((1, 8, 8), (8, 8), 4)
    with pytest.raises(InputError, match=r"corners of shape \(1, 8, 8\) about an image of \(3, 8, 8\)"):
        canvas.draw([(0, Corners(grid, np.zeros(grid.count, np.bool_)), 0, 1)], 1)


def test_an_image_of_another_shape_is_refused() -> None:
    network = Network(SHAPES[0])
    canvas = LargeCanvas(network.shape, 1, 1, Threat(0.1), network)
    with pytest.raises(InputError, match="all images must have one shape"):
        canvas.place(0, np.full((1, 8, 8), 0.5, np.float32))


def test_blocks_that_cannot_be_halved_are_followed_by_any_others() -> None:
    network = Network((1, 10, 10))
    canvas = LargeCanvas(network.shape, 1, 1, Threat(0.1), network)
    image = np.full(network.shape, 0.5, np.float32)
    canvas.place(0, image)
    for block in (5, 2):
        grid = Grid(network.shape, (10, 10), block)
        points = Corners(grid, np.arange(grid.count) % 3 == 0)
        drawn = canvas.draw([(0, points, 0, 1)], 1)
        assert np.array_equal(drawn.images[0], render(image, Threat(0.1), points.point(0)))


def test_a_batch_of_one_point_each_is_not_copied() -> None:
    network = Network(SHAPES[0])
    canvas = LargeCanvas(network.shape, 8, 4, Threat(0.1), network)
    grid = Grid(network.shape, (8, 8), 4)
    bases = [np.zeros(grid.count, np.bool_) for _ in range(8)]
    images = np.random.default_rng(0).random((8, *network.shape), np.float32)
    for place in range(8):
        canvas.place(place, images[place])
    batches = []
    for places in ((0, 1, 2, 3), (4, 5, 6, 7), (1, 2, 3, 4), (0, 2, 4, 6)):
        asked = [Corners(grid, bases[place], [place]) for place in places]
        drawn = canvas.draw([(place, points, 0, 1) for place, points in zip(places, asked, strict=True)], 4)
        batches.append(drawn.images)
        for place, points, shown in zip(places, asked, drawn.images[drawn.rows], strict=True):
            assert np.array_equal(shown, render(images[place], Threat(0.1), points.point(0)))
    assert np.shares_memory(batches[0], batches[2])  # of which one row came from elsewhere
    assert not np.shares_memory(batches[0], batches[1])
    assert not any(np.shares_memory(batches[3], batch) for batch in batches[:3])  # too many would have to move


@pytest.mark.parametrize("attack", [attack() for attack in ATTACKS.values()], ids=ATTACKS)
@pytest.mark.parametrize("network", [Network(SHAPES[0]), FixedWriter(SHAPES[0])], ids=["lent", "copied"])
def test_attacks_come_to_the_same_end_in_place_as_by_hand(
    attack: Attack, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsimon.core.engine, "_LARGE", 0)
    for threat in (THREATS[0], THREATS[2]):
        alone = Case(Network(network.shape), threat, count=11).alone(attack)
        for batch_size, in_flight in ((1, 3), (2, 5), (4, 11)):
            case = Case(network, threat, count=11)
            case.hold(attack, alone, "in place", batch_size=batch_size, in_flight=in_flight)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.lists(st.booleans(), min_size=20, max_size=40))
def test_what_the_model_is_looking_at_stays_as_it_is(budget: int, batch_size: int, pauses: list[bool]) -> None:
    """With tasks that come in fits and starts, so that batches of all sizes follow each other."""
    coming = iter(Case(count=sum(not pause for pause in pauses)).tasks)
    tasks = [None if pause else next(coming) for pause in pauses]
    engine = Engine(Thrift(), Starer(SHAPES[0]), Threat(1e-6), budget=budget, batch_size=batch_size, in_flight=11)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsimon.core.engine, "_LARGE", 0)
        outcomes = [event for event in engine.events(tasks) if isinstance(event, Outcome)]
    assert all(outcome.queries <= budget for outcome in outcomes)


def test_a_sketch_that_was_taken_back_is_drawn_as_it_was() -> None:
    network = Network(SHAPES[0])
    canvas = LargeCanvas(network.shape, 1, 1, Threat(0.1), network)
    image = np.full(network.shape, 0.5, np.float32)
    canvas.place(0, image)
    sketch = MutableCorner(np.zeros((8, 8, 3), np.bool_))
    window = slice(2, 5), slice(1, 3), slice(0, 2)

    def shown(search: Generator[Ask, Reply, Any], loss: float) -> NDArray[np.float32]:
        """What is asked for, drawn; then the search is told this loss."""
        points = next(search).points
        pixels = canvas.draw([(0, points, 0, 1)], 1).images[0].copy()
        assert np.array_equal(pixels, render(image, Threat(0.1), points.point(0)))
        with pytest.raises(StopIteration):
            search.send(Reply(np.array([loss])))
        return np.asarray(pixels)

    low = shown(sketch.ask(), 1.0)
    flipped = shown(sketch.flip(window, np.ones((3, 2, 1), np.bool_)), 0.5)
    assert not np.array_equal(flipped, low)
    assert np.array_equal(shown(sketch.ask(), 1.0), low)
    assert np.array_equal(shown(sketch.flip(window, np.ones((3, 2, 1), np.bool_)), 2.0), flipped)
    assert np.array_equal(shown(sketch.ask(), 2.0), flipped)
    with pytest.raises(ValueError, match="read-only"):
        sketch.signs[window] = True

"""Rendering in place, compared with rendering every point in full, also while a model computes a batch."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
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
from parsimon.models.torch import TensorModel
from parsimon.testing import SHAPES, Network, threats_for
from parsimon.testing.twin import Case

SLOTS = 11


@dataclass(frozen=True)
class Writer(Network):
    """Normalises in place."""

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        scores = super().__call__(images)
        images -= np.float32(0.5)
        return scores

    def vjp(
        self, images: NDArray[np.float32], score_gradient: ScoreGradient
    ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        return Network(self.shape).vjp(images, score_gradient)


@dataclass(frozen=True)
class FixedWriter(Writer):
    fixed_batch = True


@dataclass(frozen=True)
class Starer(Network):
    """Keeps its input for a while and checks that it does not change."""

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        before = images.copy()
        time.sleep(3e-4)
        assert np.array_equal(images, before), "the input has changed during the call"
        return super().__call__(images)


class Searcher:
    """Asks about one image what searches ask: sets near the last one, the next level, mutable sets, whole images."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, int, int]) -> None:
        self.rng, self.shape = rng, shape
        self.image = rng.integers(0, 256, shape).astype(np.float32) / np.float32(255)
        self.grid = Grid(shape, (8, 8), 4)
        self.base = np.zeros(self.grid.count, np.bool_)
        self.pixels = Grid(shape, shape[1:], 1)
        self.mutable_sets = [rng.random(self.pixels.count) < 0.5 for _ in range(2)]
        self.changed: list[list[Window]] = [[], []]

    def ask(self) -> Corners | Images:
        rng = self.rng
        for mutable, windows in zip(self.mutable_sets, self.changed, strict=True):  # some time after their last ask
            for _ in range(rng.integers(0, 3)):
                windows.append(self._window())
                mutable.reshape(self.pixels.cells)[windows[-1]] ^= rng.random() < 0.7
        kind = rng.random()
        if kind < 0.1:
            return Images(rng.random((3, *self.shape), np.float32))
        if kind < 0.5:
            number = int(rng.integers(2))
            changed, self.changed[number] = self.changed[number], []
            return Corners(self.pixels, self.mutable_sets[number], changed=changed)
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


@pytest.mark.parametrize("library", ["large", "small", "torch"])
@settings(max_examples=60)
@given(st.sampled_from([(3, 8, 8), (1, 9, 13), (3, 11, 8)]), st.integers(0, 9999), st.booleans())
def test_a_batch_holds_the_requested_points_and_stays_as_it_is(
    library: str, shape: tuple[int, int, int], seed: int, eight_bit: bool
) -> None:
    rng = np.random.default_rng(seed)
    threat = Threat(5 / 255, eight_bit=eight_bit)
    model = TensorModel(torch.nn.Identity(), "cpu") if library == "torch" else Network(shape)
    canvas = (LargeCanvas if library == "large" else Canvas)(shape, SLOTS, threat, model)
    searchers = [Searcher(rng, shape) for _ in range(SLOTS)]
    for slot, searcher in enumerate(searchers):
        canvas.load(slot, searcher.image)
    before: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None  # the last batch, as it is and as it was
    for _ in range(12):
        parts: list[Part] = []
        expected: list[NDArray[np.float32]] = []
        for slot in rng.permutation(SLOTS)[: rng.integers(1, SLOTS + 1)].tolist():
            if rng.random() < 0.1:  # another image is loaded
                searchers[slot] = Searcher(rng, shape)
                canvas.load(slot, searchers[slot].image)
            points = searchers[slot].ask()
            start = int(rng.integers(0, points.size))
            stop = int(rng.integers(start + 1, points.size + 1))
            parts.append(Part(slot, points, start, stop))
            expected += [render(searchers[slot].image, threat, points.point(n)) for n in range(start, stop)]
        drawn, outside, out_of_range, _ = canvas.draw(parts)
        images = np.asarray(drawn)
        assert np.array_equal(images, np.stack(expected))
        slots = [slot for slot, _, start, stop in parts for _ in range(start, stop)]
        bounds = [threat.bounds(searchers[slot].image) for slot in slots]
        out = [(image < low).any() or (image > high).any() for image, (low, high) in zip(expected, bounds, strict=True)]
        assert np.array_equal(np.zeros(len(out), bool) if outside is None else outside, out)
        assert out_of_range is None or not out_of_range.any()
        if before is not None:
            assert np.array_equal(*before)
        before = images, images.copy()


@pytest.mark.parametrize(("block", "flips"), [(4, []), (1, [3])])
@pytest.mark.parametrize("large", [True, False])
def test_only_sets_of_single_pixels_without_flips_are_changed_in_place(
    block: int, flips: list[int], large: bool
) -> None:
    network = Network(SHAPES[0])
    canvas = (LargeCanvas if large else Canvas)(network.shape, 1, Threat(0.1), network)
    canvas.load(0, np.full(network.shape, 0.5, np.float32))
    grid = Grid(network.shape, (8, 8), block)
    points = Corners(grid, np.zeros(grid.count, np.bool_), flips, changed=[])
    with pytest.raises(InputError, match="must be one of single pixels, without flips"):
        canvas.draw([Part(0, points, 0, 1)])


@pytest.mark.parametrize("large", [True, False])
def test_corners_of_another_shape_are_refused(large: bool) -> None:
    network = Network(SHAPES[0])
    canvas = (LargeCanvas if large else Canvas)(network.shape, 1, Threat(0.1), network)
    canvas.load(0, np.full(network.shape, 0.5, np.float32))
    grid = Grid((1, 8, 8), (8, 8), 4)
    with pytest.raises(InputError, match=r"corners of shape \(1, 8, 8\) about an image of \(3, 8, 8\)"):
        canvas.draw([Part(0, Corners(grid, np.zeros(grid.count, np.bool_)), 0, 1)])


def test_an_image_of_another_shape_is_refused() -> None:
    network = Network(SHAPES[0])
    canvas = LargeCanvas(network.shape, 1, Threat(0.1), network)
    with pytest.raises(InputError, match="all images must have one shape"):
        canvas.load(0, np.full((1, 8, 8), 0.5, np.float32))


def test_blocks_of_any_size_may_follow_each_other() -> None:
    network = Network((1, 10, 10))
    canvas = LargeCanvas(network.shape, 1, Threat(0.1), network)
    image = np.full(network.shape, 0.5, np.float32)
    canvas.load(0, image)
    for block in (5, 2):
        grid = Grid(network.shape, (10, 10), block)
        points = Corners(grid, np.arange(grid.count) % 3 == 0)
        drawn = canvas.draw([Part(0, points, 0, 1)])
        assert np.array_equal(drawn.images[0], render(image, Threat(0.1), points.point(0)))


@pytest.mark.parametrize("attack", [attack() for attack in ATTACKS.values()], ids=ATTACKS)
@pytest.mark.parametrize("network", [Network(SHAPES[0]), FixedWriter(SHAPES[0])], ids=["reads", "writes"])
def test_attacks_have_the_same_outcomes_in_place_as_by_hand(
    attack: Attack, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsimon.core.engine, "_LARGE", 0)
    threats = threats_for(attack)
    for threat in (threats[0], threats[2]):
        expected = Case(Network(network.shape), threat, count=11).by_twin(attack)
        for batch_size, in_flight in ((1, 3), (2, 5), (4, 11)):
            case = Case(network, threat, count=11)
            case.compare(attack, expected, "in place", batch_size=batch_size, in_flight=in_flight)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.lists(st.booleans(), min_size=20, max_size=40))
def test_the_input_of_the_model_does_not_change_during_a_call(budget: int, batch_size: int, pauses: list[bool]) -> None:
    """Tasks arrive irregularly, so that batches of all sizes follow each other."""
    coming = iter(Case(count=sum(not pause for pause in pauses)).tasks)
    tasks = [None if pause else next(coming) for pause in pauses]
    engine = Engine(Thrift(), Starer(SHAPES[0]), Threat(1e-6), budget=budget, batch_size=batch_size, in_flight=11)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsimon.core.engine, "_LARGE", 0)
        outcomes = [event for event in engine.events(tasks) if isinstance(event, Outcome)]
    assert all(outcome.queries <= budget for outcome in outcomes)


def test_a_change_that_was_taken_back_is_rendered_as_before() -> None:
    network = Network(SHAPES[0])
    canvas = LargeCanvas(network.shape, 1, Threat(0.1), network)
    image = np.full(network.shape, 0.5, np.float32)
    canvas.load(0, image)
    mutable = MutableCorner(np.zeros((8, 8, 3), np.bool_))
    window = slice(2, 5), slice(1, 3), slice(0, 2)

    def shown(search: Generator[Ask, Reply, Any], loss: float) -> NDArray[np.float32]:
        """Render the ask, then send the search this loss."""
        points = next(search).points
        pixels = canvas.draw([Part(0, points, 0, 1)]).images[0].copy()
        assert np.array_equal(pixels, render(image, Threat(0.1), points.point(0)))
        with pytest.raises(StopIteration):
            search.send(Reply(np.array([loss])))
        return np.asarray(pixels)

    low = shown(mutable.ask(), 1.0)
    flipped = shown(mutable.flip(window, np.ones((3, 2, 1), np.bool_)), 0.5)
    assert not np.array_equal(flipped, low)
    assert np.array_equal(shown(mutable.ask(), 1.0), low)
    assert np.array_equal(shown(mutable.flip(window, np.ones((3, 2, 1), np.bool_)), 2.0), flipped)
    assert np.array_equal(shown(mutable.ask(), 2.0), flipped)
    with pytest.raises(ValueError, match="read-only"):
        mutable.signs[window] = True

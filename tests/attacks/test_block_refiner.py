"""The effects that a refiner knows and the flips that it combines, against all combinations on a linear model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from linear_margins import LinearMargins, Signs, drive
from parsimon.attacks.block_refiner import BlockRefiner, Effects
from parsimon.attacks.blocks import Level, PixelGroup, plain_levels
from parsimon.attacks.mutable_corner import MutableCorner

SHAPE = (4, 4, 2)
BLOCKS = [0, 1, 2, 3, 4, 6, 11]  # refined before a combination: some of them in the middle of a level


class Refining:
    """A refiner of plain blocks on a linear model, and the pieces that its queries have split the image into."""

    def __init__(self, seed: int, blocks: int, *, deduce: bool) -> None:
        self.model = LinearMargins(SHAPE, seed=seed)
        self.best = MutableCorner(np.random.default_rng(seed).random(SHAPE) < 0.5, margins=True)
        drive(self.best.ask(), self.model)
        self.refiner = BlockRefiner(plain_levels(np.ones(SHAPE, bool), [1, 2, 4]), SHAPE[:2], deduce=deduce, rank=True)
        self.pieces = [np.ones(SHAPE, bool)]
        rng = np.random.default_rng(seed)
        for _ in range(blocks):
            kept, first = self.best.signs.copy(), len(self.model.asked)
            loss = self.best.loss
            drive(self.refiner.refine_next(self.best, rng), self.model)
            for asked in self.model.asked[first:]:
                self._split(asked ^ kept)
                if self.model.margins(asked).max() > loss:
                    kept, loss = asked, float(self.model.margins(asked).max())

    def _split(self, flipped: Signs) -> None:
        """Split the piece that holds these pixels in them and the others."""
        (piece,) = [piece for piece in self.pieces if (piece & flipped).any()]
        others = [each for each in self.pieces if each is not piece]
        self.pieces = [*others, flipped, piece & ~flipped] if (piece & ~flipped).any() else [*others, flipped]

    @property
    def combinations(self) -> list[Signs]:
        """Return the pixels of all combinations of pieces; none while no piece is known."""
        known = self.pieces if len(self.pieces) > 1 else []
        return [
            np.logical_or.reduce([np.zeros(SHAPE, bool), *itertools.compress(known, taken)])
            for taken in itertools.product([False, True], repeat=len(known))
        ]


@pytest.mark.parametrize("deduce", [True, False])
@pytest.mark.parametrize("blocks", BLOCKS[:5])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_combination_is_that_of_trying_all_combinations(seed: int, blocks: int, deduce: bool) -> None:
    refining = Refining(seed, blocks, deduce=deduce)
    best, model = refining.best, refining.model
    promised, contender = refining.refiner.best_combination(best)
    margins = np.array([model.margins(best.signs ^ pixels) for pixels in refining.combinations])
    assert promised == margins.max()
    assert promised == margins[:, contender].max()


@pytest.mark.parametrize("deduce", [True, False])
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("seed", range(4))
def test_a_combination_flips_exactly_the_pieces_that_raise_a_contenders_margin(
    seed: int, blocks: int, deduce: bool
) -> None:
    for contender in range(3):
        refining = Refining(seed, blocks, deduce=deduce)
        best, model, before = refining.best, refining.model, refining.best.signs.copy()
        known = refining.pieces if blocks else []
        raising = [piece for piece in known if model.effects(before, piece)[contender] > 0]
        flipped = np.logical_or.reduce([np.zeros(SHAPE, bool), *raising])
        windows = drive(refining.refiner.flip_combination(best, contender), model)
        np.testing.assert_array_equal(model.asked[-1], before ^ flipped)
        kept = model.margins(before ^ flipped).max() > model.margins(before).max()
        np.testing.assert_array_equal(best.signs, before ^ flipped if kept else before)
        assert len(windows) == (len(raising) if kept else 0)


def test_kept_and_undone_combinations_occur_above() -> None:
    kept = set()
    for seed, blocks in itertools.product(range(4), BLOCKS):
        refining = Refining(seed, blocks, deduce=False)
        kept.add(refining.refiner.best_combination(refining.best)[0] > refining.best.loss)
    assert kept == {True, False}


@pytest.mark.parametrize("deduce", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_after_a_combination_the_effects_are_those_of_the_new_corner(seed: int, deduce: bool) -> None:
    refining = Refining(seed, 3, deduce=deduce)  # the channels and then their quarters
    best, refiner, model = refining.best, refining.refiner, refining.model
    before = best.loss
    promised, contender = refiner.best_combination(best)
    drive(refiner.flip_combination(best, contender), model)
    assert best.loss == promised
    assert refiner.effects.margins is not None
    assert refiner.effects.known.all()
    for row, column, channel in np.ndindex(2, 2, 2):
        block = np.zeros(SHAPE, bool)
        block[2 * row : 2 * row + 2, 2 * column : 2 * column + 2, channel] = True
        expected = model.effects(best.signs, block)
        assert refiner.effects.margins[row, column, channel].tolist() == expected.tolist()
        if promised > before:
            flipped = model.margins(best.signs ^ block).max() - best.loss
            assert refiner.effects.get((row, column, channel)) == flipped


def test_effects_on_the_loss_are_deduced_from_margins_and_are_no_gain() -> None:
    best = MutableCorner(np.zeros(SHAPE, bool))
    best.margins = np.array([-1.0, -2.0])
    effects = Effects(2, 1)
    effects.set((0, 0, 0), -9.0, np.array([-3.0, 0.5]))  # then the second class is ahead, at -1.5
    effects.set((0, 1, 0), -9.0, np.array([-3.0, -4.0]))
    effects.set((1, 0, 0), -9.0, np.array([0.0, 4.0]))  # a gain of 3
    effects.update(best)
    assert effects.values[:, :, 0].tolist() == [[-0.5, -3.0], [0.0, 0.0]]
    assert [effects.get((row, column, 0)) for row in (0, 1) for column in (0, 1)] == [-0.5, -3.0, 0.0, None]


def test_without_margins_nothing_is_combined_or_deduced_from_them() -> None:
    model, best = LinearMargins(SHAPE), MutableCorner(np.zeros(SHAPE, bool))
    refiner = BlockRefiner(plain_levels(np.ones(SHAPE, bool), [1, 2]), SHAPE[:2], deduce=True, rank=True)
    drive(best.ask(), model)
    drive(refiner.refine_next(best, np.random.default_rng(0)), model)
    before = refiner.effects.values.copy()
    refiner.effects.update(best)
    np.testing.assert_array_equal(refiner.effects.values, before)
    assert refiner.best_combination(best)[0] == -np.inf


def test_a_refiner_forgets_the_effects_of_blocks_that_another_has_changed() -> None:
    model, best = LinearMargins((8, 8, 3)), MutableCorner(np.zeros((8, 8, 3), bool), margins=True)
    whole = [PixelGroup(np.ones((8, 8, 1), bool))]
    refiner = BlockRefiner([Level(across, whole) for across in (1, 2, 4, 8)], (8, 8), deduce=False, rank=True)
    rng = np.random.default_rng(0)
    drive(best.ask(), model)
    while len(refiner.effects.values) < 4:
        drive(refiner.refine_next(best, rng), model)
    assert refiner.effects.known.all()
    refiner.forget([(slice(0, 4), slice(4, 8), slice(0, 1)), (slice(6, 7), slice(0, 2), slice(0, 3))])
    refiner.best_combination(best)  # as any turn does, it forgets first
    unknown = np.zeros((4, 4), bool)
    unknown[:2, 2:] = True  # the second window is smaller than a block
    np.testing.assert_array_equal(~refiner.effects.known[:, :, 0], unknown)
    assert refiner.effects.margins is not None
    assert not refiner.effects.margins[unknown].any()
    assert not refiner.effects.values[unknown].any()

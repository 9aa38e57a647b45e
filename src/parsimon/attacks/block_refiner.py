"""Refine a corner block by block, from the whole image to single pixels; the moves of Thrift.

The *effect* of a piece of a block is the change in loss when it is flipped. Where the model returns scores, it is also
known for the margin of each contender. The loss is the highest of these margins. Effects nearly add up.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from parsimon.attacks.blocks import Level
from parsimon.attacks.mutable_corner import MutableCorner
from parsimon.core.grid import Window
from parsimon.core.types import Ask, Reply
from parsimon.setsearch import Mask

# The numbers were chosen by measurements on the bundled networks; see docs/research/thrift.md.
MEMORY = 10  # queries over which the recent gain is averaged
_ENOUGH_TO_COMPARE = 8  # blocks along a side: with fewer, the neighbours of a block are most of the image

Place = tuple[int, int, int]  # row, column and group of a piece on its level


class Effects:
    """The effects of the groups of all blocks of a level, by row, column and group, and which of them are known.

    No effect on the loss is a gain: a flip that gains is kept, and then flipping back loses. Unknown effects are 0.

    Attributes:
        values: The effects on the loss.
        known: Which of them are known.
        margins: The effects on the margin of each contender, in a last axis; None without margins.
    """

    def __init__(self, across: int, groups: int) -> None:
        self.values = np.zeros((across, across, groups))
        self.known = np.zeros((across, across, groups), np.bool_)
        self.margins: NDArray[np.float64] | None = None

    def get(self, place: Place) -> float | None:
        """Return the effect of a piece on the loss; None: it is unknown."""
        return self.values.item(place) if self.known[place] else None

    def set(self, place: Place, value: float, margins: NDArray[np.float64] | None) -> None:
        """Set the effects of a piece on the loss, and on the margins if they are known."""
        self.values[place] = value
        self.known[place] = True
        if margins is not None:
            if self.margins is None:
                self.margins = np.zeros((*self.values.shape, len(margins)))
            self.margins[place] = margins

    def take_margins(self, place: Place) -> NDArray[np.float64] | None:
        """Return the effects of a piece on the margins and forget them, since its own pieces come in its place."""
        if self.margins is None or not self.known[place]:
            return None
        taken: NDArray[np.float64] = self.margins[place].copy()
        self.margins[place] = 0
        return taken

    def forget(self, rows: slice, columns: slice, extent: tuple[int, int]) -> None:
        """Forget the effects of the blocks that lie within these pixels."""
        across, (height, width) = len(self.values), extent
        top, bottom = -(-rows.start * across // height), rows.stop * across // height
        left, right = -(-columns.start * across // width), columns.stop * across // width
        if top < bottom and left < right:  # a small window holds no block of a coarse level
            self.values[top:bottom, left:right] = 0
            self.known[top:bottom, left:right] = False
            if self.margins is not None:
                self.margins[top:bottom, left:right] = 0

    def update(self, best: MutableCorner) -> None:
        """Deduce all known effects on the loss from those on the margins, after several pieces were flipped at once."""
        if self.margins is not None and best.margins is not None:
            expected = (best.margins + self.margins).max(axis=-1) - best.margins.max()
            self.values = np.where(self.known, np.minimum(expected, 0), 0)


class BlockRefiner:
    """Refine a corner by one kind of change, level by level, from the whole image to the smallest blocks.

    Attributes:
        effects: The effects on the last fully evaluated level.
        recent_gain: Running mean of the gain per query.
        done: Whether the finest level is fully evaluated.
    """

    def __init__(self, levels: Sequence[Level], extent: tuple[int, int], *, deduce: bool, rank: bool) -> None:
        """Prepare to refine an image of `extent` rows and columns.

        Each level splits every block of the level before, every group in as many consecutive ones, or both.
        """
        self._levels, self._extent, self._deduce, self._rank = levels, extent, deduce, rank
        self.recent_gain = 0.0
        self.restart()

    def restart(self) -> None:
        """Forget all effects and start again from the whole image."""
        self._depth = 0  # levels entered so far
        self._order: list[int] = []  # blocks to split on this level
        self._position = 0  # of the next of them
        self._to_forget: list[Window] = []  # changed since its last turn
        self.effects = self._finer_effects = Effects(1, 1)
        self.done = not self._levels

    def priority(self) -> tuple[float, int]:
        """Return what the next refiner has most of: recent gain, and on a tie the larger blocks."""
        return self.recent_gain, -len(self.effects.values)

    def forget(self, windows: Iterable[Window]) -> None:
        """Forget the effects of blocks within windows that another refiner has changed, before the next turn."""
        self._to_forget += windows

    def _forget_changed(self) -> None:
        for rows, columns, _ in self._to_forget:
            self.effects.forget(rows, columns, self._extent)
            self._finer_effects.forget(rows, columns, self._extent)
        self._to_forget.clear()

    def refine_next(self, best: MutableCorner, rng: np.random.Generator) -> Generator[Ask, Reply, list[Window]]:
        """Refine the next block by one query per piece, and return the windows of the flips that were kept."""
        if self._to_forget:
            self._forget_changed()
        if self._position == len(self._order):
            self._enter_level(rng)
        block = self._next_block()
        pieces = self._pieces(*block)
        remaining = self.effects.get(block)  # the effect of all pieces that are not flipped yet
        margins_left = self.effects.take_margins(block)  # the same for margins
        may_deduce = self._deduce or len(pieces) == 1  # a single piece is the block itself
        kept = []
        rng.shuffle(pieces)
        for left, (place, window, pixels) in zip(range(len(pieces) - 1, -1, -1), pieces, strict=True):
            if not left and may_deduce and remaining is not None and remaining <= 0:
                self._finer_effects.set(place, remaining, margins_left)  # deduced
                continue
            gain = yield from best.flip(window, pixels)
            change = best.margin_change
            if gain > 0:
                kept.append(window)
            self.recent_gain += (max(gain, 0.0) - self.recent_gain) / MEMORY
            back = change if change is None or gain <= 0 else -change
            self._finer_effects.set(place, -abs(gain), back)
            if remaining is not None:
                remaining -= gain
                margins_left = None if margins_left is None or change is None else margins_left - change
        if self._position == len(self._order):
            self.effects = self._finer_effects
            self.done = self._depth == len(self._levels)
        return kept

    def best_combination(self, best: MutableCorner) -> tuple[float, int]:
        """Return the highest loss that flips of known pieces promise together, and the contender that gains from it.

        For a contender these are the pieces that raise its margin. They are those of the last level, and of the level
        before where a block was not split yet.
        """
        if self._to_forget:
            self._forget_changed()
        if best.margins is None:
            return -math.inf, 0
        promised = best.margins.copy()
        for effects in self._both_effects():
            if effects.margins is not None:
                promised += np.maximum(effects.margins, 0).sum(axis=(0, 1, 2))
        contender = int(promised.argmax())
        return float(promised[contender]), contender

    def flip_combination(self, best: MutableCorner, contender: int) -> Generator[Ask, Reply, list[Window]]:
        """Flip all pieces that raise a contender's margin by one query, and return the windows if that was kept."""
        chosen = [
            (effects, effects.margins[..., contender] > 0)
            for effects in self._both_effects()
            if effects.margins is not None
        ]
        flips = [
            self._piece(effects, (row, column, group))
            for effects, raising in chosen
            for row, column, group in np.argwhere(raising).tolist()
        ]
        gain = yield from best.flip_all(flips)
        if gain <= 0:
            return []
        for effects, raising in chosen:
            assert effects.margins is not None
            effects.margins[raising] *= -1
        for effects in self._both_effects():
            effects.update(best)
        return [window for window, _ in flips]

    def _both_effects(self) -> list[Effects]:
        finer = self._finer_effects
        return [self.effects] if finer is self.effects else [self.effects, finer]

    def _piece(self, effects: Effects, place: Place) -> tuple[Window, Mask]:
        """Return the window and the pixels of a piece whose effects are known."""
        at_end = effects is self._finer_effects
        across, groups = self._levels[self._depth - (1 if at_end else 2)]
        row, column, group = place
        rows, columns = (_slices(across, side)[at] for side, at in zip(self._extent, (row, column), strict=True))
        pixels, channels = groups[group]
        return (rows, columns, channels), pixels[rows, columns]

    def _enter_level(self, rng: np.random.Generator) -> None:
        """Put the blocks of the level before in the order in which they are split."""
        level = self._levels[self._depth]
        self._depth += 1
        order = rng.permutation(self.effects.values.size)
        if self._rank:
            order = order[_promise(self.effects.values).reshape(-1)[order].argsort(kind="stable")[::-1]]
        self._order, self._position = order.tolist(), 0
        self._finer_effects = Effects(level.across, len(level.groups))

    def _next_block(self) -> Place:
        across, _, groups = self.effects.values.shape
        block, group = divmod(self._order[self._position], groups)
        self._position += 1
        return *divmod(block, across), group

    def _pieces(self, row: int, column: int, group: int) -> list[tuple[Place, Window, Mask]]:
        """Return what a group of a block splits into: the places on the finer level, their windows and pixels.

        A piece without pixels is left out: a side that is no power of two has fewer pixels than the last level blocks.
        """
        across, groups = self._levels[self._depth - 1]
        split = across // len(self.effects.values)
        group_split = len(groups) // self.effects.values.shape[2]
        row_slices, column_slices = (_slices(across, side) for side in self._extent)
        pieces = []
        for part in range(group * group_split, (group + 1) * group_split):
            of_group, channels = groups[part]
            for down in range(row * split, (row + 1) * split):
                for along in range(column * split, (column + 1) * split):
                    rows, columns = row_slices[down], column_slices[along]
                    pixels = of_group[rows, columns]
                    if np.count_nonzero(pixels):
                        pieces.append(((down, along, part), (rows, columns, channels), pixels))
        return pieces


@lru_cache(maxsize=128)
def _slices(across: int, side: int) -> list[slice]:
    """Return the pixels along a side that each of `across` blocks covers."""
    return [slice(block * side // across, (block + 1) * side // across) for block in range(across)]


def _promise(effects: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much splitting each block is expected to gain, compared to the others.

    The effect of a quarter is modelled as normal. Its mean is a quarter of the block's effect. Its deviation is half
    of the root mean square of the 3 x 3 effects around, as for independent pixels. Its positive part is the gain.
    On coarse levels, blocks near the middle of the image come first, where pictures show their object.
    """
    across = len(effects)
    if across < _ENOUGH_TO_COMPARE:
        return np.broadcast_to(_nearness_to_middle(across), effects.shape)
    effects = np.nan_to_num(effects)  # an infinite score, which the margin loss allows, gives infinite effects
    squares = np.pad(np.square(effects).mean(axis=2), 1, mode="edge")
    around = np.sqrt(sliding_window_view(squares, (3, 3)).mean(axis=(2, 3)))[:, :, None]
    return _expected_gains(effects / 4, around / 2)


@lru_cache(maxsize=_ENOUGH_TO_COMPARE)
def _nearness_to_middle(across: int) -> NDArray[np.float64]:
    """Return minus the squared distance of each block to the middle of the image."""
    from_middle = np.square(2 * np.arange(across) + 1 - across)
    return -np.add.outer(from_middle, from_middle)[:, :, None]


_erfc = np.vectorize(math.erfc, otypes=[float])


def _expected_gains(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expectation of the positive part of normal variables."""
    z = mean / np.where(deviation == 0, 1, deviation)  # where the deviation is 0, so is the mean
    certain: NDArray[np.float64] = mean * _erfc(-z / math.sqrt(2)) / 2
    return certain + deviation * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)

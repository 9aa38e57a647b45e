"""A way to change a corner of the ball block by block, level by level, by one query a block: what Thrift paints with.

What a change of a block brings is known once it was asked for, and it is used twice. Where a block is cut in pieces,
changes nearly add up, so what all but one of them leave of it is the last one's. And the blocks of a level are cut in
the order of what their pieces promise.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from parsimon.attacks.sketch import MutableCorner
from parsimon.core.grid import Window
from parsimon.core.types import Ask, Reply
from parsimon.setsearch import Mask

_ENOUGH_TO_TELL_PLACES = 8  # blocks along a side, of which a block and those around it are a seventh
MEMORY = 10  # queries, of which the latest count most

# What flipping each part of each block of a level brings, by row, column and part: never a gain. Not a number: not
# known.
Effects = NDArray[np.float64]


class Part(NamedTuple):
    """Pixels that are flipped together, by row, column and channel: all channels, or those in the slice."""

    pixels: Mask
    channels: slice = slice(None)


class Level(NamedTuple):
    """The blocks, so many along a side, and the parts of each that are flipped one by one."""

    across: int
    parts: Sequence[Part]


class BlockRefiner:
    """A way to change the blocks of a corner, from the whole image down, each level once.

    Attributes:
        known: What flipping the parts of each block brings, on the last level that all blocks were asked for of.
        worth: What a query has gained lately.
    """

    def __init__(self, levels: Sequence[Level], extent: tuple[int, int], *, deduce: bool, rank: bool) -> None:
        """Each level cuts what the one before flips: its blocks, its parts in as many consecutive ones each, or both.

        `extent`: the image's rows and columns; `deduce` and `rank` are Thrift's.
        """
        self._levels, self._extent, self._deduce, self._rank = levels, extent, deduce, rank
        self.worth = 0.0
        self.restart()

    def restart(self) -> None:
        """Forget what it knows, and begin with the whole image."""
        self._ahead = [*reversed(self._levels)]
        self._order, self._left = np.empty(0, np.intp), 0  # the blocks to cut, from the last, and how many are left
        self.known = self._finer = np.full((1, 1, 1), np.nan)

    @property
    def done(self) -> bool:
        """Whether there is no finer level."""
        return not (self._left or self._ahead)

    def level(self, best: MutableCorner, rng: np.random.Generator) -> Generator[Ask, Reply, None]:
        """Change all blocks of the next level, and keep what gains."""
        yield from self.cut(best, rng)
        while self._left:
            yield from self.cut(best, rng)

    def cut(self, best: MutableCorner, rng: np.random.Generator) -> Generator[Ask, Reply, list[Window]]:
        """Change the pieces of the next block, one after another, and keep what gains: the windows where it did."""
        if not self._left:
            self._enter(self._ahead.pop(), rng)
        known, finer = self.known, self._finer
        self._left -= 1
        cell, whole = divmod(self._order.item(self._left), known.shape[2])
        row, column = divmod(cell, len(known))
        parts = finer.shape[2] // known.shape[2]  # of the finer level, that one of this level is cut in
        pieces = [
            (down, along, part, rows, columns)
            for part in range(whole * parts, whole * parts + parts)
            for down, along, rows, columns in _quarters(row, column, len(known), len(finer), self._extent)
            if self._occupied.item(down, along, part)
        ]
        unasked = known.item(row, column, whole)  # what those of the pieces bring together that were not asked for
        kept: list[Window] = []
        for asked, number in enumerate(rng.permutation(len(pieces)).tolist(), 1):
            down, along, part, rows, columns = pieces[number]
            if asked == len(pieces) and unasked <= 0 and (self._deduce or asked == 1):
                finer[down, along, part] = unasked
                continue
            pixels, channels = self._parts[part]
            window = rows, columns, channels
            gain = yield from best.flip(window, pixels[rows, columns])
            if gain > 0:
                kept.append(window)
            self.worth += (max(gain, 0.0) - self.worth) / MEMORY
            finer[down, along, part] = -abs(gain)  # a change that was kept can be taken back
            unasked -= gain
        if not self._left:
            self.known = finer
        return kept

    def forget(self, windows: list[Window]) -> None:
        """Another brush has changed these windows, so what blocks within them bring is not known any more."""
        height, width = self._extent
        for rows, columns, _ in windows:
            for effects in (self.known, self._finer):
                across = len(effects)
                effects[_within(rows, across, height), _within(columns, across, width)] = np.nan

    def _enter(self, level: Level, rng: np.random.Generator) -> None:
        order = rng.permutation(self.known.size)
        if self._rank:
            order = order[_promise(self.known).reshape(-1)[order].argsort(kind="stable")[::-1]]
        self._order, self._left = order[::-1], len(order)
        self._parts, self._occupied = level.parts, _has_pixels(level, self._extent)
        self._finer = np.zeros((level.across, level.across, len(level.parts)))


def _has_pixels(level: Level, extent: tuple[int, int]) -> Mask:
    """Whether blocks, by row and column, have pixels of each part."""
    rows, columns = (np.arange(level.across) * side // level.across for side in extent)
    by_channel = np.concatenate([part.pixels for part in level.parts], axis=2)
    by_block = np.logical_or.reduceat(np.logical_or.reduceat(by_channel, rows, axis=0), columns, axis=1)
    channels = [part.pixels.shape[2] for part in level.parts]
    return np.logical_or.reduceat(by_block, np.cumsum(channels) - channels, axis=2)


def _promise(effects: Effects) -> Effects:
    """How much is to be gained by cutting each block, compared to the others, by what changing them brings.

    A quarter brings a quarter of what its block does, give or take half of what a block thereabouts brings: so much
    would be left to each if pixels had nothing to do with each other. It is a gain where that is above nothing. A part
    that a block has no pixels of brings nothing, so plain areas promise less. Of few blocks, those around one are most
    of the image and tell nothing of its place; a picture shows its object in the middle.
    """
    across = len(effects)
    if across < _ENOUGH_TO_TELL_PLACES:
        from_middle = np.square(2 * np.arange(across) + 1 - across)
        return np.broadcast_to(-np.add.outer(from_middle, from_middle)[:, :, None], effects.shape)
    effects = np.nan_to_num(effects)
    around = np.pad(np.square(effects).mean(axis=2), 1, mode="edge")
    near = np.sqrt(sliding_window_view(around, (3, 3)).mean(axis=(2, 3)))[:, :, None]
    return _expected_gains(effects / 4, near / 2)


_erfc = np.vectorize(math.erfc, otypes=[float])


def _expected_gains(mean: Effects, spread: Effects) -> Effects:
    """What is above nothing of normal distributions."""
    times = mean / np.where(spread == 0, 1, spread)  # nothing where all around does nothing, and so does this
    inside: Effects = mean * _erfc(-times / math.sqrt(2)) / 2
    return inside + spread * np.exp(-times * times / 2) / math.sqrt(2 * math.pi)


def _within(pixels: slice, across: int, side: int) -> slice:
    """The blocks, of so many along a side, that have no pixels but these."""
    return slice(-(-pixels.start * across // side), pixels.stop * across // side)


@lru_cache(maxsize=2**16)  # as many as searches that run side by side meet
def _quarters(
    row: int, column: int, across: int, finer: int, sides: tuple[int, int]
) -> list[tuple[int, int, slice, slice]]:
    """The blocks that one of a level is cut in, by row and column on the finer level, and the pixels that each covers.

    Where a side is no power of two, some blocks of the last levels cover no pixel; they are left out.
    """
    cut = finer // across
    downs, alongs = (
        [
            (place, slice(place * side // finer, (place + 1) * side // finer))
            for place in range(at * cut, at * cut + cut)
        ]
        for at, side in zip((row, column), sides, strict=True)
    )
    return [
        (down, along, rows, columns)
        for down, rows in downs
        for along, columns in alongs
        if rows.start < rows.stop and columns.start < columns.stop
    ]

"""Thrift: this project's successor of the search of Moon, An and Song (ICML 2019), within its idea.

Only corners of the ball are asked for, they are changed block by block, and the blocks shrink level by level. Five
things differ, each for the sake of fewer queries (docs/decisions/0007-thrift.md has the measurements):

- the first corner is the best of a few. A fine checkerboard often fools a network of standard training at once, and is
  a better place to search from, as stripes can be; adversarially trained networks hardly notice either;
- a block is flipped by one query and kept if the loss has risen: no block is asked about to rank it;
- flips nearly add up. What a block is known to bring is what its four quarters bring together, so that of the last
  quarter it is known without a query, and it is asked about only where that promises a gain;
- of each level those blocks are cut first whose quarters are expected to gain most, by what the block itself and those
  around it are known to bring; of large blocks, those in the middle of the image, where a picture shows its object;
- where a checkerboard is the start and works by its brightness, as it does on many standard networks, the channels of a
  block are flipped together.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from parsimon.attacks.sketch import Sketch
from parsimon.errors import InputError
from parsimon.protocol import Ask, Attack, Reply, Scene, Search
from parsimon.threat import Loss

Start = Literal["best", "uniform", "pattern"]

_ENOUGH = 3  # blocks whose effects, added up, are not small by chance: three channels, or quarters of fewer
_ENOUGH_TO_TELL_PLACES = 8  # blocks along a side, of which a block and those around it are a seventh
_SQUARES_ACROSS = 112  # of the checkerboard: squares of a pixel for CIFAR-10, and of two for ImageNet's 224 and 299


# What flipping each block of a level brings, by row, column and channel, or of all channels at once: never a gain. Not
# a number: not known.
Effects = NDArray[np.float64]


@dataclass(frozen=True)
class Thrift(Attack):
    """It has nothing to tune. Its settings switch its parts off, to measure what each is worth.

    It climbs the margin loss to leave a class, and cross-entropy to reach one.

    Attributes:
        start: Where the search begins: `best` by a query each, `uniform` (-eps everywhere) or `pattern` (the
            checkerboard or stripes).
        deduce: Whether the last quarter of a block is asked about only where the other three leave it a gain.
        rank: Whether the blocks of a level are cut in the order of what their quarters promise, not in random order.
        grey: Whether the channels of a block are flipped together where the search begins at a checkerboard that works
            by its brightness.
    """

    start: Start = "best"
    deduce: bool = True
    rank: bool = True
    grey: bool = True

    def __post_init__(self) -> None:
        if self.start not in get_args(Start):
            raise InputError(f"start must be one of {', '.join(get_args(Start))}; got {self.start!r}")

    def own_loss(self, targeted: bool) -> Loss:
        return "cross-entropy" if targeted else "margin"

    def search(self, scene: Scene, rng: np.random.Generator) -> Search:
        channels, height, width = scene.shape
        levels = _levels(max(height, width))
        best, known = yield from self._first((height, width, channels), levels, rng)
        while True:  # until a pass over all levels, with the channels apart, has raised nothing
            before, apart = best.loss, known.shape[2] == channels
            for across in levels:
                if across > len(known):  # what the start has asked for is not asked for again
                    known = yield from self._level(best, across, known, rng)
            known = yield from self._level(best, 1, _unknown(channels), rng)
            if apart and best.loss == before:
                return

    def _first(
        self, shape: tuple[int, int, int], levels: list[int], rng: np.random.Generator
    ) -> Generator[Ask, Reply, tuple[Sketch, Effects]]:
        """The corner to begin with, its channels flipped where that helps, and what a flip of each of them brings.

        With fewer than three channels, their quarters too. The channels are one where they had better stay together.
        """
        height, width, channels = shape
        row, column = np.ogrid[:height, :width]
        side = max(1, min(height, width) // _SQUARES_ACROSS)
        squares = ((row // side + column // side) % 2 == 0)[:, :, None]
        lines = rng.random((1, width, channels)) < 0.5  # Square's
        checkerboard, stripes = (Sketch(np.broadcast_to(pattern, shape)) for pattern in (squares, lines))
        patterns: list[Sketch] = []
        plain = -math.inf
        if self.start != "uniform":  # the patterns first: where they work, they are all that is asked
            patterns = [checkerboard, stripes]
            for each in patterns:
                yield from each.ask()
        if self.start != "pattern":
            best = Sketch(np.zeros(shape, bool))
            yield from best.ask()
            known = _unknown(channels)
            for across in levels:
                known = yield from self._level(best, across, known, rng)
                if known.size >= _ENOUGH:
                    break
            # Were flips to add up, the corners made of these blocks would lie between the best and so much below it. A
            # pattern has to lie further above them than they are apart: on standard networks most do by far, and on
            # adversarially trained ones hardly any does.
            plain, apart = best.loss, -float(known.sum())
            patterns = [each for each in patterns if each.loss > best.loss + apart]
            if not patterns:
                return best, known
        best = max(patterns, key=lambda pattern: pattern.loss)
        brought = best.loss - plain
        known = yield from self._level(best, 1, _unknown(channels), rng)
        # Were brightness all that counts in a checkerboard, flipping one of three channels would take away two thirds
        # of what it has brought, and to flip each of them twice as much as it has.
        if self.grey and best is checkerboard and -known.sum() > 2 * brought:
            known = _unknown(1)
        return best, known

    def _level(
        self, best: Sketch, across: int, parents: Effects, rng: np.random.Generator
    ) -> Generator[Ask, Reply, Effects]:
        """Flip each block of a level, of which there are so many along a side; the quarters of a parent together."""
        height, width, channels = best.cells
        rows, columns = ([part * side // across for part in range(across + 1)] for side in (height, width))
        depth = channels // parents.shape[2]  # of a block: one channel, or all of them
        effects = np.zeros((across, across, parents.shape[2]))
        order = rng.permutation(list(np.ndindex(parents.shape)))
        if self.rank:
            order = order[_promise(parents)[tuple(order.T)].argsort(kind="stable")[::-1]]
        for row, column, colour in order.tolist():
            quarters = _quarters(row, column, rows, columns, across // len(parents))
            left = parents[row, column, colour]  # what those of them bring together that have not been asked for
            for asked, number in enumerate(rng.permutation(len(quarters)).tolist()):
                down, along = quarters[number]
                last, uncut = asked == len(quarters) - 1, len(quarters) == 1
                if last and left <= 0 and (self.deduce or uncut):
                    effects[down, along, colour] = left
                    continue
                window = (
                    slice(rows[down], rows[down + 1]),
                    slice(columns[along], columns[along + 1]),
                    slice(colour * depth, (colour + 1) * depth),
                )
                gain = yield from best.repaint(window, ~best.signs[window])
                left -= gain
                effects[down, along, colour] = -abs(gain)  # a flip that was kept can be taken back
        return effects


def _promise(effects: Effects) -> Effects:
    """How much is to be gained by cutting each block, compared to the others, by what flipping them brings.

    A quarter brings a quarter of what its block does, give or take half of what a block thereabouts brings: so much
    would be left to each if pixels had nothing to do with each other. It is a gain where that is above nothing. Of few
    blocks, those around one are most of the image and tell nothing of its place; a picture shows its object in the
    middle.
    """
    across = len(effects)
    if across < _ENOUGH_TO_TELL_PLACES:
        from_middle = np.square(2 * np.arange(across) + 1 - across)
        return np.broadcast_to(-np.add.outer(from_middle, from_middle)[:, :, None], effects.shape)
    around = np.pad(np.square(effects).mean(axis=2), 1, mode="edge")
    near = np.sqrt(sliding_window_view(around, (3, 3)).mean(axis=(2, 3)))[:, :, None]
    gains: Effects = _expected_gains(effects / 4, near / 2)
    return gains


def _expected_gain(mean: float, spread: float) -> float:
    """What is above nothing of a normal distribution."""
    if spread == 0:  # all around does nothing, and so does this
        return 0.0
    times = mean / spread
    return mean * math.erfc(-times / math.sqrt(2)) / 2 + spread * math.exp(-times * times / 2) / math.sqrt(2 * math.pi)


_expected_gains = np.vectorize(_expected_gain, otypes=[float])


def _unknown(channels: int) -> Effects:
    """What flipping the whole of each channel, or of all as one, brings, before it has been asked for."""
    return np.full((1, 1, channels), np.nan)


def _levels(side: int) -> list[int]:
    """Blocks along a side, level after level: the whole, its halves, down to pixels."""
    return [2**level for level in range((side - 1).bit_length() + 1)]


def _quarters(row: int, column: int, rows: list[int], columns: list[int], cut: int) -> list[tuple[int, int]]:
    """The blocks of a level that one of the level before is cut in, by row and column.

    Where a side is no power of two, some blocks of the last levels cover no pixel; they are left out.
    """
    return [
        (down, along)
        for down in range(row * cut, row * cut + cut)
        for along in range(column * cut, column * cut + cut)
        if rows[down] < rows[down + 1] and columns[along] < columns[along + 1]
    ]

"""Thrift: this project's successor of the search of Moon, An and Song (ICML 2019), within its idea.

Only corners of the ball are asked for, they are changed block by block, and the blocks shrink level by level. Four
things differ, each for the sake of fewer queries (docs/decisions/0007-thrift.md has the measurements):

- the first corner is the best of a few. A fine checkerboard often fools a network of standard training at once, and is
  a better place to search from, as stripes can be; adversarially trained networks hardly notice either;
- a block is flipped by one query and kept if the loss has risen: no block is asked about to rank it;
- of each level the blocks in the middle of the image are flipped first, since that is where a picture shows its object;
- flips nearly add up. What a block is known to bring is what its four quarters bring together, so that of the last
  quarter it is known without a query, and it is asked about only where that promises a gain.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from parsimon.blocks import Grid
from parsimon.errors import InputError
from parsimon.protocol import Ask, Attack, Corners, Reply, Scene, Search
from parsimon.setsearch import Mask
from parsimon.threat import Loss

Start = Literal["best", "uniform", "pattern"]

_ENOUGH = 3  # blocks whose effects, added up, are not small by chance: three channels, or quarters of fewer
_SQUARES_ACROSS = 112  # of the checkerboard: squares of a pixel for CIFAR-10, and of two for ImageNet's 224 and 299


# What flipping each block of a level brings, by row, column and channel: never a gain. Not a number: not known.
Effects = NDArray[np.float64]


class _Tried(NamedTuple):
    """A corner, by row, column and channel, and its loss."""

    corner: Mask
    loss: float


@dataclass(frozen=True)
class Thrift(Attack):
    """It has nothing to tune. Its settings switch its parts off, to measure what each is worth.

    It climbs the margin loss to leave a class, and cross-entropy to reach one.

    Attributes:
        start: Where the search begins: `best` by a query each, `uniform` (-eps everywhere) or `pattern` (the
            checkerboard or stripes).
        deduce: Whether the last quarter of a block is asked about only where the other three leave it a gain.
        centre: Whether the blocks of a level are taken from the middle of the image outwards, not in random order.
    """

    start: Start = "best"
    deduce: bool = True
    centre: bool = True

    def __post_init__(self) -> None:
        if self.start not in get_args(Start):
            raise InputError(f"start must be one of {', '.join(get_args(Start))}; got {self.start!r}")

    def own_loss(self, targeted: bool) -> Loss:
        return "cross-entropy" if targeted else "margin"

    def search(self, scene: Scene, rng: np.random.Generator) -> Search:
        _, height, width = scene.shape
        grid = Grid(scene.shape, (height, width), 1)  # a pixel a block; sets of them by row, column, channel
        levels = _levels(max(height, width))
        best, known = yield from self._first(grid, levels, rng)
        while True:  # until a pass over all levels has raised nothing
            before = best.loss
            for across in levels:
                if across > len(known):  # what the start has asked for is not asked for again
                    best, known = yield from self._level(grid, across, best, known, rng)
            best, known = yield from self._level(grid, 1, best, _unknown(grid), rng)
            if best.loss == before:
                return

    def _first(
        self, grid: Grid, levels: list[int], rng: np.random.Generator
    ) -> Generator[Ask, Reply, tuple[_Tried, Effects]]:
        """The corner to begin with, its channels flipped where that helps, and what a flip of each of them brings.

        With fewer than three channels, their quarters too.
        """
        height, width, channels = grid.cells
        row, column = np.ogrid[:height, :width]
        side = max(1, min(height, width) // _SQUARES_ACROSS)
        checkerboard = ((row // side + column // side) % 2 == 0)[:, :, None]
        stripes = rng.random((1, width, channels)) < 0.5  # Square's
        patterns: list[_Tried] = []
        if self.start != "uniform":  # the patterns first: where they work, they are all that is asked
            for pattern in (checkerboard, stripes):
                patterns += [(yield from _try(grid, np.broadcast_to(pattern, grid.cells)))]
        if self.start != "pattern":
            best = yield from _try(grid, np.zeros(grid.cells, bool))
            known = _unknown(grid)
            for across in levels:
                best, known = yield from self._level(grid, across, best, known, rng)
                if known.size >= _ENOUGH:
                    break
            # Were flips to add up, the corners made of these blocks would lie between the best and so much below it. A
            # pattern has to lie further above their middle than they are apart: on standard networks most do by far,
            # and on adversarially trained ones hardly any does.
            apart = -float(known.sum())
            patterns = [each for each in patterns if each.loss > best.loss + apart / 2]
            if not patterns:
                return best, known
        best = max(patterns, key=lambda tried: tried.loss)
        return (yield from self._level(grid, 1, best, _unknown(grid), rng))

    def _level(
        self, grid: Grid, across: int, best: _Tried, parents: Effects, rng: np.random.Generator
    ) -> Generator[Ask, Reply, tuple[_Tried, Effects]]:
        """Flip each block of a level, of which there are so many along a side; the quarters of a parent together."""
        height, width, channels = grid.cells
        rows, columns = ([part * side // across for part in range(across + 1)] for side in (height, width))
        effects = np.zeros((across, across, channels))
        order = rng.permutation(list(np.ndindex(parents.shape)))
        if self.centre:
            from_centre = np.square(2 * order[:, :2] + 1 - len(parents)).sum(axis=1)
            order = order[from_centre.argsort(kind="stable")]
        for row, column, channel in order.tolist():
            quarters = _quarters(row, column, rows, columns, across // len(parents))
            left = parents[row, column, channel]  # what those of them bring together that have not been asked for
            for asked, number in enumerate(rng.permutation(len(quarters)).tolist()):
                down, along = quarters[number]
                last, uncut = asked == len(quarters) - 1, len(quarters) == 1
                if last and left <= 0 and (self.deduce or uncut):
                    effects[down, along, channel] = left
                    continue
                corner = best.corner.copy()
                corner[rows[down] : rows[down + 1], columns[along] : columns[along + 1], channel] ^= True
                tried = yield from _try(grid, corner)
                gain = tried.loss - best.loss
                left -= gain
                effects[down, along, channel] = -abs(gain)  # a flip that was kept can be taken back
                if gain > 0:
                    best = tried
        return best, effects


def _try(grid: Grid, corner: Mask) -> Generator[Ask, Reply, _Tried]:
    reply = yield Ask(Corners(grid, corner.reshape(-1)))
    return _Tried(corner, float(reply.loss[0]))


def _unknown(grid: Grid) -> Effects:
    """What flipping the whole of each channel brings, before it has been asked for."""
    return np.full((1, 1, grid.cells[-1]), np.nan)


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

"""Thrift: this project's successor of the search of Moon, An and Song (ICML 2019), within its idea.

Only corners of the ball are asked for, they are changed block by block, and the blocks shrink level by level. Three
things differ, each for the sake of fewer queries (docs/decisions/0007-thrift.md has the measurements):

- the first corner is the best of a few. Two checkerboards, of squares of 2 and of 1, often fool a network of standard
  training at once, and are a better place to search from; adversarially trained networks hardly notice them;
- a block is flipped by one query and kept if the loss has risen: no block is asked about to rank it;
- flips nearly add up. What a block is known to bring is what its four quarters bring together, so that of the last
  quarter it is known without a query, and it is asked about only where that promises a gain.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from parsimon.blocks import Grid
from parsimon.errors import InputError
from parsimon.protocol import Ask, Attack, Corners, Reply, Scene, Search
from parsimon.setsearch import Mask
from parsimon.threat import Loss

Start = Literal["best", "uniform", "checkerboard"]

# A checkerboard is searched from where it lies more than so many times as far above the middle of the two uniform
# corners as these are apart. Of standard networks nearly all images are far above, of adversarially trained ones below.
_FAR_ABOVE = 2


@dataclass(frozen=True)
class Thrift(Attack):
    """It has nothing to tune. Its settings switch its parts off, to measure what each is worth.

    It climbs the margin loss to leave a class, and cross-entropy to reach one.

    Attributes:
        start: Where the search begins: `best` by a query each, `uniform` (-eps or +eps everywhere) or `checkerboard`
            (the better of both sizes).
        deduce: Whether the last quarter of a block is asked about only where the other three leave it a gain.
    """

    start: Start = "best"
    deduce: bool = True

    def __post_init__(self) -> None:
        if self.start not in get_args(Start):
            raise InputError(f"start must be one of {', '.join(get_args(Start))}; got {self.start!r}")

    def own_loss(self, targeted: bool) -> Loss:
        return "cross-entropy" if targeted else "margin"

    def search(self, scene: Scene, rng: np.random.Generator) -> Search:
        channels, height, width = scene.shape
        grid = Grid(scene.shape, (height, width), 1)  # a pixel a block; sets of them by row, column, channel
        best, highest = yield from self._first(grid)
        while True:  # until a pass over all levels has raised nothing
            before = highest
            known = np.full((1, 1, channels), np.nan)  # what flipping each block of a level brings; never a gain
            for across in _levels(max(height, width)):
                rows, columns = (np.arange(across + 1) * side // across for side in (height, width))
                parents, known = known, np.zeros((across, across, channels))
                for number in rng.permutation(parents.size):
                    row, column, channel = np.unravel_index(number, parents.shape)
                    left = parents[row, column, channel]  # what those of its quarters bring that are still to be asked
                    quarters = _quarters(row, column, rows, columns, known.shape[0] // parents.shape[0])
                    for waiting, (down, along) in zip(
                        range(len(quarters))[::-1], rng.permutation(quarters), strict=True
                    ):
                        same = len(quarters) == 1  # as the block itself: nothing is left to be cut
                        if not waiting and left <= 0 and (self.deduce or same):
                            known[down, along, channel] = left
                            continue
                        candidate = best.copy()
                        candidate[rows[down] : rows[down + 1], columns[along] : columns[along + 1], channel] ^= True
                        loss = (yield _asked(grid, candidate)).loss[0]
                        gain = loss - highest
                        left -= gain
                        known[down, along, channel] = -abs(gain)  # one that was kept can be taken back
                        if gain > 0:
                            best, highest = candidate, loss
            if highest == before:
                return

    def _first(self, grid: Grid) -> Generator[Ask, Reply, tuple[Mask, float]]:
        """The corner to begin with, by row, column and channel, and its loss."""
        height, width, channels = grid.cells
        row, column = np.ogrid[:height, :width]
        tried: list[tuple[float, Mask]] = []
        # The checkerboards first: where they work, they are all that is asked.
        for side in (2, 1):
            squares = (row // side + column // side) % 2 == 0
            tried.append((0.0, np.repeat(squares[:, :, None], channels, axis=2)))
        tried += [(0.0, np.full((height, width, channels), high)) for high in (False, True)]
        tried = {"best": tried, "uniform": tried[2:], "checkerboard": tried[:2]}[self.start]
        for number, (_, corner) in enumerate(tried):
            tried[number] = float((yield _asked(grid, corner)).loss[0]), corner
        patterns, uniform = tried[:-2], tried[-2:]
        loss, corner = max(uniform, key=lambda each: each[0])
        if patterns:
            (low, _), (high, _) = uniform
            best_loss, pattern = max(patterns, key=lambda each: each[0])
            if best_loss - (low + high) / 2 > _FAR_ABOVE * abs(high - low):
                return pattern, best_loss
        return corner, loss


def _asked(grid: Grid, corner: Mask) -> Ask:
    return Ask(Corners(grid, corner.reshape(-1)))


def _levels(side: int) -> list[int]:
    """Blocks along a side, level after level: the whole, its halves, down to pixels."""
    return [2**level for level in range((side - 1).bit_length() + 1)]


def _quarters(
    row: np.intp, column: np.intp, rows: NDArray[np.intp], columns: NDArray[np.intp], cut: int
) -> list[tuple[int, int]]:
    """The blocks of a level that one of the level before is cut in, by row and column.

    Where a side is no power of two, some blocks of the last levels cover no pixel; they are left out.
    """
    return [
        (down, along)
        for down in range(row * cut, row * cut + cut)
        for along in range(column * cut, column * cut + cut)
        if rows[down] < rows[down + 1] and columns[along] < columns[along + 1]
    ]

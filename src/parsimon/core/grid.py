"""Grids of blocks over an image: which pixels a block covers, and how blocks split in four.

A grid lies over a noise image of `noise` rows and columns, cut in blocks of `block` x `block` x 1 channel. The noise
image is stretched to the image by nearest neighbour (in the paper, 256 x 256 to 299 x 299). Blocks are numbered by row,
then column, then channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError
from parsimon.setsearch import Mask, zobrist_words

PixelIndex = NDArray[np.intp]
Window = tuple[slice, slice, slice]  # rows, columns and channels of an image


@dataclass(frozen=True)
class Grid:
    """Blocks of `block` noise pixels a side, one channel each, over an image of `shape` (channels, rows, columns)."""

    shape: tuple[int, int, int]
    noise: tuple[int, int]
    block: int

    @property
    def cells(self) -> tuple[int, int, int]:
        """Blocks by row, column and channel."""
        return self.noise[0] // self.block, self.noise[1] // self.block, self.shape[0]

    @property
    def count(self) -> int:
        return math.prod(self.cells)

    @property
    def of_pixels(self) -> bool:
        """Whether every pixel of the image is a block of its own."""
        return self.block == 1 and self.noise == self.shape[1:]

    @lru_cache(maxsize=32)  # noqa: B019  (grids are few, and searches compare them by `is`)
    def halved(self) -> Grid:
        """Return the grid of the next level: every block split in four (Algorithm 4)."""
        return replace(self, block=self.block // 2)

    def __hash__(self) -> int:  # in the inner loop of the engine, and faster than the generated one
        return self.block

    def split(self, members: Mask) -> Mask:
        """Return the same set of pixels as a set of blocks of `halved()`."""
        return members.reshape(self.cells).repeat(2, axis=0).repeat(2, axis=1).reshape(-1)

    def stretch(self, members: Mask) -> Mask:
        """Return the pixels (channels, rows, columns) that a set of blocks covers, for one set or several."""
        if self.of_pixels:
            return np.moveaxis(members.reshape(*members.shape[:-1], *self.cells), -1, -3)
        return members.take(self._tables.block_of_pixel, axis=-1).reshape(*members.shape[:-1], *self.shape)

    @lru_cache(maxsize=2**15)  # noqa: B019  (in the inner loop of the engine)
    def window(self, block: int) -> Window:
        """Return the window of the image that a block covers."""
        rows, columns = _edges(self)
        cell, channel = divmod(block, self.shape[0])
        down, along = divmod(cell, len(columns) - 1)
        return slice(rows[down], rows[down + 1]), slice(columns[along], columns[along + 1]), slice(channel, channel + 1)

    def pixels_of(self, blocks: NDArray[np.intp]) -> tuple[PixelIndex, NDArray[np.intp]]:
        """Return the flat pixel numbers that these blocks cover, block after block, and the number per block."""
        tables = self._tables
        lengths = tables.lengths[blocks]
        ends = np.cumsum(lengths)
        skips = tables.starts[blocks] - ends + lengths
        return tables.pixels[np.repeat(skips, lengths) + np.arange(ends[-1])], lengths

    @property
    def words(self) -> list[int]:
        """A word per block for `setsearch.remembering`: equal sets of pixels have one hash on all levels."""
        return _words(self)

    @property
    def _tables(self) -> _Tables:
        return _tables(self)


@dataclass(frozen=True)
class _Tables:
    """The pixels of a grid, sorted by the block that covers them."""

    block_of_pixel: NDArray[np.intp]
    pixels: PixelIndex
    starts: NDArray[np.intp]  # per block, its first position in `pixels`
    lengths: NDArray[np.intp]


@lru_cache(maxsize=32)
def _tables(grid: Grid) -> _Tables:
    channels, height, width = grid.shape
    rows = np.arange(height) * grid.noise[0] // height // grid.block
    columns = np.arange(width) * grid.noise[1] // width // grid.block
    in_channel = rows[:, None] * grid.cells[1] + columns
    block_of_pixel = (in_channel * channels + np.arange(channels)[:, None, None]).reshape(-1)
    lengths = np.bincount(block_of_pixel, minlength=grid.count)
    pixels = np.argsort(block_of_pixel, kind="stable")
    return _Tables(block_of_pixel, pixels, np.cumsum(lengths) - lengths, lengths)


@lru_cache(maxsize=32)
def _edges(grid: Grid) -> tuple[list[int], list[int]]:
    """Return the rows and the columns of the image at which blocks begin, and the end of the last block."""
    height, width = (
        [-(-start * side // noise) for start in range(0, noise + 1, grid.block)]
        for side, noise in zip(grid.shape[1:], grid.noise, strict=True)
    )
    return height, width


@lru_cache(maxsize=32)
def _words(grid: Grid) -> list[int]:
    """Return, per block, the exclusive or of the words of its noise pixels."""
    rows, columns, channels = grid.cells
    fine = zobrist_words(math.prod(grid.noise) * channels)
    blocks = fine.reshape(rows, grid.block, columns, grid.block, channels)
    words: list[int] = np.bitwise_xor.reduce(np.bitwise_xor.reduce(blocks, axis=3), axis=1).reshape(-1).tolist()
    return words


@lru_cache(maxsize=32)
def first_grid(shape: tuple[int, int, int], block: int | None = None, noise: tuple[int, int] | None = None) -> Grid:
    """Return the coarsest grid for an image of this shape.

    By default it has about eight blocks along the shorter side, as in both settings of the paper (4 on 32, 32 on 256).
    The noise image has the size of the image if blocks fit, otherwise the largest power of two below it.
    """
    _, height, width = shape
    if (block is not None and block < 1) or (noise is not None and min(noise) < 1):
        raise InputError(f"block and the sides of noise must be at least 1; got {block} and {noise}")
    if block is None:
        block = 2 ** max(0, round(math.log2(min(noise or (height, width)) / 8)))
    if noise is None:
        noise = _noise_side(height, block), _noise_side(width, block)
    if noise[0] % block or noise[1] % block or noise[0] > height or noise[1] > width:
        raise InputError(
            f"a noise of {noise[0]} x {noise[1]} cannot be cut in blocks of {block} and stretched to an image of "
            f"{height} x {width}: its sides must be multiples of the block and at most the image's"
        )
    return Grid(shape, noise, block)


def _noise_side(side: int, block: int) -> int:
    return side if side % block == 0 else max(block, 2 ** int(math.log2(side)))

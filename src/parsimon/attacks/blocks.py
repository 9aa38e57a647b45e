"""Blocks, sides and textures of an image; Thrift and Haggle share them. Arrays are (rows, columns, channels)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Image
from parsimon.setsearch import Mask

_LINES_ACROSS = 96  # of a fine pattern, about: lines of one pixel at 32 x 32, of two at 224 x 224, of four at 299 x 299


@lru_cache(maxsize=32)  # shared by all images of a shape
def fine_patterns(height: int, width: int) -> tuple[int, Mask, Mask, Mask]:
    """Return the thickness of fine lines, and every other row, every other column, and their checkerboard."""
    thickness = 2 ** max(0, round(math.log2(min(height, width) / _LINES_ACROSS)))
    rows, columns = np.indices((height, width, 1))[:2] // thickness % 2 == 0
    return thickness, rows, columns, rows == columns


def lighter_pixels(image: Image) -> Mask:
    """Return, by row, column and channel, which pixels are lighter than the mean of the window around them.

    The window extends a quarter of the image's side each way. Integers, so that rounding differs on no machine.
    """
    levels = np.rint(image * 255).astype(np.int64)
    channels, height, width = levels.shape
    sums = np.zeros((channels, height + 1, width + 1), np.int64)  # of all pixels above and to the left
    np.cumsum(np.cumsum(levels, axis=1), axis=2, out=sums[:, 1:, 1:])
    (top, bottom), (left, right) = _window_edges(height), _window_edges(width)
    bands = sums[:, bottom] - sums[:, top]
    window_sizes = np.multiply.outer(bottom - top, right - left)
    light: Mask = levels * window_sizes > bands[:, :, right] - bands[:, :, left]
    return light.transpose(1, 2, 0)


def _window_edges(side: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where the window around each pixel along a side begins and ends."""
    centre = np.arange(side)
    return np.maximum(centre - side // 4, 0), np.minimum(centre + side // 4 + 1, side)


class PixelGroup(NamedTuple):
    """Pixels that are flipped together, by row, column and channel, in all channels or in a slice of them."""

    pixels: Mask
    channels: slice = slice(None)


class Level(NamedTuple):
    """Blocks, `across` of them along each side, and the groups of pixels that are flipped in each of them."""

    across: int
    groups: Sequence[PixelGroup]


def texture_levels(levels_across: Iterable[int], pixels: Mask) -> list[Level]:
    return [Level(across, [PixelGroup(pixels)]) for across in levels_across]


def plain_levels(light: Mask, levels_across: Iterable[int]) -> list[Level]:
    """Return levels that flip lighter and darker pixels: first of all channels together, then of each channel.

    If all pixels are on one side, the first level is left out.
    """
    sides = [side for side in (light, ~light) if side.any()]
    together = [Level(1, [PixelGroup(side) for side in sides])] if len(sides) > 1 else []
    channels = [slice(channel, channel + 1) for channel in range(light.shape[2])]
    by_channel = [PixelGroup(side[:, :, channel], channel) for side in sides for channel in channels]
    return [*together, *(Level(across, by_channel) for across in levels_across)]


def levels_across(height: int, width: int) -> list[int]:
    """Return the number of blocks along a side on each level: from the whole image to single pixels."""
    return [2**level for level in range((max(height, width) - 1).bit_length() + 1)]

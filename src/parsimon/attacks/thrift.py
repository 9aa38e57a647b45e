"""Thrift: this project's successor of the search of Moon, An and Song (ICML 2019), within its idea.

Only corners of the ball are asked for, they are changed block by block, and the blocks shrink level by level. Five
things differ, each for the sake of fewer queries (docs/decisions/0007-thrift.md has the measurements):

- a block is changed by one query, and the change is kept if the loss has risen: no block is asked about to rank it;
- a coloured picture is looked at. The search begins where it has less contrast, lighter pixels darker and darker ones
  lighter, and flips lighter and darker pixels of a block one after the other: a network has learnt what differs from
  what is around it;
- where fine textures count, as they do for networks of standard training, blocks are not only flipped but textured:
  every other line of rows or of columns is flipped, or a checkerboard. The kind of change that has gained most of late
  is asked for next. Whether textures count is told by the first queries; for adversarially trained networks they hardly
  do;
- changes nearly add up. What a block is known to bring is what its four quarters bring together, so that of the last
  quarter it is known without a query, and it is asked about only where that promises a gain;
- of each level those blocks are cut first whose quarters are expected to gain most, by what the block itself and those
  around it are known to bring; of large blocks, those in the middle of the image, where a picture shows its object.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from parsimon.attacks.brush import MEMORY, BlockRefiner, Level, Part
from parsimon.attacks.sketch import MutableCorner
from parsimon.core.threat import Loss
from parsimon.core.types import Ask, Attack, Image, ImageContext, Reply, Search
from parsimon.errors import check_flag
from parsimon.setsearch import Mask

_ENOUGH = 2  # blocks whose effects, added up, are not small by chance: lighter and darker pixels, channels, or quarters
_LINES_ACROSS = 96  # of a texture, about: lines of a pixel for CIFAR-10, and for ImageNet of two at 224, four at 299


@dataclass(frozen=True)
class Thrift(Attack):
    """It has nothing to tune. Its settings switch its parts off, to measure what each is worth.

    It climbs the margin loss to leave a class, and cross-entropy to reach one.

    Attributes:
        contrast: Whether lighter and darker pixels of coloured pictures are told apart, or it begins with all at -eps.
        texture: Whether blocks are textured where textures count, or only ever flipped.
        deduce: Whether the last quarter of a block is asked about only where the other three leave it a gain.
        rank: Whether the blocks of a level are cut in the order of what their quarters promise, not in random order.
    """

    contrast: bool = True
    texture: bool = True
    deduce: bool = True
    rank: bool = True

    def __post_init__(self) -> None:
        for name in ("contrast", "texture", "deduce", "rank"):
            check_flag(name, getattr(self, name))

    def own_loss(self, targeted: bool) -> Loss:
        return "cross-entropy" if targeted else "margin"

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        best, brushes = yield from self._first(context, rng)
        while True:  # until a pass over all levels has raised nothing
            before = best.loss
            while at_work := [brush for brush in brushes if not brush.done]:
                brush = max(at_work, key=lambda each: (each.worth, -len(each.known)))  # of equals, the coarser
                changed = yield from brush.cut(best, rng)
                for other in brushes:
                    if other is not brush:
                        other.forget(changed)
            if best.loss == before:
                return
            for brush in brushes:
                brush.restart()

    def _first(
        self, context: ImageContext, rng: np.random.Generator
    ) -> Generator[Ask, Reply, tuple[MutableCorner, list[BlockRefiner]]]:
        """The corner to begin with, and the ways to change it."""
        channels, height, width = context.shape
        thick, rows, columns, checkerboard = _lines(height, width)
        everywhere = np.ones((height, width, channels), bool)
        across = [2**level for level in range((max(height, width) - 1).bit_length() + 1)]
        coloured = channels >= 3  # of such pictures a pattern alone may fool half, but of grey ones few
        light = lighter(context.image) if self.contrast and coloured else everywhere
        new_brush = partial(BlockRefiner, extent=(height, width), deduce=self.deduce, rank=self.rank)
        plain = new_brush(_plain_levels([side for side in (light, ~light) if side.any()], across))
        lined, squared, best = (MutableCorner(signs & everywhere) for signs in (columns, checkerboard, ~light))
        patterns = [lined, squared] if self.texture else []
        if coloured:
            yield from _asked(patterns)
        yield from best.ask()
        while plain.known.size < _ENOUGH and not plain.done:
            yield from plain.level(best, rng)
        if not coloured:
            yield from _asked(patterns)
        # Were changes to add up, the corners made of these blocks would lie between the best of them and so much below
        # it, and the checkerboard, which has either sign at half of the pixels, in the middle. For adversarially
        # trained networks it nearly does; for others it is often further up or down than any of these corners.
        apart = -float(plain.known.sum())
        if not patterns or -apart <= squared.loss - best.loss <= 0:
            return best, [plain]
        of_two_lines = [each for each in across if each * 2 * thick <= min(height, width)]
        textures = [[Level(each, [Part(pixels)]) for each in of_two_lines] for pixels in (rows, columns, checkerboard)]
        brushes = [*map(new_brush, textures), plain]
        if channels > 1:
            brushes.insert(0, new_brush([Level(each, [Part(everywhere)]) for each in across]))
        for each in brushes:  # as if one of the latest queries of each had brought what a block does
            each.worth = apart / plain.known.size / MEMORY
        pattern = max(patterns, key=lambda each: each.loss)
        if pattern.loss - best.loss > apart:
            plain.restart()
            return pattern, brushes
        return best, brushes


@lru_cache(maxsize=32)
def _lines(height: int, width: int) -> tuple[int, Mask, Mask, Mask]:
    """How thick the lines of a texture are, and every other line of rows, of columns, and a checkerboard of both."""
    thick = 2 ** max(0, round(math.log2(min(height, width) / _LINES_ACROSS)))
    rows, columns = np.indices((height, width, 1))[:2] // thick % 2 == 0
    return thick, rows, columns, rows == columns


def _plain_levels(sides: list[Mask], across: list[int]) -> list[Level]:
    """All channels of either side, then each by itself in ever smaller blocks; of one side alone, each at once."""
    together = [Level(1, [Part(side) for side in sides])] if len(sides) > 1 else []
    channels = [slice(channel, channel + 1) for channel in range(sides[0].shape[2])]
    apart = [Part(side[:, :, channel], channel) for side in sides for channel in channels]
    return [*together, *(Level(each, apart) for each in across)]


def _asked(corners: list[MutableCorner]) -> Generator[Ask, Reply, None]:
    for corner in corners:
        yield from corner.ask()


def lighter(image: Image) -> Mask:
    """By row, column and channel, whether a pixel is lighter than the mean of those around it, half of a side across.

    In whole numbers, so that no machine rounds a pixel to the other side.
    """
    levels = np.rint(image * 255).astype(np.int64)
    channels, height, width = levels.shape
    sums = np.zeros((channels, height + 1, width + 1), np.int64)  # of all pixels above and to the left
    np.cumsum(np.cumsum(levels, axis=1), axis=2, out=sums[:, 1:, 1:])
    (top, bottom), (left, right) = _around(height), _around(width)
    bands = sums[:, bottom] - sums[:, top]
    pixels = np.multiply.outer(bottom - top, right - left)
    light: Mask = levels * pixels > bands[:, :, right] - bands[:, :, left]
    return light.transpose(1, 2, 0)


def _around(side: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the window around each pixel along a side begins and ends."""
    middle = np.arange(side)
    return np.maximum(middle - side // 4, 0), np.minimum(middle + side // 4 + 1, side)

"""Thrift: this project's successor of the search of Moon, An and Song (ICML 2019), within its idea.

Only corners of the ball are asked for, they are changed block by block, and the blocks shrink level by level. Four
things differ, each for the sake of fewer queries (docs/decisions/0007-thrift.md has the measurements):

- a block is changed by one query, and the change is kept if the loss has risen: no block is asked about to rank it;
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

import numpy as np

from parsimon.attacks.brush import MEMORY, Brush
from parsimon.attacks.sketch import Sketch
from parsimon.protocol import Ask, Attack, Reply, Scene, Search
from parsimon.setsearch import Mask
from parsimon.threat import Loss

_ENOUGH = 3  # blocks whose effects, added up, are not small by chance: three channels, or quarters of fewer
_LINES_ACROSS = 96  # of a texture, about: lines of a pixel for CIFAR-10, and for ImageNet of two at 224, four at 299


@dataclass(frozen=True)
class Thrift(Attack):
    """It has nothing to tune. Its settings switch its parts off, to measure what each is worth.

    It climbs the margin loss to leave a class, and cross-entropy to reach one.

    Attributes:
        texture: Whether blocks are textured where textures count, or only ever flipped.
        deduce: Whether the last quarter of a block is asked about only where the other three leave it a gain.
        rank: Whether the blocks of a level are cut in the order of what their quarters promise, not in random order.
    """

    texture: bool = True
    deduce: bool = True
    rank: bool = True

    def own_loss(self, targeted: bool) -> Loss:
        return "cross-entropy" if targeted else "margin"

    def search(self, scene: Scene, rng: np.random.Generator) -> Search:
        best, brushes = yield from self._first(scene.shape, rng)
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
                brush.begin_anew()

    def _first(
        self, shape: tuple[int, int, int], rng: np.random.Generator
    ) -> Generator[Ask, Reply, tuple[Sketch, list[Brush]]]:
        """The corner to begin with, and the ways to change it."""
        channels, height, width = shape
        thick = 2 ** max(0, round(math.log2(min(height, width) / _LINES_ACROSS)))
        rows, columns = np.indices((height, width, 1))[:2] // thick % 2 == 0
        checkerboard, everywhere = rows == columns, np.ones_like(rows)
        corners = [np.broadcast_to(signs, (height, width, channels)) for signs in (columns, checkerboard, ~everywhere)]
        lined, squared, best = map(Sketch, corners)
        patterns = [lined, squared] if self.texture else []
        coloured = channels >= 3  # of such pictures a pattern alone may fool half, but of grey ones few
        if coloured:
            yield from _asked(patterns)
        yield from best.ask()
        levels = [2**level for level in range((max(height, width) - 1).bit_length() + 1)]
        by_channel = self._brush(everywhere, [slice(channel, channel + 1) for channel in range(channels)], levels)
        yield from by_channel.level(best, rng)
        while by_channel.known.size < _ENOUGH and not by_channel.done:
            yield from by_channel.level(best, rng)
        if not coloured:
            yield from _asked(patterns)
        # Were changes to add up, the corners made of these blocks would lie between the best of them and so much below
        # it, and the checkerboard, which has either sign at half of the pixels, in the middle. For adversarially
        # trained networks it nearly does; for others it is often further up or down than any of these corners.
        apart = -float(by_channel.known.sum())
        if not patterns or -apart <= squared.loss - best.loss <= 0:
            return best, [by_channel]
        of_two_lines = [across for across in levels if across * 2 * thick <= min(height, width)]
        grey = [slice(0, channels)]
        brushes = [self._brush(pixels, grey, of_two_lines) for pixels in (rows, columns, checkerboard)]
        if channels > 1:
            brushes.insert(0, self._brush(everywhere, grey, levels))
        brushes.append(by_channel)
        for brush in brushes:  # as if one of the latest queries of each had brought what a block does
            brush.worth = apart / by_channel.known.size / MEMORY
        pattern = max(patterns, key=lambda each: each.loss)
        if pattern.loss - best.loss > apart:
            by_channel.begin_anew()
            return pattern, brushes
        return best, brushes

    def _brush(self, pixels: Mask, parts: list[slice], levels: list[int]) -> Brush:
        return Brush(pixels, parts, levels, deduce=self.deduce, rank=self.rank)


def _asked(corners: list[Sketch]) -> Generator[Ask, Reply, None]:
    for corner in corners:
        yield from corner.ask()

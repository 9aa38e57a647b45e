"""Thrift: this project's successor of Parsimonious (Moon, An and Song, ICML 2019).

As in that paper, every query is a corner of the ball. Corners change block by block, from the whole image down to
single pixels. Unlike there, one query changes a block and no query ranks blocks. The *effect* of a block is the change
in loss when it is flipped. Effects nearly add up, and the search relies on that in steps 8 to 11.
The measurements behind each step are in docs/research/thrift.md.

 1. Ask for two fine patterns, columns and coloured columns. (For grey images: columns, after step 3.)
 2. Ask for the image with less contrast: -eps at pixels lighter than their surroundings, +eps at the others.
    (For grey images: -eps everywhere.)
 3. Flip the coarsest blocks of that corner, and keep what raises the loss, until two effects or more are known.
    Their sum is the `reach`. If one sign is left everywhere, contrast does not matter: plain blocks are whole blocks
    of one channel. Otherwise they are the lighter or the darker pixels of one channel.
 4. Ask for a third pattern, a checkerboard. If either of the others has a higher loss than the corner of step 3, ask
    at once. Otherwise ask after the next level of plain blocks.
 5. If a pattern exceeds the corner of step 3 by more than half of the reach, textures matter. Then also refine whole
    blocks, rows, columns and checkerboards in all channels. Start from the pattern if it is above the best corner by
    more than the reach. Otherwise refine plain blocks alone.
 6. While any refiner has blocks left, the one with the largest recent gain refines its next block by steps 8 to 10.
    The other refiners forget the effects of what has changed. Now and then, step 11 comes first.
 7. When no blocks are left, start again from the whole image. Stop after a pass that has not raised the loss.
 8. On entering a level, sort its blocks by the gain that their quarters promise.
 9. Split the next block in quarters. Flip each by one query, in random order, and keep a flip that raises the loss.
10. Deduce the effect of the last quarter: that of the block less those of the other three. Skip it if it is no gain.
11. The highest margin of any class is the loss, and effects on the margins of all contenders are known. Find the class
    whose margin would be highest if all pieces that raise it were flipped. Flip them by one query; keep a gain.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from parsimon.attacks.block_refiner import MEMORY, BlockRefiner
from parsimon.attacks.blocks import (
    Level,
    fine_patterns,
    levels_across,
    lighter_pixels,
    plain_levels,
    texture_levels,
)
from parsimon.attacks.mutable_corner import MutableCorner
from parsimon.core.grid import Window
from parsimon.core.model import AnswerLevel
from parsimon.core.threat import Loss
from parsimon.core.types import Ask, Attack, ImageContext, Reply, Search
from parsimon.errors import check_flag
from parsimon.setsearch import Mask

# The numbers were chosen by measurements on many networks; see docs/research/thrift.md.
_COLOURED = 3  # channels: patterns alone fool up to half of such images, but few grey ones
_BLUE = 2  # the channel
_ENOUGH_EFFECTS = 2  # the sum of as many is not small by chance
_ENOUGH_ABOVE = 0.5  # of the reach: by how much a pattern must exceed plain corners for textures to matter
_FIRST_COMBINATION, _NEXT_COMBINATION = 3, 1.5  # blocks refined before the first, and by which factor before the next

Start = Generator[Ask, Reply, tuple[MutableCorner, list[BlockRefiner]]]


@dataclass(frozen=True)
class Thrift(Attack):
    """Thrift has nothing to tune; each setting switches one of its parts off, to measure its contribution.

    It climbs the margin loss in untargeted attacks and cross-entropy in targeted ones.

    Attributes:
        contrast: Treat lighter and darker pixels of coloured images separately; otherwise start at -eps everywhere.
        texture: Try patterns and refine textures where they matter.
        deduce: Skip the last quarter of a block where the other three leave it no gain.
        rank: Refine the blocks of a level in the order of the gain they promise; otherwise in random order.
        combine: Flip pieces together that raise the margin of one class. It needs an untargeted margin loss.
    """

    contrast: bool = True
    texture: bool = True
    deduce: bool = True
    rank: bool = True
    combine: bool = True

    needs: ClassVar[AnswerLevel] = "scores"

    def __post_init__(self) -> None:
        for name in ("contrast", "texture", "deduce", "rank", "combine"):
            check_flag(name, getattr(self, name))

    def own_loss(self, targeted: bool) -> Loss:
        return "cross-entropy" if targeted else "margin"

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        best, refiners = yield from self._start(context, rng)  # steps 1 to 5
        blocks, next_combination = 0, float(_FIRST_COMBINATION)
        while True:
            loss_before = best.loss
            while active := [refiner for refiner in refiners if not refiner.done]:  # step 6
                refiner = max(active, key=BlockRefiner.priority) if len(active) > 1 else active[0]
                changed = yield from refiner.refine_next(best, rng)
                _forget(changed, refiners, refiner)
                blocks += 1
                if best.margins is not None and blocks >= next_combination:
                    next_combination = _NEXT_COMBINATION * blocks
                    yield from _combine(best, refiners)
            if best.loss == loss_before:  # step 7
                return
            for refiner in refiners:
                refiner.restart()

    def _start(self, context: ImageContext, rng: np.random.Generator) -> Start:
        """Return the corner to start from and its refiners (steps 1 to 5)."""
        channels, height, width = context.shape
        coloured = channels >= _COLOURED
        everywhere = np.ones((height, width, channels), np.bool_)
        light = lighter_pixels(context.image) if self.contrast and coloured else everywhere
        numbers = levels_across(height, width)
        corner = partial(MutableCorner, margins=self.combine)
        refiner = partial(BlockRefiner, extent=(height, width), deduce=self.deduce, rank=self.rank)

        best, plain = corner(~light), refiner(plain_levels(light, numbers))
        *lines, squares = map(corner, _patterns(everywhere))
        if coloured and self.texture:
            yield from _ask_each(lines)  # step 1
        yield from best.ask()  # step 2
        while plain.effects.values.size < _ENOUGH_EFFECTS and not plain.done:  # step 3
            yield from plain.refine_next(best, rng)
        reach, count = -float(plain.effects.values.sum()), plain.effects.values.size
        if _mixed(light) and not _mixed(best.signs):
            plain = refiner(plain_levels(everywhere, numbers))
        if not self.texture:
            return best, [plain]

        loss = best.loss
        if not coloured:
            yield from _ask_each(lines)
        elif max(each.loss for each in lines) <= loss:  # step 4
            yield from _next_level(plain, best, rng)
        yield from squares.ask()
        pattern = max([*lines, squares], key=lambda each: each.loss)
        if pattern.loss - loss <= _ENOUGH_ABOVE * reach:  # step 5
            return best, [plain]
        refiners = [*(refiner(levels) for levels in _textures(everywhere, numbers)), plain]
        for each in refiners:  # as if one recent query of each had gained the mean effect
            each.recent_gain = reach / count / MEMORY
        if pattern.loss - best.loss > reach:
            plain.restart()
            best = pattern
        return best, refiners


def _mixed(pixels: Mask) -> bool:
    return bool(pixels.any() and not pixels.all())


def _ask_each(corners: Iterable[MutableCorner]) -> Generator[Ask, Reply, None]:
    for corner in corners:
        yield from corner.ask()


def _next_level(refiner: BlockRefiner, best: MutableCorner, rng: np.random.Generator) -> Generator[Ask, Reply, None]:
    """Refine all blocks of the level that a refiner is on."""
    effects = refiner.effects
    while refiner.effects is effects and not refiner.done:
        yield from refiner.refine_next(best, rng)


def _combine(best: MutableCorner, refiners: Sequence[BlockRefiner]) -> Generator[Ask, Reply, None]:
    """Try the most promising combination of flips, if it promises a gain (step 11)."""
    promises = [refiner.best_combination(best) for refiner in refiners]
    (loss, contender), refiner = max(zip(promises, refiners, strict=True), key=lambda pair: pair[0][0])
    if best.margins is not None and loss > max(best.loss, best.margins.max()):  # margins are rounded: compare both
        changed = yield from refiner.flip_combination(best, contender)
        _forget(changed, refiners, refiner)


def _forget(changed: list[Window], refiners: Sequence[BlockRefiner], by: BlockRefiner) -> None:
    """Make all refiners but the one that changed these windows forget their effects there."""
    for refiner in refiners:
        if refiner is not by:
            refiner.forget(changed)


def _patterns(everywhere: Mask) -> list[Mask]:
    """Return fine columns, for coloured images also with the other signs in blue, and a fine checkerboard."""
    height, width, channels = everywhere.shape
    _, _, columns, squares = fine_patterns(height, width)
    coloured = [(columns & everywhere) ^ (np.arange(channels) == _BLUE)] if channels >= _COLOURED else []
    return [columns & everywhere, *coloured, squares & everywhere]


def _textures(everywhere: Mask, numbers: Sequence[int]) -> Iterator[list[Level]]:
    """Yield the levels of each way to change a texture. Lines need blocks of two lines or more."""
    height, width, channels = everywhere.shape
    thickness, *lines = fine_patterns(height, width)
    if channels > 1:
        yield texture_levels(numbers, everywhere)
    with_two_lines = [across for across in numbers if across * 2 * thickness <= min(height, width)]
    for pixels in lines:
        # In all channels, since masks that fit the signs are applied much faster.
        yield texture_levels(with_two_lines, pixels & everywhere)

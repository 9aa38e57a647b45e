"""Thrift: this project's successor of Parsimonious (Moon, An and Song, ICML 2019).

As in that paper, every query is a corner of the ball, and corners change block by block, from the whole image down to
single pixels. Unlike there, one query changes a block and no query ranks blocks. The *effect* of a block is the change
in loss when it is flipped. Effects nearly add up, and the search relies on that twice, in steps 4 and 10.
The measurements behind each step are in docs/decisions/0007-thrift.md.

 1. Ask for two fine patterns, columns and a checkerboard. (For grey images: after step 3.)
 2. Ask for the image with less contrast: -eps at pixels lighter than their surroundings, +eps at the others.
    (For grey images: -eps everywhere.)
 3. Flip the coarsest blocks of that corner, and keep what raises the loss, until two effects or more are known.
    Their sum is the `reach`: if effects added up, the loss of such corners would span [best - reach, best].
 4. If the checkerboard's loss lies in that interval, textures do not matter: refine only plain blocks, which are the
    lighter or the darker pixels of one channel.
 5. Otherwise also refine whole blocks, rows, columns and checkerboards in all channels. Start from the better pattern
    if its loss lies above best + reach.
 6. While any refiner has blocks left, the one with the largest recent gain refines its next block by steps 8 to 10.
    The other refiners forget the effects of what has changed.
 7. When no blocks are left, start again from the whole image. Stop after a pass that has not raised the loss.
 8. On entering a level, sort its blocks by the gain that their quarters promise.
 9. Split the next block in quarters. Flip each by one query, in random order, and keep a flip that raises the loss.
10. Deduce the effect of the last quarter: that of the block less those of the other three. Skip it if it is no gain.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from parsimon.attacks.blocks import Level, fine_patterns, levels_across, lighter_pixels, plain_levels, texture_levels
from parsimon.attacks.mutable_corner import MutableCorner
from parsimon.core.grid import Window
from parsimon.core.threat import Loss
from parsimon.core.types import Ask, Attack, ImageContext, Reply, Search
from parsimon.errors import check_flag
from parsimon.setsearch import Mask

# The numbers were chosen by measurements on the bundled networks; see the decision note.
_COLOURED = 3  # channels: patterns alone fool up to half of such images, but few grey ones
_ENOUGH_EFFECTS = 2  # the sum of so many is not small by chance
_MEMORY = 10  # queries over which the recent gain is averaged
_ENOUGH_TO_COMPARE = 8  # blocks along a side: with fewer, the neighbours of a block are most of the image

Place = tuple[int, int, int]  # row, column and group of a block on its level


@dataclass(frozen=True)
class Thrift(Attack):
    """Thrift has nothing to tune; each setting switches one of its parts off, to measure its contribution.

    It climbs the margin loss in untargeted attacks and cross-entropy in targeted ones.

    Attributes:
        contrast: Treat lighter and darker pixels of coloured images apart; otherwise start at -eps everywhere.
        texture: Try patterns and refine textures where they matter.
        deduce: Skip the last quarter of a block where the other three leave it no gain.
        rank: Refine the blocks of a level in the order of the gain they promise; otherwise in random order.
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
        best, refiners = yield from self._start(context, rng)  # steps 1 to 5
        while True:
            loss_before = best.loss
            while active := [refiner for refiner in refiners if not refiner.done]:  # step 6
                refiner = max(active, key=BlockRefiner.priority) if len(active) > 1 else active[0]
                changed = yield from refiner.refine_next(best, rng)
                for other in refiners:
                    if other is not refiner:
                        other.forget(changed)
            if best.loss == loss_before:  # step 7
                return
            for refiner in refiners:
                refiner.restart()

    def _start(
        self, context: ImageContext, rng: np.random.Generator
    ) -> Generator[Ask, Reply, tuple[MutableCorner, list[BlockRefiner]]]:
        """Return the corner to start from and its refiners (steps 1 to 5)."""
        channels, height, width = context.shape
        coloured = channels >= _COLOURED
        everywhere = np.ones((height, width, channels), np.bool_)
        light = lighter_pixels(context.image) if self.contrast and coloured else everywhere
        thickness, rows, columns, squares = fine_patterns(height, width)
        numbers = levels_across(height, width)
        new_refiner = partial(BlockRefiner, extent=(height, width), deduce=self.deduce, rank=self.rank)

        best, lined, squared = (MutableCorner(signs & everywhere) for signs in (~light, columns, squares))
        patterns = [lined, squared] if self.texture else []
        plain = new_refiner(plain_levels(light, numbers))

        if coloured:
            yield from _ask_each(patterns)  # step 1
        yield from best.ask()  # step 2
        while plain.effects.values.size < _ENOUGH_EFFECTS and not plain.done:  # step 3
            yield from plain.refine_next(best, rng)
        if not coloured:
            yield from _ask_each(patterns)

        # Step 4. Half of a checkerboard's pixels have either sign, so it would lie in the middle of the interval. It
        # nearly does for adversarially trained networks; for others it is often far above or below.
        reach = -float(plain.effects.values.sum())
        if not patterns or -reach <= squared.loss - best.loss <= 0:
            return best, [plain]

        # Step 5. A texture needs blocks of two lines or more.
        with_two_lines = [across for across in numbers if across * 2 * thickness <= min(height, width)]
        refiners = [
            *([new_refiner(texture_levels(numbers, everywhere))] if channels > 1 else []),
            # In all channels, since masks that fit the signs are applied much faster.
            *(new_refiner(texture_levels(with_two_lines, pixels & everywhere)) for pixels in (rows, columns, squares)),
            plain,
        ]
        for refiner in refiners:  # as if one recent query of each had gained the mean effect
            refiner.recent_gain = reach / plain.effects.values.size / _MEMORY
        pattern = max(patterns, key=lambda each: each.loss)
        if pattern.loss - best.loss > reach:
            plain.restart()
            best = pattern
        return best, refiners


def _ask_each(corners: Iterable[MutableCorner]) -> Generator[Ask, Reply, None]:
    for corner in corners:
        yield from corner.ask()


class Effects:
    """The effects of the groups of all blocks of a level, by row, column and group, and which of them are known.

    No effect is a gain, since a flip that gains is kept, and then flipping back loses. Unknown effects are 0.
    """

    def __init__(self, across: int, groups: int) -> None:
        self.values = np.zeros((across, across, groups))
        self.known = np.zeros((across, across, groups), np.bool_)

    def get(self, place: Place) -> float | None:
        """Return the effect of a group of a block; None: it is unknown."""
        return self.values.item(place) if self.known[place] else None

    def set(self, place: Place, value: float) -> None:
        """Set the effect of a group of a block."""
        self.values[place] = value
        self.known[place] = True

    def forget(self, rows: slice, columns: slice, extent: tuple[int, int]) -> None:
        """Forget the effects of the blocks that lie within these pixels."""
        across, (height, width) = len(self.values), extent
        top, bottom = -(-rows.start * across // height), rows.stop * across // height
        left, right = -(-columns.start * across // width), columns.stop * across // width
        if top < bottom and left < right:  # a small window holds no block of a coarse level
            self.values[top:bottom, left:right] = 0
            self.known[top:bottom, left:right] = False


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

    @property
    def across(self) -> int:
        """Return the number of blocks along a side on the last fully evaluated level."""
        return len(self.effects.values)

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
        may_deduce = self._deduce or len(pieces) == 1  # a single piece is the block itself
        kept = []
        rng.shuffle(pieces)
        for left, (place, window, pixels) in zip(range(len(pieces) - 1, -1, -1), pieces, strict=True):
            if not left and may_deduce and remaining is not None and remaining <= 0:
                self._finer_effects.set(place, remaining)  # step 10
                continue
            gain = yield from best.flip(window, pixels)  # step 9
            if gain > 0:
                kept.append(window)
            self.recent_gain += (max(gain, 0.0) - self.recent_gain) / _MEMORY
            self._finer_effects.set(place, -abs(gain))
            if remaining is not None:
                remaining -= gain
        if self._position == len(self._order):
            self.effects = self._finer_effects
            self.done = self._depth == len(self._levels)
        return kept

    def _enter_level(self, rng: np.random.Generator) -> None:
        """Put the blocks of the level before in the order in which they are split (step 8)."""
        level = self._levels[self._depth]
        self._depth += 1
        order = rng.permutation(self.effects.values.size)
        if self._rank:
            order = order[_promise(self.effects.values).reshape(-1)[order].argsort(kind="stable")[::-1]]
        self._order, self._position = order.tolist(), 0
        self._finer_effects = Effects(level.across, len(level.groups))

    def _next_block(self) -> Place:
        block, group = divmod(self._order[self._position], self.effects.values.shape[2])
        self._position += 1
        return *divmod(block, self.across), group

    def _pieces(self, row: int, column: int, group: int) -> list[tuple[Place, Window, Mask]]:
        """Return what a group of a block splits into: the places on the finer level, their windows and pixels.

        A piece without pixels is left out: a side that is no power of two has fewer pixels than the last level blocks.
        """
        across, groups = self._levels[self._depth - 1]
        split = across // self.across
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

    The effect of a quarter is modelled as normal: its mean is a quarter of the block's effect, its deviation half of
    the root mean square of the 3 x 3 effects around, as for independent pixels. Its positive part is the gain.
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

"""Haggle: this project's attack on models that return a label alone. It needs no tuning.

A query offers a corner of a ball of some radius: the image with one sign per pixel, at that distance. The model accepts
it (the point is adversarial) or declines. The *value* of a corner is the inverse of the smallest radius at which it is
adversarial. The attack succeeds when a value reaches 1/eps. Where a network is nearly linear, values are linear in
the signs, so the effects of blocks add up. RayS measures every better corner by a bisection. Haggle does not: it keeps
an estimate of the value, a normal distribution, and asks where the answer is about even. So each answer decides a flip
and sharpens the estimate at once. The measurements behind each step are in docs/decisions/0012-haggle.md.

 1. Ask at eps for fine patterns (columns in two colours, columns, a checkerboard) and for the plain corner: the image
    with less contrast. (For grey images: -eps everywhere and +eps everywhere.)
 2. Double the radius until the plain corner is adversarial. Its value lies between the last two radii.
 3. To test a flip of a block, ask for the flipped corner at the mean of the estimate. Keep it if it is adversarial.
    Update the estimate by the answer, given the usual effect of such flips (a normal distribution, too).
 4. If the estimate is vague compared to those effects, first ask for the corner itself at the mean.
 5. Refine the plain blocks level by level, from the whole image to single pixels: the lighter or the darker pixels of
    one channel. On a level, the block whose sign differs most from those around it comes first.
 6. After 32 flips, ask for the patterns at the mean. If one is adversarial, raise its value by growing steps and
    continue from the best one. Then refine whole blocks, rows, columns and checkerboards in all channels, too.
 7. The refiner with the largest recent gain per query tests its next block. When no blocks are left, all start again.

No query is spent on a radius below eps, unless the attack is to continue until its budget is spent.

A targeted attack starts from an image of the target class in step 2, if the data have one. The signs point towards it,
and no pixel goes beyond it unless its sign was flipped, except in corners at eps. So the point at radius 1 is that
image, which is adversarial. Step 6 is left out.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.attacks.blocks import (
    Level,
    fine_patterns,
    levels_across,
    lighter_pixels,
    plain_levels,
    texture_levels,
)
from parsimon.core.grid import Grid, Window
from parsimon.core.types import Ask, Attack, Corners, Image, ImageContext, Images, Reply, Search
from parsimon.setsearch import Mask

# The numbers were chosen by measurements on several networks: docs/decisions/0012-haggle.md.
_COLOURED, _GREEN = 3, 1  # channels, and the number of one
_COARSE_FLIPS = 32  # of plain blocks, before textures are tried
_FIRST_STEP = 1.5  # factor by which the value of a pattern is raised; it grows
# Effects of flips, relative to the value, to the level before, and to the effect so far.
_FIRST_EFFECT, _LEAST_EFFECT, _FINER_EFFECT, _LEAST_SHARE = 0.2, 1e-3, 0.6, 0.1
_EFFECT_WEIGHT = 0.3  # of a new gain in the running mean of effects
_MEAN_OF_HALF = 0.8  # mean of the positive half of a normal distribution, in standard deviations
_GAIN_OF_EFFECT = 0.3  # expected gain of a query, relative to the effects
_FIRST_SUCCESS_RATE, _LEAST_RATE, _LARGEST_RATE = 0.4, 0.05, 0.6  # of flips
_SUCCESS_MEMORY = 20  # flips over which the success rate is averaged
_MEMORY = 10  # queries over which the recent gain is averaged
# Variances of the estimate, relative to the squared effects: above which it is sharpened, and what a flip adds, since
# values are not exactly linear.
_VAGUE, _DRIFT = 0.5, 0.02
_LEAST_SHRINKAGE = 0.05  # of a variance by one answer
_BELOW = 0.999  # of the goal, after the corner was declined there
_FAR = -6.0  # standard deviations, beyond which the hazard is nearly linear
_ENOUGH_TO_COMPARE = 8  # blocks along a side: with fewer, those in the middle come first
_TIE = 1e-3  # differences of priority that count as none
_LEVELS = 255  # the largest value of an 8-bit pixel
_NORMAL, _NO_EFFECT = NormalDist(), NormalDist(0, 0)


@dataclass(frozen=True)
class Haggle(Attack):
    """Haggle, for models that return a label alone. It has nothing to tune."""

    needs: ClassVar = "label"

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        channels, height, width = context.shape
        coloured = channels >= _COLOURED
        everywhere = np.ones((height, width, channels), np.bool_)
        light = lighter_pixels(context.image) if coloured else everywhere
        thickness, rows, columns, squares = fine_patterns(height, width)
        patterns = [columns & everywhere, squares & everywhere]
        if coloured:
            patterns.insert(0, columns ^ (np.arange(channels) == _GREEN))
        starts = [~light] if coloured else [~everywhere, everywhere]

        if context.example is not None:
            starts = [(context.example > context.image).transpose(1, 2, 0)]
        best = Bargain(context, starts[0])
        for signs in (*patterns, *starts):  # step 1
            yield from best.offer(signs, best.goal)
        yield from best.find_start(starts, known=context.example is not None)  # step 2
        numbers = levels_across(height, width)
        plain = Refiner(plain_levels(light, numbers), best)
        for _ in range(_COARSE_FLIPS):  # steps 3 to 5
            if not plain.done:  # tiny images have fewer blocks
                yield from plain.test_next(rng)
        refiners = [plain]
        if context.example is None and (yield from best.replace_by(patterns)):  # step 6
            with_two_lines = [across for across in numbers if across * 2 * thickness <= min(height, width)]
            textures = [texture_levels(with_two_lines, pixels) for pixels in (rows, columns, squares)]
            if channels > 1:
                textures.append(texture_levels(numbers, everywhere))
            refiners += [Refiner(levels, best) for levels in textures]
            plain.restart()
        while True:  # step 7
            if all(refiner.done for refiner in refiners):
                for refiner in refiners:
                    refiner.restart()
            active = [refiner for refiner in refiners if not refiner.done]
            yield from max(active, key=lambda each: each.recent_gain).test_next(rng)


class Bargain:
    """The corner to improve, and the estimate of its value: a normal distribution.

    Attributes:
        signs: Where the corner is above the image, by row, column and channel.
        mean: The mean of the estimate.
        goal: The value at which the attack succeeds, 1/eps.
    """

    def __init__(self, context: ImageContext, signs: Mask) -> None:
        threat = context.threat
        self._image, self._eight_bit = context.image, threat.eight_bit
        self._low: Image | float = 0.0
        self._high: Image | float = 1.0
        if (example := context.example) is not None:
            upwards = example > context.image
            self._low, self._high = np.where(upwards, 0, example), np.where(upwards, example, 1)
        self._grid = Grid(context.shape, context.shape[1:], 1)
        self.signs = signs.copy()
        self.goal = _LEVELS / threat.eight_bit_steps if threat.eight_bit else 1 / threat.eps
        self._most = math.inf if threat.until_budget else self.goal
        self.mean, self._variance = self.goal, 0.0

    def offer(self, signs: Mask, value: float) -> Generator[Ask, Reply, bool]:
        """Ask whether a corner has at least this value, that is, whether it is adversarial at the inverse radius."""
        if value == self.goal:
            reply = yield Ask(Corners(self._grid, signs.reshape(-1).copy()))
        else:
            radius = np.float32(1 / value)
            pixels = np.where(signs.transpose(2, 0, 1), self._image + radius, self._image - radius)
            reply = yield Ask(Images(np.clip(pixels, self._low, self._high)[None]))
        return math.isfinite(reply.loss.item())

    def find_start(self, starts: Sequence[Mask], *, known: bool) -> Generator[Ask, Reply, None]:
        """Double the radius until one of the corners is adversarial, and start from it (step 2).

        `known`: whether that of radius 1 is known to be, and is not asked for.
        """
        value = self.goal
        while value > 1:
            declined, value = value, max(1.0, self._possible(value / 2))
            for signs in starts:
                if (value == 1 and known) or (yield from self.offer(signs, value)):
                    self._restart(signs, value, declined)
                    return
        self._restart(starts[0], 1, 2)

    def replace_by(self, patterns: Sequence[Mask]) -> Generator[Ask, Reply, bool]:
        """Continue from the pattern of the highest value, if one has a higher value than the corner (step 6)."""
        replaced = False
        for signs in patterns:
            low, step = self._possible(self.mean), _FIRST_STEP
            if not (yield from self.offer(signs, low)):
                continue
            replaced = True
            high = self._possible(low * step)
            while high > low and (yield from self.offer(signs, high)):
                low, step = high, step * _FIRST_STEP
                high = self._possible(low * step)
            self._restart(signs, low, high)
        return replaced

    def sharpen(self, effect: float) -> Generator[Ask, Reply, int]:
        """Ask for the corner until its estimate is sharp enough to test such effects; return the number of queries."""
        queries = 0
        while self._variance > _VAGUE * effect**2:
            value = self._possible(self.mean)
            self._learn(value, (yield from self.offer(self.signs, value)))
            queries += 1
        return queries

    def test(self, window: Window, pixels: Mask, effects: NormalDist) -> Generator[Ask, Reply, bool]:
        """Flip these pixels of a window, keep that if the corner is adversarial at the mean, and return whether."""
        value = self._possible(self.mean)
        signs = self.signs[window]
        signs ^= pixels
        adversarial = yield from self.offer(self.signs, value)
        if not adversarial:
            signs ^= pixels
        self._learn(value, adversarial, effects)
        self._variance += _DRIFT * effects.variance
        return adversarial

    def _possible(self, value: float) -> float:
        """Return the nearest value to ask at: not above the goal, and a whole number of levels in 8-bit mode."""
        value = min(max(value, 1.0), self._most)
        if self._eight_bit:
            value = _LEVELS / max(1, round(_LEVELS / value))
        return value

    def _restart(self, signs: Mask, low: float, high: float) -> None:
        """Start from a corner whose value lies between two bounds."""
        self.signs[...] = signs
        self.mean, self._variance = (low + high) / 2, (high - low) ** 2 / 12

    def _learn(self, value: float, adversarial: bool, effects: NormalDist = _NO_EFFECT) -> None:
        """Update the estimate by an answer at a value, for the corner with a flip of these effects.

        The sum of value and effect is truncated at the asked value, and replaced by a normal distribution with the same
        mean and variance. If the flip was kept, that is the new value. If not, the old value is updated by its
        correlation with the sum.
        """
        total = self._variance + effects.variance
        deviation = math.sqrt(total)
        z = (self.mean + effects.mean - value) / deviation
        if adversarial:
            shift = _hazard(z)
            self.mean += effects.mean + deviation * shift
            self._variance = total * max(1 - shift * (shift + z), _LEAST_SHRINKAGE)
        else:
            shift = _hazard(-z)
            self.mean -= self._variance / deviation * shift
            self._variance *= max(1 - self._variance / total * shift * (shift - z), _LEAST_SHRINKAGE)
            if value == self._most:
                self.mean = min(self.mean, _BELOW * value)


def _hazard(z: float) -> float:
    """Return the mean of a standard normal variable above -z."""
    if z < _FAR:
        return -z
    return math.exp(-z * z / 2) * math.sqrt(2 / math.pi) / math.erfc(-z / math.sqrt(2))


class Refiner:
    """Test flips of one kind of blocks, level by level, from the whole image to the smallest blocks.

    Attributes:
        recent_gain: Running mean of the gain in value per query.
        done: Whether no blocks are left.
    """

    def __init__(self, levels: Sequence[Level], corner: Bargain) -> None:
        self._levels, self._corner = levels, corner
        self._effect = _FIRST_EFFECT * corner.mean  # usual size
        self._success_rate = _FIRST_SUCCESS_RATE
        self.recent_gain = self._effect * _GAIN_OF_EFFECT
        self.restart()

    def restart(self) -> None:
        """Start again from the whole image."""
        self.done = False
        self._depth = -1
        self._waiting = np.zeros((0, 0, 0), np.bool_)  # blocks to test, by group, row and column

    def test_next(self, rng: np.random.Generator) -> Generator[Ask, Reply, None]:
        """Test the next block (steps 3 to 5)."""
        while not self._waiting.any():
            self._depth += 1
            if self._depth == len(self._levels):
                self.done = True
                return
            self._enter_level(rng)
        group, row, column = place = self._first_waiting()
        self._waiting[place] = False
        self._priority[place] = -np.inf
        corner, effect = self._corner, max(self._effect, _LEAST_EFFECT * self._corner.mean)
        queries = 1 + (yield from corner.sharpen(effect))
        before, gain = corner.mean, 0.0
        rate = min(max(self._success_rate, _LEAST_RATE), _LARGEST_RATE)
        kept = yield from corner.test(
            *self._block(group, row, column), NormalDist(effect * _NORMAL.inv_cdf(rate), effect)
        )
        self._success_rate += (kept - self._success_rate) / _SUCCESS_MEMORY
        if kept:
            self._signs[place] *= -1
            self._prioritise()
            queries += yield from corner.sharpen(effect)
            gain = corner.mean - before
            size = max(gain, _LEAST_SHARE * self._effect) / _MEAN_OF_HALF
            self._effect += _EFFECT_WEIGHT * (size - self._effect)
        forgotten = (1 - 1 / _MEMORY) ** queries
        self.recent_gain = forgotten * self.recent_gain + (1 - forgotten) * gain / queries

    def _enter_level(self, rng: np.random.Generator) -> None:
        """Take the mean sign of each block of the level, and the order in which blocks of equal priority are tested."""
        across, groups = self._levels[self._depth]
        height, width, _ = self._corner.signs.shape
        self._signs = np.zeros((len(groups), across, across))
        self._waiting = np.zeros((len(groups), across, across), np.bool_)
        for group, (pixels, channels) in enumerate(groups):
            signs = np.where(self._corner.signs[:, :, channels], 1, -1)
            number = _block_sums(np.broadcast_to(pixels.reshape(height, width, -1), signs.shape), across)
            total = _block_sums(signs * pixels.reshape(height, width, -1), across)
            self._waiting[group] = number > 0
            self._signs[group] = total / np.maximum(number, 1)
        self._ties = rng.random(self._waiting.shape) * _TIE
        if across < _ENOUGH_TO_COMPARE:
            from_middle = np.square(2 * np.arange(across) + 1 - across)
            self._ties -= np.add.outer(from_middle, from_middle) * 10 * _TIE
        if self._depth:
            self._effect *= _FINER_EFFECT
        self._prioritise()

    def _prioritise(self) -> None:
        """Prefer blocks whose sign differs from the four around them and from the other groups of the same block."""
        signs = self._signs
        framed = np.pad(signs, ((0, 0), (1, 1), (1, 1)), mode="edge")  # beyond the image, a block's own sign
        neighbours = framed[:, :-2, 1:-1] + framed[:, 2:, 1:-1] + framed[:, 1:-1, :-2] + framed[:, 1:-1, 2:]
        around = neighbours + signs.sum(axis=0) - signs
        self._priority = np.where(self._waiting, self._ties - signs * around, -np.inf)

    def _first_waiting(self) -> tuple[int, int, int]:
        """Return group, row and column of the block of the highest priority."""
        across = self._priority.shape[1]
        block, column = divmod(int(self._priority.argmax()), across)
        return *divmod(block, across), column

    def _block(self, group: int, row: int, column: int) -> tuple[Window, Mask]:
        """Return the window of a block, and the pixels of a group in it."""
        across, groups = self._levels[self._depth]
        height, width, _ = self._corner.signs.shape
        rows = slice(row * height // across, (row + 1) * height // across)
        columns = slice(column * width // across, (column + 1) * width // across)
        pixels, channels = groups[group]
        return (rows, columns, channels), pixels[rows, columns]


def _block_sums(values: NDArray[np.int64], across: int) -> NDArray[np.int64]:
    """Return the sum over each block, of an array by row, column and channel; 0 for a block without pixels."""
    sums: NDArray[np.int64] = values.sum(axis=2)
    for axis, side in enumerate(sums.shape):
        edges = np.arange(across) * side // across
        present = edges < (np.arange(across) + 1) * side // across
        within = np.add.reduceat(sums, edges[present], axis=axis)
        shape = (across, sums.shape[1]) if axis == 0 else (sums.shape[0], across)
        sums = np.zeros(shape, np.int64)
        sums[present if axis == 0 else (slice(None), present)] = within
    return sums

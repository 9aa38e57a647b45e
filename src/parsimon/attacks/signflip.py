"""SignFlip: Chen, Zhang, Hu and Wu, *Boosting Decision-based Black-box Adversarial Attacks with Random Sign Flip*
(ECCV 2020).

Shrink an adversarial perturbation step by step, and flip random signs of it in between:

1. Draw images of uniform noise until one is adversarial. Bisect the radius of its projection, in 10 queries.
2. Project: add +-alpha at random, clip to the radius less alpha, and keep the result if it is adversarial.
3. Flip: change the sign of each pixel with its own small probability, and keep the result if it is adversarial. If it
   is, pixels that were flipped become less likely to be flipped again, and the others more likely.
4. Adapt after every 10 rounds of 2 and 3. Raise alpha if more than 7 projections were adversarial, and lower it if
   fewer than 3 were. Do the same with the probabilities for flips.

Noise and flips are drawn at a lower resolution on large images and resized bilinearly. All constants are
those of the authors' code. That code does not count the queries for the noise; here they are charged. Targeted attacks
start from an image of the target class instead, as in that code, if the data have one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.attacks.boundary import approach, distance, find_adversarial_noise, in_range, is_adversarial
from parsimon.core.types import Attack, ImageContext, Paper, Search
from parsimon.errors import check_number

_ROUNDS = 10  # after which alpha and the probabilities are adapted
_MANY, _FEW = 7, 3  # adversarial points of these rounds
_ALPHA_FACTOR = 1.5
_KEEP_STEP, _PIXEL_STEP = np.float32(1e-3), np.float32(1e-4)  # of the probabilities: of all pixels, and of each
_LEAST_KEEP, _MOST_KEEP = np.float32(0.99), np.float32(0.9999)
_START_BISECTIONS = 10


@dataclass(frozen=True)
class SignFlip(Attack):
    """SignFlip, for models that return a label alone. The defaults are those of the authors' code.

    Attributes:
        alpha: First step by which the radius shrinks.
        flip: First probability of a flip, per pixel.
        resize: Number of pixels per side that share a random sign.
    """

    alpha: float = 0.004
    flip: float = 0.001
    resize: float = 1.0

    needs: ClassVar = "label"
    paper: ClassVar = Paper(
        "Chen, Zhang, Hu and Wu",
        "Boosting Decision-based Black-box Adversarial Attacks with Random Sign Flip",
        2020,
        "https://www.ecva.net/papers/eccv_2020/papers_ECCV/papers/123600273.pdf",
    )
    presets: ClassVar = {"cifar10": {}, "imagenet": {"resize": 2.0}}

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, most=1)
        check_number("flip", self.flip, float(1 - _MOST_KEEP), float(1 - _LEAST_KEEP))
        check_number("resize", self.resize, 1)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        image, (channels, height, width) = context.image, context.shape
        start = context.example
        if start is None:
            start = yield from find_adversarial_noise(context.shape, rng)
        if start is None:
            return
        start = yield from approach(image, start, distance(image, start) / 2**_START_BISECTIONS)
        change = start - image

        low_resolution = (channels, *(max(1, int(side // self.resize)) for side in (height, width)))
        keep = np.full(low_resolution, 1 - self.flip, np.float32)
        alpha = self.alpha
        while True:
            shrunk = flipped = 0
            for _ in range(_ROUNDS):
                noise = np.float32(alpha) * _signs(rng, low_resolution, 0.5)
                radius = max(np.float32(0), np.abs(change).max() - np.float32(alpha))
                candidate = np.clip(change + _resized(noise, height, width), -radius, radius)
                if (yield from is_adversarial(in_range(image + candidate))):
                    change, shrunk = candidate, shrunk + 1

                signs = _signs(rng, low_resolution, keep)
                candidate = change * np.sign(_resized(signs, height, width))
                if (yield from is_adversarial(in_range(image + candidate))):
                    change, flipped = candidate, flipped + 1
                    keep = np.clip(keep - _PIXEL_STEP * signs, _LEAST_KEEP, _MOST_KEEP)
            alpha *= _ALPHA_FACTOR ** _verdict(shrunk)
            keep = np.clip(keep - _KEEP_STEP * _verdict(flipped), _LEAST_KEEP, _MOST_KEEP)


def _signs(
    rng: np.random.Generator, shape: tuple[int, ...], positive: float | NDArray[np.float32]
) -> NDArray[np.float32]:
    """Draw signs that are +1 with the given probability."""
    return np.where(rng.random(shape, np.float32) < positive, np.float32(1), np.float32(-1))


def _verdict(adversarial: int) -> int:
    """Return +1 if many points of the last rounds were adversarial, -1 if few were, and 0 otherwise."""
    return (adversarial > _MANY) - (adversarial < _FEW)


def _resized(values: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Resize each channel bilinearly, with the centres of pixels as its grid."""
    for axis, side in ((1, height), (2, width)):
        before = values.shape[axis]
        if before == side:
            continue
        at = np.clip((np.arange(side) + 0.5) * before / side - 0.5, 0, before - 1)
        below = at.astype(np.intp)
        share = (at - below).astype(np.float32).reshape(-1, *(1,) * (2 - axis))
        above = np.minimum(below + 1, before - 1)
        values = values.take(below, axis) * (1 - share) + values.take(above, axis) * share
    return values

"""HopSkipJump: Chen, Jordan and Wainwright, *HopSkipJumpAttack: A Query-Efficient Decision-Based Attack* (2020), for
the L-infinity norm.

Walk along the decision boundary by estimates of its normal. With d the number of pixels and theta =
gamma / d^2:

1. Draw images of uniform noise until one is adversarial. Bisect the line from the image to it, to 0.001.
2. Bin-Search: bisect the radius of the projection of that point, to theta times its distance.
3. Probe at the boundary: ask for points at a distance delta in random directions. In iteration t there are 100 sqrt(t)
   of them. At first delta is 0.1. Later it is d theta times the distance of the last point before Bin-Search.
4. Estimate the gradient: the mean of the directions, weighted +1 where adversarial and -1 elsewhere, less the mean
   weight, to reduce the variance.
5. Step by the sign of the gradient. The step is the distance of the point over sqrt(t), and is halved until the new
   point is adversarial. Continue with 2.

All constants are those of the authors' code. With their theta, Bin-Search continues below the resolution of single
precision. Probes of large images nearly vanish in it: at 224 x 224, a probe changes each pixel by 1e-9. A larger
`gamma` helps; ART has 0.01 d. Targeted attacks skip step 1 and start from an image of the target class, as the authors'
do, if the data have one.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.attacks.boundary import (
    approach,
    are_adversarial,
    distance,
    find_adversarial_noise,
    in_range,
    is_adversarial,
)
from parsimon.core.types import Ask, Attack, Image, ImageContext, Paper, Reply, Search
from parsimon.errors import MOST, check_number, check_whole

_FIRST_DELTA = 0.1
_BLEND_TOLERANCE = 0.001
_MOST_PROBES = 10_000  # per estimate
_PROBES_PER_ASK = 20  # an estimate in one ask would hold hundreds of probes in memory per attacked image


@dataclass(frozen=True)
class HopSkipJump(Attack):
    """HopSkipJump in the L-infinity norm, for models that return a label alone. The defaults are the authors' own.

    Attributes:
        probes: Probes of the first gradient estimate; estimate t has sqrt(t) times as many.
        gamma: Factor of theta, the relative tolerance of Bin-Search and the size of probes.
    """

    probes: int = 100
    gamma: float = 1.0

    needs: ClassVar = "label"
    paper: ClassVar = Paper(
        "Chen, Jordan and Wainwright",
        "HopSkipJumpAttack: A Query-Efficient Decision-Based Attack",
        2020,
        "https://arxiv.org/abs/1904.02144",
    )

    def __post_init__(self) -> None:
        check_whole("probes", self.probes, 1, MOST)
        check_number("gamma", self.gamma)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        image, size = context.image, context.image.size
        theta = self.gamma / size**2
        point = context.example
        if point is None:
            noise = yield from find_adversarial_noise(context.shape, rng)
            if noise is None:
                return
            point = yield from _blend(image, noise)
        for iteration in count(1):
            reach = distance(image, point)
            point = yield from approach(image, point, theta * min(reach, 1))

            delta = _FIRST_DELTA if iteration == 1 else size * theta * reach
            probes = min(int(self.probes * math.sqrt(iteration)), _MOST_PROBES)
            gradient = yield from _estimate(point, delta, probes, rng)
            direction = np.sign(gradient).astype(np.float32)

            step = distance(image, point) / math.sqrt(iteration)
            candidate = in_range(point + np.float32(step) * direction)
            while not (yield from is_adversarial(candidate)):
                step /= 2
                candidate = in_range(point + np.float32(step) * direction)
            point = candidate


def _blend(image: Image, noise: Image) -> Generator[Ask, Reply, Image]:
    """Return the adversarial mixture of image and noise with the smallest share of noise, by bisection."""
    low, high = 0.0, 1.0
    closest = noise
    while high - low > _BLEND_TOLERANCE:
        middle = (low + high) / 2
        mixture = in_range(np.float32(1 - middle) * image + np.float32(middle) * noise)
        if (yield from is_adversarial(mixture)):
            closest, high = mixture, middle
        else:
            low = middle
    return closest


def _estimate(
    point: Image, delta: float, probes: int, rng: np.random.Generator
) -> Generator[Ask, Reply, NDArray[np.float64]]:
    """Return the gradient of the decision at a point of the boundary, up to a positive factor."""
    plain, weighted = np.zeros(point.shape), np.zeros(point.shape)
    adversarial = 0
    for done in range(0, probes, _PROBES_PER_ASK):
        shape = min(_PROBES_PER_ASK, probes - done), *point.shape
        noise = rng.uniform(-1, 1, shape)
        noise *= delta / np.sqrt((noise**2).sum(axis=(1, 2, 3), keepdims=True))
        asked = in_range(point + noise)
        decisions = yield from are_adversarial(asked)
        directions = asked.astype(np.float64) - point  # after clipping, as in the authors' code
        plain += directions.sum(axis=0)
        weighted += (np.where(decisions, 1.0, -1.0)[:, None, None, None] * directions).sum(axis=0)
        adversarial += int(decisions.sum())
    mean = 2 * adversarial / probes - 1
    return weighted if abs(mean) == 1 else weighted - mean * plain

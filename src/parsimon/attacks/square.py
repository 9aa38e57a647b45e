"""Square Attack: Andriushchenko, Croce, Flammarion and Hein, *Square Attack* (ECCV 2020), for the L-infinity ball.

Random search over corners of the ball: start from vertical stripes, repaint one square window in one colour, keep it
if the loss has risen. The windows shrink on a schedule. Every draw is the image's own, and a repainting that would
change nothing is drawn again, as in the authors' code (AutoAttack's version shares windows over its batch, and may ask
for the same image twice).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parsimon.attacks.sketch import MutableCorner
from parsimon.core.threat import Loss
from parsimon.core.types import Attack, ImageContext, Search
from parsimon.errors import check_number

# The window's share of the image is halved after each of these of 10,000 queries.
_HALVED_AFTER = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)


@dataclass(frozen=True)
class Square(Attack):
    """Square Attack; it climbs the margin loss to leave a class, and cross-entropy to reach one.

    Attributes:
        share: Share of the image that the first windows cover (the paper's p).
    """

    share: float = 0.8

    presets: ClassVar = {
        "cifar10": {"share": 0.8},  # for adversarially trained networks, as in AutoAttack
        "imagenet": {"share": 0.05},
        "imagenet-targeted": {"share": 0.01},
    }

    def __post_init__(self) -> None:
        check_number("share", self.share, most=1)

    def own_loss(self, targeted: bool) -> Loss:
        return "cross-entropy" if targeted else "margin"

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        channels, height, width = context.shape
        best = MutableCorner(np.repeat(rng.random((1, width, channels)) < 0.5, height, axis=0))  # vertical stripes
        yield from best.ask()
        for query in range(context.budget):
            side = self._side(query / context.budget, height, width)
            # As published, a window never reaches the last row and column.
            top, left = rng.integers(max(1, height - side)), rng.integers(max(1, width - side))
            window = slice(top, top + side), slice(left, left + side), slice(None)
            signs = best.signs[window]
            while not (other := signs != (rng.random(channels) < 0.5)).any():
                pass
            yield from best.flip(window, other)

    def _side(self, progress: float, height: int, width: int) -> int:
        """Of the window, after this part of the budget."""
        halvings = bisect_left(_HALVED_AFTER, int(progress * 10_000))
        side = round(math.sqrt(self.share / 2**halvings * height * width))
        return max(1, min(side, height - 1, width - 1))

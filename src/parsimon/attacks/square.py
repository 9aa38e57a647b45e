"""Square Attack: Andriushchenko, Croce, Flammarion and Hein, *Square Attack: a query-efficient black-box adversarial
attack via random search* (ECCV 2020), for the L-infinity ball.

Algorithm 1 (random search): start from a random corner, propose a change, keep it if the loss has risen. The start is
vertical stripes, and a change gives one square window one random sign per channel (Algorithm 2). The windows shrink on
a schedule (section 4.1). As in the authors' code, every image has its own draws, and a change without an effect is
drawn again. AutoAttack's version shares windows over its batch, and may ask for the same image twice.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parsimon.attacks.mutable_corner import MutableCorner
from parsimon.core.threat import Loss
from parsimon.core.types import Attack, ImageContext, Paper, Search
from parsimon.errors import check_number

# The paper halves p after these iterations of 10,000, and scales the schedule to the budget.
_SCHEDULE_LENGTH = 10_000
_HALVED_AFTER = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)


@dataclass(frozen=True)
class Square(Attack):
    """Square Attack; it climbs the margin loss in untargeted attacks and cross-entropy in targeted ones.

    Attributes:
        p_init: Fraction of the image that the first windows cover.
    """

    p_init: float = 0.8

    paper: ClassVar = Paper(
        "Andriushchenko, Croce, Flammarion and Hein",
        "Square Attack: a query-efficient black-box adversarial attack via random search",
        2020,
        "https://arxiv.org/abs/1912.00049",
    )
    presets: ClassVar = {
        "cifar10": {"p_init": 0.8},  # for adversarially trained networks, as in AutoAttack
        "imagenet": {"p_init": 0.05},
        "imagenet-targeted": {"p_init": 0.01},
    }

    def __post_init__(self) -> None:
        check_number("p_init", self.p_init, most=1)

    def own_loss(self, targeted: bool) -> Loss:
        return "cross-entropy" if targeted else "margin"

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        channels, height, width = context.shape
        stripes = rng.random((1, width, channels)) < 0.5
        best = MutableCorner(np.repeat(stripes, height, axis=0))
        yield from best.ask()
        sides = [self._window_side(halvings, height, width) for halvings in range(len(_HALVED_AFTER) + 1)]
        for iteration in range(context.budget):
            side = sides[bisect_left(_HALVED_AFTER, int(iteration / context.budget * _SCHEDULE_LENGTH))]
            # As in the authors' code, a window never covers the last row and column.
            top, left = rng.integers(max(1, height - side)), rng.integers(max(1, width - side))
            window = slice(top, top + side), slice(left, left + side), slice(None)
            signs = best.signs[window]
            while not np.count_nonzero(differs := signs != (rng.random(channels) < 0.5)):
                pass
            yield from best.flip(window, differs)

    def _window_side(self, halvings: int, height: int, width: int) -> int:
        """Return the side of the window after p was halved this often."""
        side = round(math.sqrt(self.p_init / 2**halvings * height * width))
        return max(1, min(side, height - 1, width - 1))

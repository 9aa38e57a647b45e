"""Write an attack on one image, test it, and compare it with another attack."""

from dataclasses import dataclass

import numpy as np

import parsimon
from parsimon import zoo
from parsimon.core.grid import first_grid
from parsimon.core.types import Ask, Corners, ImageContext, Search
from parsimon.testing import check_attack


@dataclass(frozen=True)
class CoinFlips(parsimon.Attack):
    """Flip random blocks, and keep what raises the loss."""

    share: float = 0.1  # of the blocks, on average

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        grid = first_grid(context.shape)
        best = rng.random(grid.count) < 0.5
        highest = (yield Ask(Corners(grid, best))).loss[0]
        while True:
            candidate = best ^ (rng.random(grid.count) < self.share)
            loss = (yield Ask(Corners(grid, candidate))).loss[0]
            if loss > highest:
                best, highest = candidate, loss


check_attack(CoinFlips())

images, labels = zoo.images()
print(parsimon.compare("standard", images[:12], labels[:12], 8 / 255, [CoinFlips(), "random"], budget=60))

"""Random corners of the ball: the baseline that every attack must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parsimon.core.grid import first_grid
from parsimon.core.types import Ask, Attack, Corners, ImageContext, Search
from parsimon.errors import MOST, check_whole


@dataclass(frozen=True)
class RandomCorners(Attack):
    """Each query is a new random corner, constant on blocks.

    Attributes:
        block: Side of the blocks; None: that of the first blocks of `Parsimonious`.
    """

    block: int | None = None

    climbs: ClassVar = False

    def __post_init__(self) -> None:
        if self.block is not None:
            check_whole("block", self.block, 1, MOST)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        grid = first_grid(context.shape, self.block)
        while True:
            yield Ask(Corners(grid, rng.random(grid.count) < 0.5))

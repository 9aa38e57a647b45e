"""Scatter: this project's attack on models that watch their queries. No query is close to an earlier one.

A detector such as Blacklight recognises an attack because it changes little from one query to the next. This one draws
every corner anew, from a distribution that it learns. It is population-based incremental learning (Baluja 1994) with
the estimator of REINFORCE (Williams 1992), and a limit on how sure the distribution may become.

1. Keep one mean per block, from -1 to 1. All are 0 at first.
2. Draw a corner: +eps on each block with probability (1 + mean) / 2, independently.
3. Ask for its loss. Its advantage is the loss minus the recent mean of losses. Go to step 2 if the loss is infinite.
4. Add to the sum of each block: the advantage times the drawn sign minus its mean.
5. Set each mean to limit * tanh(sum / mean size of all sums), from the eighth query on. Go to step 2.

With a limit of 0.75, two queries differ in more than a fifth of the blocks on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np

from parsimon.core.grid import first_grid
from parsimon.core.threat import Loss
from parsimon.core.types import Ask, Attack, Corners, ImageContext, Search
from parsimon.errors import MOST, check_number, check_whole

_FIRST_QUERIES = 8  # before anything is learnt
_RECENT = 5  # queries over which losses are averaged


@dataclass(frozen=True)
class Scatter(Attack):
    """Draws every query from a distribution over corners that it learns, so that no two are alike.

    Attributes:
        block: Side of the blocks; None: that of the first blocks of `Parsimonious`.
        limit: How sure the distribution of a block may become: 0 for not at all, 1 for certain. With more, attacks need
            fewer queries and are flagged more often.
    """

    block: int | None = None
    limit: float = 0.75

    climbs: ClassVar = False

    def __post_init__(self) -> None:
        if self.block is not None:
            check_whole("block", self.block, 1, MOST)
        check_number("limit", self.limit, 0, 1)

    def own_loss(self, targeted: bool) -> Loss:  # noqa: ARG002  (the same for both)
        return "margin"

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        grid = first_grid(context.shape, self.block)
        mean, sums = np.zeros(grid.count), np.zeros(grid.count)
        baseline, finite = 0.0, 0  # the number of finite losses
        for query in count(1):
            members = rng.random(grid.count) < (1 + mean) / 2  # step 2
            loss = float((yield Ask(Corners(grid, members))).loss[0])
            if not np.isfinite(loss):  # a margin may be infinite
                continue
            finite += 1
            advantage = loss - baseline if finite > 1 else 0.0  # step 3
            baseline += (loss - baseline) / min(finite, _RECENT)
            sums += advantage * (np.where(members, 1.0, -1.0) - mean)  # step 4
            size = np.abs(sums).mean()
            if query >= _FIRST_QUERIES and size > 0:  # step 5
                mean = self.limit * np.tanh(sums / size)

"""Records to numbers: rates, means, medians, intervals. Pure functions; nothing here runs or draws anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median

from parsimon.protocol import Outcome


@dataclass(frozen=True)
class Summary:
    """One row of a results table.

    The success rate is over every attacked (correctly classified) image; mean and median queries are over successes
    only. Unfinished images, which an interrupted run leaves, are among the attacked and not among the successes: the
    rate is then a lower bound.
    """

    attacked: int
    successes: int
    unfinished: int
    queries: int  # charged, over all images
    mean: float | None
    median: float | None

    @property
    def success_rate(self) -> float:
        return self.successes / self.attacked if self.attacked else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.successes, self.attacked)


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    of_successes = [outcome.queries for outcome in outcomes if outcome.success]
    return Summary(
        attacked=len(outcomes),
        successes=len(of_successes),
        unfinished=sum(outcome.ended == "interrupted" for outcome in outcomes),
        queries=sum(outcome.queries for outcome in outcomes),
        mean=fmean(of_successes) if of_successes else None,
        median=median(of_successes) if of_successes else None,
    )


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a rate; it stays within [0, 1] and means something at 0 and 1 too."""
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = successes / trials
    centre = rate + z * z / (2 * trials)
    spread = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)

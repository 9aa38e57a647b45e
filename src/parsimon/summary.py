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
    uncharged: int
    outside: int
    gradients: int
    mean: float | None
    median: float | None
    mean_of_all: float | None  # over all images, a failure counted at the budget; None while some are unfinished

    @property
    def success_rate(self) -> float:
        return self.successes / self.attacked if self.attacked else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.successes, self.attacked)


def summarise(outcomes: Sequence[Outcome], budget: int) -> Summary:
    of_successes = [outcome.queries for outcome in outcomes if outcome.success]
    unfinished = sum(outcome.ended == "interrupted" for outcome in outcomes)
    of_all = of_successes + [budget] * (len(outcomes) - len(of_successes))
    return Summary(
        attacked=len(outcomes),
        successes=len(of_successes),
        unfinished=unfinished,
        queries=sum(outcome.queries for outcome in outcomes),
        uncharged=sum(outcome.uncharged for outcome in outcomes),
        outside=sum(outcome.outside for outcome in outcomes),
        gradients=sum(outcome.gradients for outcome in outcomes),
        mean=fmean(of_successes) if of_successes else None,
        median=median(of_successes) if of_successes else None,
        mean_of_all=fmean(of_all) if of_all and not unfinished else None,
    )


def mean_where_both(outcomes: Sequence[Outcome], reference: Sequence[Outcome]) -> float | None:
    """The mean queries of an attack over the images that it and a reference attack fooled.

    Means over different successes cannot be compared: an attack that fools the harder images too pays for them.
    """
    fooled = {outcome.index for outcome in reference if outcome.success}
    queries = [outcome.queries for outcome in outcomes if outcome.success and outcome.index in fooled]
    return fmean(queries) if queries else None


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

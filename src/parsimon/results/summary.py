"""Records to numbers: rates, means, medians, intervals. Pure functions; nothing here runs or draws anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, median

import numpy as np

from parsimon.core.types import Outcome
from parsimon.results.statistics import Interval, interval_of, wilson_interval


@dataclass(frozen=True)
class Summary:
    """One row of a results table.

    The success rate is over every attacked (correctly classified) image; mean and median queries are over successes
    only. Unfinished images, which an interrupted run leaves, are among the attacked and not among the successes: the
    rate is then a lower bound. Intervals are of 95 %: Wilson's of the rate, the bootstrap's of queries, where there are
    at least two successes.
    """

    attacked: int
    unfinished: int
    queries: int  # charged, over all images
    uncharged: int
    outside: int
    out_of_range: int
    gradients: int
    mean_of_all: float | None  # over all images, a failure counted at the budget; None while some are unfinished
    of_successes: tuple[int, ...] = field(repr=False)  # queries of each

    @property
    def successes(self) -> int:
        return len(self.of_successes)

    @property
    def success_rate(self) -> float:
        return self.successes / self.attacked if self.attacked else 0.0

    @property
    def interval(self) -> Interval | None:
        """None while some images are unfinished, of which it would know nothing."""
        return None if self.unfinished else wilson_interval(self.successes, self.attacked)

    @property
    def mean(self) -> float | None:
        return fmean(self.of_successes) if self.of_successes else None

    @cached_property
    def mean_interval(self) -> Interval | None:
        return interval_of(self.of_successes, np.mean)

    @property
    def median(self) -> float | None:
        return median(self.of_successes) if self.of_successes else None

    @cached_property
    def median_interval(self) -> Interval | None:
        return interval_of(self.of_successes, np.median)


def summarise(outcomes: Sequence[Outcome], budget: int) -> Summary:
    of_successes = tuple(outcome.queries for outcome in outcomes if outcome.success)
    unfinished = sum(outcome.ended == "interrupted" for outcome in outcomes)
    of_all = [*of_successes, *[budget] * (len(outcomes) - len(of_successes))]
    return Summary(
        attacked=len(outcomes),
        unfinished=unfinished,
        queries=sum(outcome.queries for outcome in outcomes),
        uncharged=sum(outcome.uncharged for outcome in outcomes),
        outside=sum(outcome.outside for outcome in outcomes),
        out_of_range=sum(outcome.out_of_range for outcome in outcomes),
        gradients=sum(outcome.gradients for outcome in outcomes),
        mean_of_all=fmean(of_all) if of_all and not unfinished else None,
        of_successes=of_successes,
    )


def withstood(attacks: Iterable[Sequence[Outcome]]) -> int:
    """How many of the images that several attacks were on none of them fooled."""
    endings: dict[int, bool] = {}
    for outcome in (outcome for outcomes in attacks for outcome in outcomes):
        endings[outcome.index] = endings.get(outcome.index, False) or outcome.success
    return sum(not fooled for fooled in endings.values())


def where_fooled(reference: Sequence[Outcome], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes on the images that a reference attack fooled.

    Means over different successes cannot be compared: an attack that fools the harder images too pays for them.
    """
    fooled = {outcome.index for outcome in reference if outcome.success}
    return [outcome for outcome in outcomes if outcome.index in fooled]

"""Summaries of outcomes: rates, means, medians and their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, median

import numpy as np

from parsimon.core.types import Outcome
from parsimon.results.chance import mean_interval
from parsimon.results.statistics import Interval, interval_of, wilson_interval


@dataclass(frozen=True)
class Summary:
    """One row of a results table.

    The success rate is over all attacked (correctly classified) images; mean and median queries are over successes.
    While images are unfinished, rate, mean and median are None: only `success_at_least` is known. Intervals are 95%:
    Wilson for the rate, percentile bootstrap for queries (None with fewer than two successes).

    A label-only attack has radii. An image for which it found no adversarial image has an infinite one: it counts for
    the median, and not for the mean.
    """

    attacked: int
    unfinished: int
    queries: int  # charged, over all images
    uncharged: int
    outside: int
    out_of_range: int
    gradients: int
    mean_of_all: float | None  # a failure counts as the budget; None while images are unfinished
    of_successes: tuple[int, ...] = field(repr=False)  # queries of each success
    radii: tuple[float, ...] | None = field(default=None, repr=False)  # of each image; None if not label-only
    draws: int = 0  # fresh draws, over all images, on a random model
    error_rates: tuple[float, ...] = field(default=(), repr=False)  # in these, of each finished image
    flagged: int | None = None  # charged queries that a detector flagged, over all images; None: nothing watched
    first_flags: tuple[int, ...] = field(default=(), repr=False)  # number of the first flagged query of each image

    @property
    def successes(self) -> int:
        return len(self.of_successes)

    @property
    def success_at_least(self) -> float:
        """The success rate if no unfinished image will be fooled."""
        return self.successes / self.attacked if self.attacked else 0.0

    @property
    def success_rate(self) -> float | None:
        return None if self.unfinished else self.success_at_least

    @property
    def interval(self) -> Interval | None:
        """The interval of the success rate."""
        return None if self.unfinished else wilson_interval(self.successes, self.attacked)

    @property
    def mean(self) -> float | None:
        return fmean(self.of_successes) if self.of_successes and not self.unfinished else None

    @cached_property
    def mean_interval(self) -> Interval | None:
        return None if self.unfinished else interval_of(self.of_successes, np.mean)

    @property
    def median(self) -> float | None:
        return median(self.of_successes) if self.of_successes and not self.unfinished else None

    @cached_property
    def median_interval(self) -> Interval | None:
        return None if self.unfinished else interval_of(self.of_successes, np.median)

    @cached_property
    def error_rate(self) -> tuple[float, Interval | None] | None:
        """The mean share of fresh draws in which a random model erred, over all images, and its interval."""
        rates = self.error_rates
        if not rates or self.unfinished:
            return None
        return fmean(rates), mean_interval(rates)

    @property
    def with_radius(self) -> int | None:
        """Number of images that have a radius; None if the attack is not label-only."""
        return None if self.radii is None else sum(map(math.isfinite, self.radii))

    @property
    def mean_radius(self) -> float | None:
        """The mean over the images that have a radius."""
        found = [radius for radius in self.radii or () if math.isfinite(radius)]
        return fmean(found) if found and not self.unfinished else None

    @property
    def median_radius(self) -> float | None:
        """The median over all attacked images; None if it is infinite."""
        middle = median(self.radii) if self.radii and not self.unfinished else math.inf
        return middle if math.isfinite(middle) else None


def summarise(outcomes: Sequence[Outcome], budget: int, *, label_only: bool = False) -> Summary:
    """Return the summary of one attack's outcomes."""
    of_successes = tuple(outcome.queries for outcome in outcomes if outcome.success)
    unfinished = sum(outcome.ended == "interrupted" for outcome in outcomes)
    of_all = [*of_successes, *[budget] * (len(outcomes) - len(of_successes))]
    return Summary(
        attacked=len(outcomes),
        unfinished=unfinished,
        queries=sum(outcome.charged for outcome in outcomes),
        uncharged=sum(outcome.uncharged for outcome in outcomes),
        outside=sum(outcome.outside for outcome in outcomes),
        out_of_range=sum(outcome.out_of_range for outcome in outcomes),
        gradients=sum(outcome.gradients for outcome in outcomes),
        mean_of_all=fmean(of_all) if of_all and not unfinished else None,
        of_successes=of_successes,
        radii=tuple(math.inf if each.radius is None else each.radius for each in outcomes) if label_only else None,
        draws=sum(outcome.draws for outcome in outcomes),
        error_rates=tuple(outcome.errors / outcome.draws for outcome in outcomes if outcome.draws),
        flagged=sum(each.flagged or 0 for each in outcomes)
        if any(each.flagged is not None for each in outcomes)
        else None,
        first_flags=tuple(each.first_flag for each in outcomes if each.first_flag is not None),
    )


def count_robust(attacks: Iterable[Sequence[Outcome]]) -> int:
    """Return the number of images that no attack fooled."""
    outcomes = [outcome for each in attacks for outcome in each]
    return len({each.index for each in outcomes} - {each.index for each in outcomes if each.success})


def where_fooled(reference: Sequence[Outcome], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes on the images that a reference attack fooled.

    Means over different successes are not comparable: an attack that also fools harder images spends more queries.
    """
    fooled = {outcome.index for outcome in reference if outcome.success}
    return [outcome for outcome in outcomes if outcome.index in fooled]

"""Intervals, paired tests and success curves. Pure functions on outcomes; scipy.stats where it has the method.

scipy takes most of a second to import, so each function imports it when it is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parsimon.core.types import Outcome
from parsimon.errors import InputError

Interval = tuple[float, float]
Statistic = Callable[..., NDArray[Any]]  # called as statistic(samples, axis=-1), like numpy's mean and median

_BATCH_VALUES = 2**17  # values resampled at a time: one megabyte, which fits into a cache
_EXACT_UP_TO = 200  # differences; the exact sum takes cubic time, and above this the normal approximation is as good


@cache
def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a rate."""
    from scipy.stats import binomtest

    if trials == 0:
        return 0.0, 1.0
    # The interval does not depend on p. At the observed rate scipy skips the test, which takes ten times as long.
    low, high = binomtest(successes, trials, successes / trials).proportion_ci(confidence, method="wilson")
    return float(low), float(high)


def fisher(counts: tuple[int, int], trials: tuple[int, int]) -> float:
    """Return the p-value of Fisher's exact test that the second rate is no lower than the first."""
    from scipy.stats import hypergeom

    return float(hypergeom.cdf(counts[1], sum(trials), sum(counts), trials[1]))


def agresti_coull_interval(successes: float, trials: int) -> Interval:
    """Return the 95% interval of Agresti and Coull ("Approximate is better than exact", 1998) of a rate.

    It is a little wider than Wilson's, whose coverage falls to 90% for some rates near 0 and 1.
    """
    quantile = 1.959963984540054  # of the normal distribution, at 97.5%
    weight = trials + quantile**2
    centre = (successes + quantile**2 / 2) / weight
    reach = quantile * math.sqrt(centre * (1 - centre) / weight)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def bootstrap_interval(
    values: ArrayLike, statistic: Statistic, confidence: float = 0.95, draws: int = 10_000, seed: int = 0
) -> Interval:
    """Return the percentile bootstrap interval of a statistic (Efron and Tibshirani, 1993, chapter 13).

    The rows of a table of values are resampled as a whole, and the statistic receives each column as an argument.
    Percentile and not BCa: BCa relies on the jackknife, which is inconsistent for the median.
    """
    from scipy.stats import bootstrap

    sample = np.asarray(values, np.float64)
    if sample.ndim == 0 or len(sample) < 2:
        raise InputError(f"an interval needs at least 2 values; got {sample.size}: attack more images")
    if not 0 < confidence < 1 or draws < 1:
        raise InputError(f"confidence must lie between 0 and 1, and draws be positive; got {confidence} and {draws}")
    columns = tuple(np.atleast_2d(sample.T))
    with np.errstate(invalid="ignore"):  # scipy's own percentiles and standard error, of infinite ratios
        found = bootstrap(
            columns,
            statistic,
            n_resamples=draws,
            batch=max(1, _BATCH_VALUES // sample.size),
            vectorized=True,
            paired=len(columns) > 1,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).bootstrap_distribution
    tail = (1 - confidence) / 2
    # Outwards to the next drawn value: between two infinite ratios there is no number.
    return float(np.quantile(found, tail, method="lower")), float(np.quantile(found, 1 - tail, method="higher"))


def interval_of(values: ArrayLike, statistic: Statistic, **settings: Any) -> Interval | None:
    """Return the bootstrap interval, or None for fewer than two values."""
    return bootstrap_interval(values, statistic, **settings) if np.shape(values)[0] > 1 else None


@dataclass(frozen=True)
class Paired:
    """Two attacks, a and b, on the same images. Ratios are a's queries over b's, on the images that both fooled.

    Each is a ratio of the means or medians that a table shows, not a mean of ratios. None: too few images to compute.
    """

    both: int
    only_a: int
    only_b: int
    neither: int
    success_p: float  # McNemar's exact test: an image that one attack alone fooled is as likely to be a's as b's
    difference: float  # a's success rate minus b's
    difference_interval: Interval  # Newcombe's
    mean_ratio: float | None
    mean_ratio_interval: Interval | None
    median_ratio: float | None
    median_ratio_interval: Interval | None
    queries_p: float | None  # Wilcoxon's signed-rank test on the differences in queries


def paired(
    a: Sequence[Outcome],
    b: Sequence[Outcome],
    budget: int,
    confidence: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> Paired:
    """Compare two attacks image by image. A success after more queries than the budget is a failure."""
    queries_a, queries_b = _queries(a, budget), _queries(b, budget)
    if queries_a.keys() != queries_b.keys() or not queries_a:
        odd = sorted(queries_a.keys() ^ queries_b.keys())
        what = f"image {odd[0]} (and {len(odd) - 1} more) has one outcome only" if odd else "no images"
        raise InputError(f"paired attacks must be on the same images; got {what}: run both on the same data")
    pairs = np.array([(queries_a[index], queries_b[index]) for index in queries_a], np.float64)
    fooled_a, fooled_b = np.isfinite(pairs).T
    both, only_a = int((fooled_a & fooled_b).sum()), int((fooled_a & ~fooled_b).sum())
    only_b, neither = int((~fooled_a & fooled_b).sum()), int((~fooled_a & ~fooled_b).sum())
    shared = pairs[fooled_a & fooled_b]
    ratios = [partial(_ratio, statistic) for statistic in (np.mean, np.median)]
    mean_ratio, median_ratio = (float(ratio(shared[:, 0], shared[:, 1], axis=0)) if both else None for ratio in ratios)
    mean_interval, median_interval = (
        interval_of(shared, ratio, confidence=confidence, draws=draws, seed=seed) for ratio in ratios
    )
    return Paired(
        both=both,
        only_a=only_a,
        only_b=only_b,
        neither=neither,
        success_p=mcnemar(only_a, only_b),
        difference=(only_a - only_b) / len(pairs),
        difference_interval=newcombe_interval(both, only_a, only_b, neither, confidence),
        mean_ratio=mean_ratio,
        mean_ratio_interval=mean_interval,
        median_ratio=median_ratio,
        median_ratio_interval=median_interval,
        queries_p=wilcoxon(shared[:, 0] - shared[:, 1]) if both else None,
    )


def mcnemar(only_a: int, only_b: int) -> float:
    """Return the two-sided p-value of McNemar's exact test on the images that exactly one of two attacks fooled."""
    from scipy.stats import binomtest

    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def newcombe_interval(both: int, only_a: int, only_b: int, neither: int, confidence: float = 0.95) -> Interval:
    """Return the interval of the difference between two paired success rates.

    Method 10 of Newcombe, "Improved confidence intervals for the difference between binomial proportions based on
    paired data", Statistics in Medicine 17 (1998): the two Wilson intervals, joined with their correlation.
    """
    images = both + only_a + only_b + neither
    fooled_a, fooled_b = both + only_a, both + only_b
    (low_a, high_a), (low_b, high_b) = (wilson_interval(count, images, confidence) for count in (fooled_a, fooled_b))
    rate_a, rate_b = fooled_a / images, fooled_b / images
    margins = fooled_a * (images - fooled_a) * fooled_b * (images - fooled_b)
    excess = both * neither - only_a * only_b
    shrunk = max(excess - images / 2, 0) if excess > 0 else excess  # the paper's continuity correction
    correlation = shrunk / math.sqrt(margins) if margins else 0.0

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one * one - 2 * correlation * one * other + other * other))

    low = rate_a - rate_b - reach(rate_a - low_a, high_b - rate_b)
    high = rate_a - rate_b + reach(high_a - rate_a, rate_b - low_b)
    return max(-1.0, low), min(1.0, high)


def wilcoxon(differences: ArrayLike) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test. Ties get their mean rank; zeros are dropped.

    Exact for up to 200 differences. scipy is exact only without ties, and query counts often tie.
    """
    from scipy import stats

    nonzero = np.asarray(differences, np.float64)
    nonzero = nonzero[nonzero != 0]
    if len(nonzero) > _EXACT_UP_TO:
        return float(stats.wilcoxon(nonzero, method="asymptotic").pvalue)
    ranks = (2 * stats.rankdata(np.abs(nonzero))).astype(int)  # doubled, since mean ranks may be half numbers
    positive, total = int(ranks[nonzero > 0].sum()), int(ranks.sum())
    chances = np.ones(1)  # of each rank sum, if every rank is positive with probability 1/2
    for rank in ranks:
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    return min(1.0, 2 * float(chances[: min(positive, total - positive) + 1].sum()))


@dataclass(frozen=True, eq=False)
class Curve:
    """Cumulative success against queries: a step function that rises to `fooled` images at `queries`.

    Attributes:
        queries: Ascending.
        fooled: Number of images fooled within each of `queries`. Beyond `known` it is a lower bound.
        images: Number of attacked images.
        budget: Queries allowed per image.
        known: Number of queries up to which every image's status is known: the budget, or the least queries that an
            unfinished image has had.
    """

    queries: NDArray[np.int64]
    fooled: NDArray[np.int64]
    images: int
    budget: int
    known: int

    @property
    def rate(self) -> NDArray[np.float64]:
        return self.fooled / self.images

    def count_at(self, queries: ArrayLike) -> NDArray[np.int64]:
        """Return the number of images fooled within that many queries, which must be `known`."""
        wanted = np.asarray(queries)
        if wanted.size and wanted.max() > self.known:
            limit = "its budget" if self.known == self.budget else "the least queries of an unfinished image"
            raise InputError(f"the curve is known up to {limit}, {self.known:,} queries; got {wanted.max():,}")
        steps: NDArray[np.int64] = np.concatenate([[0], self.fooled])
        return steps[np.searchsorted(self.queries, wanted, side="right")]

    def at(self, queries: ArrayLike) -> NDArray[np.float64]:
        """Return the success rate within that many queries."""
        return self.count_at(queries) / self.images


def curve(outcomes: Sequence[Outcome], budget: int) -> Curve:
    """Return the success curve over all attacked images."""
    if not outcomes:
        raise InputError("a curve needs at least one attacked image; got none")
    queries = [each.queries for each in outcomes if each.success and each.queries <= budget]
    rises, counts = np.unique(np.array(queries, np.int64), return_counts=True)
    return Curve(rises, np.cumsum(counts), len(outcomes), budget, known_queries(outcomes, budget))


def known_queries(outcomes: Sequence[Outcome], budget: int) -> int:
    """Return up to how many queries every image is known: the least queries of an unfinished one, or the budget."""
    return min([budget, *(each.queries for each in outcomes if each.ended == "interrupted")])


def median_radii(outcomes: Sequence[Outcome], budget: int) -> list[tuple[int, float]]:
    """Return the queries at which the median radius of a label-only attack falls, each with the median from there on.

    An image counts as infinite until an adversarial image is found, so there is none before half of them have one. The
    list ends where the images are no longer known.
    """
    known = known_queries(outcomes, budget)
    places = {each.index: place for place, each in enumerate(outcomes)}
    steps = [(query, places[each.index], radius) for each in outcomes for query, radius in each.radii if query <= known]
    now = np.full(len(outcomes), np.inf)
    found: list[tuple[int, float]] = []
    for query, group in groupby(sorted(steps), key=itemgetter(0)):
        for _, place, radius in group:
            now[place] = radius
        middle = float(np.median(now))
        if middle < (found[-1][1] if found else math.inf):
            found.append((query, middle))
    return found


def band(of: Curve, at: ArrayLike, confidence: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the pointwise Wilson interval of a curve at some numbers of queries, as lower and upper ends."""
    counts, place = np.unique(of.count_at(at), return_inverse=True)
    ends = np.array([wilson_interval(int(count), of.images, confidence) for count in counts]).reshape(-1, 2)[place]
    return ends[..., 0], ends[..., 1]


def mean_band(curves: Sequence[Curve], at: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of several settings' curves (the paper's supplement D).

    The settings are the whole population, so the deviation divides by their number.
    """
    if not curves:
        raise InputError("a mean needs at least one curve; got none")
    rates = np.stack([each.at(at) for each in curves])
    return rates.mean(axis=0), rates.std(axis=0)


def _queries(outcomes: Sequence[Outcome], budget: int) -> dict[int, float]:
    """Return each image's queries until its success within the budget; infinite for a failure."""
    queries: dict[int, float] = {}
    for each in outcomes:
        if each.index in queries:
            raise InputError(f"paired attacks must have one outcome per image; got two of image {each.index}")
        if each.ended == "interrupted" and each.queries < budget:
            what = f"image {each.index} is unfinished after {each.queries:,} queries"
            raise InputError(f"paired attacks must be finished; {what}: resume the run, or compare at a smaller budget")
        queries[each.index] = each.queries if each.success and each.queries <= budget else math.inf
    return queries


def _ratio(statistic: Statistic, a: NDArray[Any], b: NDArray[Any], axis: int) -> NDArray[Any]:
    of_a, of_b = statistic(a, axis=axis), statistic(b, axis=axis)
    with np.errstate(divide="ignore", invalid="ignore"):  # a success can take no charged query at all
        return np.where(of_b > 0, of_a / of_b, math.inf)

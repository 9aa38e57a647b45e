"""What a number, a curve, or a difference between two attacks is worth. Pure functions on outcomes; numpy alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parsimon.core.types import Outcome
from parsimon.errors import InputError

Interval = tuple[float, float]
Statistic = Callable[..., NDArray[Any]]  # called as statistic(samples, axis=1), as numpy's mean and median can be

_AT_ONCE = 2**17  # numbers resampled at once, whatever there are in all: a megabyte, which stays in a cache
_EXACT_UP_TO = 200  # differences; with more, the normal approximation is as good, and the exact sum grows as their cube


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """The Wilson score interval of a rate; it stays within [0, 1] and means something at 0 and 1 too."""
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = successes / trials
    centre = rate + z * z / (2 * trials)
    spread = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def bootstrap_interval(
    values: ArrayLike, statistic: Statistic, confidence: float = 0.95, draws: int = 10_000, seed: int = 0
) -> Interval:
    """The percentile bootstrap interval of a statistic (Efron and Tibshirani, 1993, chapter 13).

    The values are resampled along their first axis, so that rows of a table stay whole. Percentile and not BCa, since
    BCa leans on the jackknife, which is inconsistent for the median.
    """
    sample = np.asarray(values, np.float64)
    if sample.ndim == 0 or len(sample) < 2:
        raise InputError(f"an interval needs at least 2 values; got {sample.size}: attack more images")
    if not 0 < confidence < 1 or draws < 1:
        raise InputError(f"confidence must lie between 0 and 1, and draws be positive; got {confidence} and {draws}")
    rng = np.random.default_rng(seed)
    found = (_medians if statistic is np.median and sample.ndim == 1 else _resampled)(sample, statistic, draws, rng)
    tail = (1 - confidence) / 2
    # Outwards to the next drawn value: what lies between two infinite ratios is not a number.
    return float(np.quantile(found, tail, method="lower")), float(np.quantile(found, 1 - tail, method="higher"))


def _resampled(
    sample: NDArray[np.float64], statistic: Statistic, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The statistic of each of so many samples, drawn with replacement."""
    rows = max(1, _AT_ONCE // sample.size)
    drawn = [
        statistic(sample[rng.integers(len(sample), size=(min(rows, draws - begun), len(sample)))], axis=1)
        for begun in range(0, draws, rows)
    ]
    return np.concatenate(drawn)


def _medians(sample: NDArray[np.float64], _: Statistic, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """The same for the median, without drawing the samples: of ten thousand images that would take seconds.

    To draw n of n sorted values is to draw n uniform numbers, each of which points at a value. Their middle ones, in
    order, are all that the median depends on, and those have known distributions.
    """
    count = len(sample)
    middle = (count + 1) // 2
    low = rng.beta(middle, count + 1 - middle, draws)
    high = low if count % 2 else low + (1 - low) * rng.beta(1, count - middle, draws)
    places = (count * np.stack([low, high])).astype(np.intp).clip(0, count - 1)
    medians: NDArray[np.float64] = np.sort(sample)[places].mean(axis=0)
    return medians


def interval_of(values: ArrayLike, statistic: Statistic, **settings: Any) -> Interval | None:
    """The bootstrap interval, or None where there are too few values for one."""
    return bootstrap_interval(values, statistic, **settings) if np.shape(values)[0] > 1 else None


@dataclass(frozen=True)
class Paired:
    """Two attacks, a and b, on the same images. Ratios are a's queries over b's, on the images that both fooled.

    They are ratios of the means and of the medians that a table shows, not means of ratios: of two attacks with
    ratios 2 and 1/2, neither is the better. What cannot be said of so few images is None.
    """

    both: int
    only_a: int
    only_b: int
    neither: int
    success_p: float  # McNemar's exact test: that an image which one alone fooled is as likely to be a's as b's
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
    """Compare two attacks image by image; a success after more queries than the budget is a failure."""
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
    intervals = [
        interval_of(shared, ratio, confidence=confidence, draws=draws, seed=seed) for ratio in (_of_means, _of_medians)
    ]
    return Paired(
        both=both,
        only_a=only_a,
        only_b=only_b,
        neither=neither,
        success_p=mcnemar(only_a, only_b),
        difference=(only_a - only_b) / len(pairs),
        difference_interval=newcombe_interval(both, only_a, only_b, neither, confidence),
        mean_ratio=float(_of_means(shared, axis=0)) if both else None,
        mean_ratio_interval=intervals[0],
        median_ratio=float(_of_medians(shared, axis=0)) if both else None,
        median_ratio_interval=intervals[1],
        queries_p=wilcoxon(shared[:, 0] - shared[:, 1]) if both else None,
    )


def mcnemar(only_a: int, only_b: int) -> float:
    """The two-sided p-value of McNemar's exact test: a fair coin for each image that exactly one of two fooled."""
    tosses, term, tail = only_a + only_b, 1, 0
    for heads in range(min(only_a, only_b) + 1):
        tail += term  # the binomial coefficient, as an integer: nothing underflows
        term = term * (tosses - heads) // (heads + 1)
    return min(1.0, 2 * tail / (1 << tosses))


def newcombe_interval(both: int, only_a: int, only_b: int, neither: int, confidence: float = 0.95) -> Interval:
    """The interval of the difference between two paired success rates.

    Method 10 of Newcombe, "Improved confidence intervals for the difference between binomial proportions based on
    paired data", Statistics in Medicine 17 (1998): the two Wilson intervals, joined with their correlation.
    """
    images = both + only_a + only_b + neither
    fooled_a, fooled_b = both + only_a, both + only_b
    (low_a, high_a), (low_b, high_b) = (wilson_interval(count, images, confidence) for count in (fooled_a, fooled_b))
    rate_a, rate_b = fooled_a / images, fooled_b / images
    margins = fooled_a * (images - fooled_a) * fooled_b * (images - fooled_b)
    excess = both * neither - only_a * only_b
    shrunk = max(excess - images / 2, 0) if excess > 0 else excess  # his correction for continuity
    correlation = shrunk / math.sqrt(margins) if margins else 0.0

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one * one - 2 * correlation * one * other + other * other))

    low = rate_a - rate_b - reach(rate_a - low_a, high_b - rate_b)
    high = rate_a - rate_b + reach(high_a - rate_a, rate_b - low_b)
    return max(-1.0, low), min(1.0, high)


def wilcoxon(differences: ArrayLike) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test, equal differences at their mean rank and zeros left out.

    Exact, ties and all, for up to 200 differences; beyond, by the normal approximation without continuity correction.
    """
    nonzero = np.asarray(differences, np.float64)
    nonzero = nonzero[nonzero != 0]
    _, place, equal = np.unique(np.abs(nonzero), return_inverse=True, return_counts=True)
    doubled = (2 * np.cumsum(equal) - equal + 1)[place]  # twice the mean ranks, which are whole or half numbers
    positive, total = int(doubled[nonzero > 0].sum()), int(doubled.sum())
    if len(nonzero) > _EXACT_UP_TO:
        deviation = math.sqrt(float((doubled.astype(np.float64) ** 2).sum())) / 2
        return math.erfc(abs(positive - total / 2) / deviation / math.sqrt(2))
    chances = np.ones(1)  # of each sum, when every rank is counted or not by the toss of a coin
    for rank in doubled:
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    smaller = min(positive, total - positive)
    return min(1.0, 2 * float(chances[: smaller + 1].sum()))


@dataclass(frozen=True, eq=False)
class Curve:
    """Cumulative success against queries: a step function, given by where it rises and to how many images."""

    queries: NDArray[np.int64]  # at which it rises, in order
    fooled: NDArray[np.int64]  # images fooled within so many
    images: int
    budget: int

    @property
    def rate(self) -> NDArray[np.float64]:
        return self.fooled / self.images

    def count_at(self, queries: ArrayLike) -> NDArray[np.int64]:
        """Images fooled within so many queries."""
        asked = np.asarray(queries)
        if asked.size and asked.max() > self.budget:
            raise InputError(f"the curve is known up to its budget, {self.budget:,} queries; got {asked.max():,}")
        steps: NDArray[np.int64] = np.concatenate([[0], self.fooled])
        return steps[np.searchsorted(self.queries, asked, side="right")]

    def at(self, queries: ArrayLike) -> NDArray[np.float64]:
        """The success rate within so many queries."""
        return self.count_at(queries) / self.images


def curve(outcomes: Sequence[Outcome], budget: int) -> Curve:
    """The share of all attacked images that is fooled within so many queries. The unfinished count as not fooled."""
    if not outcomes:
        raise InputError("a curve needs at least one attacked image; got none")
    queries = [each.queries for each in outcomes if each.success and each.queries <= budget]
    rises, counts = np.unique(np.array(queries, np.int64), return_counts=True)
    return Curve(rises, np.cumsum(counts), len(outcomes), budget)


class Spread(NamedTuple):
    """A mean and a standard deviation at each number of queries."""

    at: NDArray[np.float64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


def band(of: Curve, at: ArrayLike, confidence: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Wilson's interval at each of some numbers of queries: for one of them at a time, not for the curve as a whole."""
    counts, place = np.unique(of.count_at(at), return_inverse=True)
    ends = np.array([wilson_interval(int(count), of.images, confidence) for count in counts]).reshape(-1, 2)[place]
    return ends[..., 0], ends[..., 1]


def mean_band(curves: Sequence[Curve], at: ArrayLike) -> Spread:
    """Mean and standard deviation of several settings' curves (the paper's supplement D).

    The settings are all there are, not a sample of more: the deviation divides by their number.
    """
    if not curves:
        raise InputError("a mean needs at least one curve; got none")
    queries = np.asarray(at, np.float64)
    rates = np.stack([each.at(queries) for each in curves])
    return Spread(queries, rates.mean(axis=0), rates.std(axis=0))


def _queries(outcomes: Sequence[Outcome], budget: int) -> dict[int, float]:
    """The queries of each image's success within the budget, infinite for a failure."""
    queries: dict[int, float] = {}
    for each in outcomes:
        if each.index in queries:
            raise InputError(f"paired attacks must have one outcome an image; got two of image {each.index}")
        if each.ended == "interrupted" and each.queries < budget:
            what = f"image {each.index} is unfinished after {each.queries:,} queries"
            raise InputError(f"paired attacks must be finished; {what}: resume the run, or compare at a smaller budget")
        queries[each.index] = each.queries if each.success and each.queries <= budget else math.inf
    return queries


def _ratio(statistic: Statistic, pairs: NDArray[Any], axis: int) -> NDArray[Any]:
    of_a, of_b = statistic(pairs[..., 0], axis=axis), statistic(pairs[..., 1], axis=axis)
    with np.errstate(divide="ignore", invalid="ignore"):  # free successes can have taken no charged query at all
        return np.where(of_b > 0, of_a / of_b, math.inf)


_of_means, _of_medians = partial(_ratio, np.mean), partial(_ratio, np.median)

"""Intervals, tests and curves agree with enumeration, with earlier versions and with their stated coverage."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from parsimon.core.types import Ended, Outcome
from parsimon.errors import InputError
from parsimon.results.statistics import (
    band,
    bootstrap_interval,
    curve,
    mcnemar,
    mean_band,
    newcombe_interval,
    paired,
    wilcoxon,
    wilson_interval,
)
from parsimon.results.summary import summarise

property_test = settings(max_examples=100, deadline=None, database=None)
BUDGET = 100
ends = st.lists(st.none() | st.integers(1, BUDGET), min_size=1, max_size=30)  # queries of a success; None: a failure


def outcomes(*queries: int | None, ended: Ended = "budget") -> list[Outcome]:
    return [
        Outcome(index, each is not None, BUDGET if each is None else each, ended if each is None else "success")
        for index, each in enumerate(queries)
    ]


# --- the bootstrap ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statistic", [np.mean, np.median])
@pytest.mark.parametrize("confidence", [0.5, 0.8])
@pytest.mark.parametrize("values", [[1.0, 10.0, 1000.0], [1.0, 10.0, 70.0, 1000.0]], ids=len)
def test_on_few_values_the_interval_is_that_of_all_samples(
    statistic: Any, confidence: float, values: list[float]
) -> None:
    every = np.sort([statistic(sample) for sample in product(values, repeat=len(values))])
    tail = (1 - confidence) / 2
    low, high = bootstrap_interval(values, statistic, confidence, draws=50_000)
    # No level lies near a jump of the samples' distribution, so that enough draws find the very same values.
    assert low == pytest.approx(every[math.floor(len(every) * tail)])
    assert high == pytest.approx(every[math.ceil(len(every) * (1 - tail)) - 1])


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [(np.mean, (184.56, 297.9266666666667)), (np.median, (120.0, 172.5))],
)
def test_the_interval_is_that_of_version_0_3(statistic: Any, expected: tuple[float, float]) -> None:
    """Which drew its samples itself, and medians from their own distribution."""
    values = np.random.default_rng(1).lognormal(5, 1.2, 150).round()
    assert bootstrap_interval(values, statistic) == pytest.approx(expected, rel=0.02)


def test_the_interval_of_a_mean_is_close_to_the_normal_one() -> None:
    values = np.random.default_rng(2).normal(50, 5, 400)
    reach = 1.959964 * values.std() / math.sqrt(400)
    assert bootstrap_interval(values, np.mean) == pytest.approx(
        (values.mean() - reach, values.mean() + reach), abs=0.05
    )


@pytest.mark.parametrize(("statistic", "truth"), [(np.mean, 1.0), (np.median, math.log(2))])
def test_it_covers_the_truth_about_as_often_as_it_says(statistic: Any, truth: float) -> None:
    rng = np.random.default_rng(3)
    intervals = [bootstrap_interval(rng.exponential(size=80), statistic, draws=400, seed=seed) for seed in range(400)]
    covered = np.mean([low <= truth <= high for low, high in intervals])
    # The simulation's standard deviation is 0.011; the percentile bootstrap falls short of 95 % by a point or two.
    assert 0.90 <= covered <= 0.98


def test_it_depends_on_its_seed_alone_and_not_on_the_size_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).lognormal(size=40)
    whole = bootstrap_interval(values, np.mean, draws=500)
    assert whole == bootstrap_interval(values, np.mean, draws=500)
    assert whole != bootstrap_interval(values, np.mean, draws=500, seed=1)
    sizes = []

    def noting(samples: Any, axis: int) -> Any:
        sizes.append(np.size(samples) // 40)
        return samples.mean(axis)

    monkeypatch.setattr("parsimon.results.statistics._BATCH_VALUES", 400)
    assert bootstrap_interval(values, noting, draws=500) == whole
    assert max(sizes) == 10


def test_rows_stay_whole() -> None:
    rows = np.stack([np.arange(20.0), 3 * np.arange(20.0)], axis=1) + 1e-9
    low, high = bootstrap_interval(rows, lambda a, b, axis: b.sum(axis) / a.sum(axis), draws=200)
    assert low == pytest.approx(3)
    assert high == pytest.approx(3)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([], {}, "at least 2 values; got 0"),
        ([5], {}, "at least 2 values; got 1"),
        ([1, 2], {"confidence": 1.0}, "between 0 and 1"),
        ([1, 2], {"draws": 0}, "be positive"),
    ],
)
def test_what_has_no_interval_is_refused(values: list[float], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bootstrap_interval(values, np.mean, **options)


# --- success, paired --------------------------------------------------------------------------------------------------


@property_test
@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemars_p_value_is_that_of_a_fair_coin(only_a: int, only_b: int) -> None:
    tosses = only_a + only_b
    tail = sum(math.comb(tosses, heads) for heads in range(min(only_a, only_b) + 1))
    assert mcnemar(only_a, only_b) == pytest.approx(min(1.0, 2 * tail / 2**tosses), rel=1e-10)


@pytest.mark.parametrize(
    ("only_a", "only_b", "expected"),
    [
        (12, 30, 0.007915897334896727),
        (3, 40, 3.0213413992896676e-09),
        (410, 530, 0.00010181731024294885),
        (4900, 5100, 0.04658552770494739),
    ],
)
def test_mcnemars_p_value_is_that_of_version_0_3(only_a: int, only_b: int, expected: float) -> None:
    assert mcnemar(only_a, only_b) == pytest.approx(expected, rel=1e-11)


def test_mcnemars_p_value_survives_ten_thousand_images() -> None:
    assert mcnemar(5000, 5000) == 1
    assert 0 <= mcnemar(0, 10_000) < 1e-300


def test_the_interval_of_the_difference_is_as_published() -> None:
    # Fagerland, Lydersen and Laake, Statistical Analysis of Contingency Tables (2017), chapter 8: 59, 6, 16 and 80.
    assert newcombe_interval(59, 6, 16, 80) == pytest.approx((-0.1186, -0.0046), abs=5e-5)


def test_without_correlation_the_difference_has_newcombes_interval_of_unpaired_rates() -> None:
    (low_a, high_a), (low_b, high_b) = wilson_interval(20, 40), wilson_interval(30, 40)
    low = -0.25 - math.hypot(0.5 - low_a, high_b - 0.75)
    high = -0.25 + math.hypot(high_a - 0.5, 0.75 - low_b)
    assert newcombe_interval(15, 5, 15, 5) == pytest.approx((low, high))


@property_test
@given(st.tuples(*[st.integers(0, 40)] * 4).filter(any))
def test_the_interval_holds_the_difference_and_mirrors_when_the_attacks_are_swapped(table: tuple[int, ...]) -> None:
    both, only_a, only_b, neither = table
    low, high = newcombe_interval(both, only_a, only_b, neither)
    assert -1 <= low <= (only_a - only_b) / sum(table) <= high <= 1
    swapped = newcombe_interval(both, only_b, only_a, neither)
    assert swapped == pytest.approx((-high, -low))
    withstood = newcombe_interval(neither, only_b, only_a, both)  # robustness instead of success
    assert withstood == pytest.approx((-high, -low))


def test_the_interval_covers_the_true_difference_about_as_often_as_it_says() -> None:
    shares = [0.45, 0.15, 0.05, 0.35]
    tables = np.random.default_rng(4).multinomial(60, shares, size=2000)
    intervals = [newcombe_interval(*map(int, table)) for table in tables]
    assert 0.93 <= np.mean([low <= 0.10 <= high for low, high in intervals]) <= 0.975


# --- queries, paired --------------------------------------------------------------------------------------------------

small_differences = st.lists(st.integers(-6, 6), min_size=1, max_size=8)


def enumerated(differences: list[int]) -> float:
    """By Wilcoxon's definition: every way to sign the ranks, and how many are at least as lopsided."""
    nonzero = [each for each in differences if each]
    sizes = [abs(each) for each in nonzero]
    ranks = [sum(other < size for other in sizes) + (sizes.count(size) + 1) / 2 for size in sizes]
    observed = abs(sum(math.copysign(rank, each) for rank, each in zip(ranks, nonzero, strict=True)))
    sums = [
        abs(sum(sign * rank for sign, rank in zip(signs, ranks, strict=True)))
        for signs in product((-1, 1), repeat=len(ranks))
    ]
    return sum(each >= observed for each in sums) / len(sums)


@property_test
@given(small_differences)
def test_the_signed_rank_test_is_exact_with_ties_and_zeros(differences: list[int]) -> None:
    assert wilcoxon(differences) == pytest.approx(enumerated(differences))


def test_the_signed_rank_test_is_scipys_where_scipy_is_exact() -> None:
    differences = np.random.default_rng(5).normal(0.3, 1, 40)
    assert wilcoxon(differences) == pytest.approx(scipy.stats.wilcoxon(differences, method="exact").pvalue)


def test_the_normal_approximation_is_close_to_the_exact_test_where_it_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    differences = np.random.default_rng(6).normal(2, 20, 300).round()
    approximate = wilcoxon(differences)
    monkeypatch.setattr("parsimon.results.statistics._EXACT_UP_TO", 300)
    assert wilcoxon(differences) == pytest.approx(approximate, rel=0.02)
    assert wilcoxon(differences) != approximate


@pytest.mark.parametrize(
    ("count", "scale", "expected"),
    [
        (13, 6, 0.072265625),
        (30, 9, 0.033227577805519104),
        (60, 12, 0.006908746773570902),
        (200, 40, 0.18616785856347146),
        (201, 40, 0.00014176649184907426),
        (800, 90, 1.7272532670420578e-17),
    ],
)
def test_the_signed_rank_test_is_that_of_version_0_3(count: int, scale: int, expected: float) -> None:
    differences = np.random.default_rng(count).normal(scale / 4, scale, count).round()
    assert wilcoxon(differences) == pytest.approx(expected, rel=1e-11)


def test_no_difference_at_all_is_no_evidence() -> None:
    assert wilcoxon([]) == 1
    assert wilcoxon([0, 0, 0]) == 1


# --- all of it, paired ------------------------------------------------------------------------------------------------


def test_a_pair_by_hand() -> None:
    found = paired(outcomes(10, 20, 60, None, 5), outcomes(20, 40, None, None, 30), BUDGET)
    assert (found.both, found.only_a, found.only_b, found.neither) == (3, 1, 0, 1)
    assert found.difference == pytest.approx(0.2)
    assert found.difference_interval == newcombe_interval(3, 1, 0, 1)
    assert found.success_p == 1
    assert found.mean_ratio == pytest.approx((10 + 20 + 5) / (20 + 40 + 30))
    assert found.median_ratio == pytest.approx(10 / 30)
    assert found.queries_p == pytest.approx(2 / 8)  # three differences, all negative
    low, high = found.mean_ratio_interval or (0, 0)
    assert 5 / 30 <= low < 35 / 90 < high <= 1 / 2


@pytest.mark.parametrize("statistic", [np.mean, np.median])
def test_the_interval_of_a_ratio_holds_the_middle_of_resampled_ratios(statistic: Any) -> None:
    rng = np.random.default_rng(7)
    b = rng.lognormal(5, 1, 80).round() + 1
    a = (b * rng.lognormal(-0.5, 0.5, 80)).round() + 1
    found = paired(outcomes(*map(int, a)), outcomes(*map(int, b)), budget=10**9)
    samples = [rng.integers(80, size=80) for _ in range(4000)]
    expected = np.quantile([statistic(a[rows]) / statistic(b[rows]) for rows in samples], [0.025, 0.975])
    interval = found.mean_ratio_interval if statistic is np.mean else found.median_ratio_interval
    assert interval == pytest.approx(tuple(expected), abs=0.03)


@property_test
@given(ends, st.data())
def test_swapping_the_attacks_mirrors_everything(mine: list[int | None], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.none() | st.integers(1, BUDGET), min_size=len(mine), max_size=len(mine)))
    one = paired(outcomes(*mine), outcomes(*others), BUDGET, draws=50)
    two = paired(list(reversed(outcomes(*others))), outcomes(*mine), BUDGET, draws=50)  # in any order
    assert (one.both, one.only_a, one.only_b, one.neither) == (two.both, two.only_b, two.only_a, two.neither)
    assert one.both + one.only_a + one.only_b + one.neither == len(mine)
    assert one.difference == -two.difference
    assert one.success_p == two.success_p
    assert one.queries_p == pytest.approx(two.queries_p)
    if one.mean_ratio is None or two.mean_ratio is None:
        assert one.both == 0
    else:
        assert one.mean_ratio * two.mean_ratio == pytest.approx(1)
    assert (one.mean_ratio_interval is None) == (one.both < 2)


def test_a_success_past_the_budget_is_a_failure() -> None:
    found = paired(outcomes(10, 60), outcomes(60, 50), budget=50)
    assert (found.both, found.only_a, found.only_b, found.neither) == (0, 1, 1, 0)
    assert found.mean_ratio is None
    assert found.queries_p is None


def test_successes_without_a_charged_query_have_a_ratio_too() -> None:
    found = paired(outcomes(10, 20, 30), outcomes(0, 0, 30), BUDGET)
    assert found.median_ratio == math.inf
    assert found.mean_ratio_interval is not None
    assert found.mean_ratio_interval[1] == math.inf


def test_pairs_that_are_none_are_refused() -> None:
    three = outcomes(1, 2, 3)
    with pytest.raises(InputError, match=r"image 2 \(and 0 more\) has one outcome only"):
        paired(three, three[:2], BUDGET)
    with pytest.raises(InputError, match="no images"):
        paired([], [], BUDGET)
    with pytest.raises(InputError, match="two of image 0"):
        paired([three[0], three[0]], three, BUDGET)
    unfinished = [*three[:2], Outcome(2, False, 40, "interrupted")]
    with pytest.raises(InputError, match="image 2 is unfinished after 40 queries"):
        paired(unfinished, three, BUDGET)
    assert paired(unfinished, three, budget=40).only_b == 1


# --- curves -----------------------------------------------------------------------------------------------------------


@property_test
@given(ends, st.integers(0, BUDGET))
def test_a_curve_counts_the_successes_so_far(queries: list[int | None], at: int) -> None:
    made = curve(outcomes(*queries), BUDGET)
    by_hand = sum(each is not None and each <= at for each in queries)
    assert made.count_at(at) == by_hand
    assert made.at([at, BUDGET]) == pytest.approx(
        [by_hand / len(queries), summarise(outcomes(*queries), 1).success_rate]
    )
    assert np.all(np.diff(made.queries) > 0)
    assert np.all(np.diff(made.rate) > 0)
    assert np.array_equal(made.rate, made.at(made.queries))


def test_a_curve_ends_at_its_budget() -> None:
    made = curve(outcomes(10, 20, 60, None), budget=50)
    assert made.queries.tolist() == [10, 20]
    assert made.rate.tolist() == [0.25, 0.5]
    with pytest.raises(InputError, match="up to its budget, 50 queries; got 51"):
        made.at(51)
    with pytest.raises(InputError, match="at least one attacked image"):
        curve([], BUDGET)


def test_a_curve_is_known_up_to_the_least_queries_of_an_unfinished_image() -> None:
    stopped = [Outcome(7, False, 31, "interrupted"), Outcome(8, False, 40, "interrupted")]
    made = curve([*outcomes(10, 35, None), *stopped], BUDGET)
    assert made.known == 31
    assert made.count_at([9, 10, 31]).tolist() == [0, 1, 1]
    with pytest.raises(InputError, match="least queries of an unfinished image, 31 queries; got 32"):
        made.at(32)
    assert curve([*outcomes(10), Outcome(1, False, 0, "interrupted")], BUDGET).known == 0
    assert curve(outcomes(10, None), BUDGET).known == BUDGET
    # At a budget that every image reached, an interruption does not matter.
    assert curve([*outcomes(10), *stopped], 30).known == 30


@property_test
@given(ends, st.lists(st.integers(0, BUDGET), min_size=1, max_size=8))
def test_the_band_is_wilsons_at_each_point(queries: list[int | None], at: list[int]) -> None:
    made = curve(outcomes(*queries), BUDGET)
    low, high = band(made, at, 0.9)
    expected = [wilson_interval(int(count), len(queries), 0.9) for count in made.count_at(at)]
    assert list(zip(low, high, strict=True)) == expected


@property_test
@given(st.lists(ends, min_size=1, max_size=5))
def test_the_mean_of_curves_is_taken_at_each_number_of_queries(several: list[list[int | None]]) -> None:
    at = [0, 1, 10, BUDGET]
    mean, deviation = mean_band([curve(outcomes(*queries), BUDGET) for queries in several], at)
    for number, limit in enumerate(at):
        rates = [sum(each is not None and each <= limit for each in queries) / len(queries) for queries in several]
        assert mean[number] == pytest.approx(sum(rates) / len(rates))
        variance = sum((rate - mean[number]) ** 2 for rate in rates) / len(rates)
        assert deviation[number] == pytest.approx(math.sqrt(variance), abs=1e-12)


def test_there_is_no_mean_of_no_curves() -> None:
    with pytest.raises(InputError, match="at least one curve"):
        mean_band([], [1])

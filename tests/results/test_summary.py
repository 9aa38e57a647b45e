"""Rates, intervals and what an interrupted run may still say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsimon.core.types import Ended, Outcome
from parsimon.results.statistics import wilson_interval
from parsimon.results.summary import summarise, where_fooled

property_test = settings(max_examples=200, deadline=None, database=None)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    trials = draw(st.integers(1, 5000))
    return draw(st.integers(0, trials)), trials


def outcome(index: int, ended: Ended, queries: int) -> Outcome:
    return Outcome(index, ended == "success", queries, ended)


# --- the interval ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # By hand, with z = 1.959964 and z * z = 3.841459: at 0 of n the interval is 0 to z^2 / (n + z^2).
        (0, 10, 0.0, 3.841459 / 13.841459),
        (10, 10, 10 / 13.841459, 1.0),
        # At one half it is 1/2 +- z / (2 sqrt(n + z^2)).
        (50, 100, 0.5 - 1.959964 / (2 * math.sqrt(103.841459)), 0.5 + 1.959964 / (2 * math.sqrt(103.841459))),
        # As printed in textbooks and by other software.
        (50, 100, 0.4038, 0.5962),
        (1, 10, 0.0179, 0.4042),
        (95, 100, 0.8882, 0.9785),
    ],
)
def test_the_interval_is_wilsons(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


@property_test
@given(counts(), st.sampled_from([0.8, 0.95, 0.99]))
def test_an_end_of_the_interval_is_a_rate_whose_own_spread_just_reaches_the_observed_one(
    count: tuple[int, int], confidence: float
) -> None:
    """Wilson's definition, from the other side: |observed - p| = z sqrt(p (1 - p) / n) at both ends."""
    successes, trials = count
    z = {0.8: 1.2815515655446004, 0.95: 1.959963984540054, 0.99: 2.5758293035489004}[confidence]
    for end in wilson_interval(successes, trials, confidence):
        reach = z * math.sqrt(end * (1 - end) / trials)
        assert abs(successes / trials - end) == pytest.approx(reach, abs=1e-7)


@property_test
@given(counts())
def test_the_interval_holds_the_rate_and_stays_within_0_and_1(count: tuple[int, int]) -> None:
    low, high = wilson_interval(*count)
    assert 0 <= low <= count[0] / count[1] + 1e-12
    assert count[0] / count[1] - 1e-12 <= high <= 1
    assert low < high


@property_test
@given(counts(), st.integers(2, 10))
def test_the_interval_narrows_with_more_images_at_the_same_rate(count: tuple[int, int], times: int) -> None:
    low, high = wilson_interval(*count)
    narrower_low, narrower_high = wilson_interval(count[0] * times, count[1] * times)
    assert narrower_high - narrower_low < high - low


@property_test
@given(counts())
def test_failures_and_successes_mirror_each_other(count: tuple[int, int]) -> None:
    successes, trials = count
    low, high = wilson_interval(successes, trials)
    assert wilson_interval(trials - successes, trials) == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_more_confidence_needs_a_wider_interval() -> None:
    low, high = wilson_interval(30, 100, 0.95)
    wider_low, wider_high = wilson_interval(30, 100, 0.99)
    assert wider_low < low < high < wider_high


@pytest.mark.parametrize(
    ("successes", "trials", "confidence", "expected"),
    [
        (3, 10, 0.95, (0.10779126740630104, 0.6032218525388545)),
        (0, 57, 0.99, (0.0, 0.10426506453873509)),
        (676, 1000, 0.95, (0.6463678032852956, 0.7042851777277891)),
        (4321, 10_000, 0.99, (0.4193893349275533, 0.4449007072262505)),
    ],
)
def test_the_interval_is_that_of_version_0_3(
    successes: int, trials: int, confidence: float, expected: tuple[float, float]
) -> None:
    assert wilson_interval(successes, trials, confidence) == pytest.approx(expected, rel=1e-13)


def test_no_images_tell_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)


# --- the summary ----------------------------------------------------------------------------------------------------


def test_mean_and_median_are_over_successes_and_the_rate_is_over_all() -> None:
    outcomes = [outcome(0, "success", 10), outcome(1, "budget", 500), outcome(3, "success", 40)]
    outcomes += [outcome(7, "success", 13), outcome(8, "exhausted", 77)]
    summary = summarise(outcomes, 500)
    assert (summary.attacked, summary.successes, summary.unfinished, summary.queries) == (5, 3, 0, 640)
    assert (summary.mean, summary.median, summary.success_rate) == (21, 13, 0.6)


def test_the_median_of_an_even_number_lies_between_the_middle_two() -> None:
    outcomes = [outcome(index, "success", queries) for index, queries in enumerate((1, 100, 4, 8))]
    assert summarise(outcomes, 100).median == 6


def test_the_mean_of_all_counts_a_failure_at_the_budget_even_if_it_ended_before() -> None:
    outcomes = [outcome(0, "success", 10), outcome(1, "budget", 100), outcome(2, "exhausted", 7)]
    assert summarise(outcomes, 100).mean_of_all == 70
    assert summarise([*outcomes, outcome(3, "interrupted", 5)], 100).mean_of_all is None


def test_without_a_success_there_is_no_mean() -> None:
    summary = summarise([outcome(0, "budget", 20), outcome(1, "budget", 20)], 20)
    assert (summary.successes, summary.queries, summary.mean, summary.median) == (0, 40, None, None)
    assert summary.mean_of_all == 20
    assert summary.success_rate == 0
    assert summary.interval == wilson_interval(0, 2)


def test_unfinished_images_are_attacked_ones_that_are_not_fooled() -> None:
    summary = summarise([outcome(0, "success", 9), outcome(1, "interrupted", 30), outcome(2, "interrupted", 0)], 50)
    assert (summary.attacked, summary.successes, summary.unfinished, summary.queries) == (3, 1, 2, 39)
    assert summary.success_at_least == pytest.approx(1 / 3)


def test_an_unfinished_attack_has_a_lower_bound_and_nothing_that_looks_final() -> None:
    done = [outcome(index, "success", 9) for index in range(5)]
    summary = summarise([*done, outcome(9, "interrupted", 30)], 50)
    assert summary.success_at_least == 5 / 6
    final = (summary.success_rate, summary.interval, summary.mean, summary.mean_interval, summary.median)
    assert (*final, summary.median_interval, summary.mean_of_all) == (None,) * 7
    assert summarise(done, 50).success_rate == 1


def test_nothing_attacked_is_a_rate_of_0_and_no_division() -> None:
    summary = summarise([], 10)
    assert (summary.attacked, summary.success_rate, summary.interval) == (0, 0.0, (0.0, 1.0))


def test_what_is_not_charged_outside_or_with_gradient_is_counted_apart() -> None:
    first = Outcome(0, True, 5, "success", uncharged=100, outside=4, gradients=2)
    second = Outcome(1, False, 7, "budget", uncharged=10, outside=1, gradients=3)
    summary = summarise([first, second], 7)
    assert (summary.queries, summary.uncharged, summary.outside, summary.gradients) == (12, 110, 5, 5)


def test_means_and_medians_of_queries_have_their_bootstrap_interval() -> None:
    three = [outcome(index, "success", queries) for index, queries in enumerate((10, 40, 13))]
    summary = summarise([*three, outcome(3, "budget", 500)], 500)
    # Of the 27 samples of three one in 27, more than 2.5 %, is all tens and one is all forties.
    assert summary.mean_interval == summary.median_interval == (10, 40)
    many = [outcome(index, "success", 1 + index) for index in range(400)]
    low, high = summarise(many, 500).mean_interval or (0, 0)
    spread = 1.96 * math.sqrt((400**2 - 1) / 12 / 400)  # of the mean of 1 .. 400
    assert (low, high) == pytest.approx((200.5 - spread, 200.5 + spread), abs=1)
    assert summarise(many, 500).mean_interval == summarise(many, 500).mean_interval


@pytest.mark.parametrize("successes", [0, 1])
def test_fewer_than_two_successes_have_no_interval(successes: int) -> None:
    summary = summarise([outcome(0, "budget", 9), *[outcome(1, "success", 5)] * successes], 9)
    assert (summary.mean_interval, summary.median_interval) == (None, None)


def test_a_mean_where_both_succeed_leaves_out_what_either_failed_at() -> None:
    reference = [
        outcome(0, "success", 900),
        outcome(1, "success", 1),
        outcome(2, "budget", 1),
        outcome(3, "success", 4),
    ]
    other = [outcome(0, "success", 10), outcome(1, "budget", 50), outcome(2, "success", 20), outcome(3, "success", 30)]
    assert summarise(where_fooled(reference, other), 900).mean == 20
    assert summarise(where_fooled(reference, reference), 900).mean == pytest.approx(905 / 3)
    assert summarise(where_fooled([outcome(0, "budget", 3)], other), 900).mean is None

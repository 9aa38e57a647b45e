"""Rates, intervals and what an interrupted run may still say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsimon.protocol import Ended, Outcome
from parsimon.report.table import as_text, results_table
from parsimon.summary import Summary, summarise, wilson_interval

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


def test_no_images_tell_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)


# --- the summary ----------------------------------------------------------------------------------------------------


def test_mean_and_median_are_over_successes_and_the_rate_is_over_all() -> None:
    outcomes = [outcome(0, "success", 10), outcome(1, "budget", 500), outcome(3, "success", 40)]
    outcomes += [outcome(7, "success", 13), outcome(8, "exhausted", 77)]
    assert summarise(outcomes) == Summary(attacked=5, successes=3, unfinished=0, queries=640, mean=21, median=13)
    assert summarise(outcomes).success_rate == 0.6


def test_the_median_of_an_even_number_lies_between_the_middle_two() -> None:
    assert summarise([outcome(index, "success", queries) for index, queries in enumerate((1, 100, 4, 8))]).median == 6


def test_without_a_success_there_is_no_mean() -> None:
    summary = summarise([outcome(0, "budget", 20), outcome(1, "budget", 20)])
    assert summary == Summary(attacked=2, successes=0, unfinished=0, queries=40, mean=None, median=None)
    assert summary.success_rate == 0
    assert summary.interval == wilson_interval(0, 2)


def test_unfinished_images_are_attacked_ones_that_are_not_fooled() -> None:
    summary = summarise([outcome(0, "success", 9), outcome(1, "interrupted", 30), outcome(2, "interrupted", 0)])
    assert summary == Summary(attacked=3, successes=1, unfinished=2, queries=39, mean=9, median=9)
    assert summary.success_rate == pytest.approx(1 / 3)


def test_nothing_attacked_is_a_rate_of_0_and_no_division() -> None:
    summary = summarise([])
    assert (summary.attacked, summary.success_rate, summary.interval) == (0, 0.0, (0.0, 1.0))


def test_uncharged_queries_are_not_in_the_sum() -> None:
    assert summarise([Outcome(0, True, 5, "success", uncharged=100)]).queries == 5


# --- the table ------------------------------------------------------------------------------------------------------


def test_a_table_of_large_numbers_fits_80_columns_and_hides_no_digit() -> None:
    summary = Summary(10_000, 9_999, 1, 123_456_789, 12_345.6, 10_234.5)
    title = "eps 31.88/255, untargeted, cross-entropy, at most 100,000 queries an image"
    text = as_text(results_table(title, "Parsimonious", summary, 0.987))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for number in ("Parsimonious", "10,000", "100.0%", "12,345.6", "10,234.5", "123,456,789", "98.7%"):
        assert number in text
    for line in text.splitlines():  # none is cut in two
        assert line.strip().rstrip(".") not in {"image", "interval", "successes", "far"}


def test_the_rate_of_an_interrupted_run_is_shown_as_a_lower_bound() -> None:
    outcomes = [outcome(0, "success", 9), outcome(1, "budget", 30)]
    whole = as_text(results_table("t", "A", summarise(outcomes), 0.5))
    cut = as_text(results_table("t", "A", summarise([*outcomes, outcome(2, "interrupted", 3)]), 0.5))
    assert "50.0%" in whole
    assert ">=" not in whole
    assert "Interrupted" not in whole
    assert ">= 33.3%" in cut
    assert "Interrupted: 1 of the images unfinished" in cut


def test_the_table_can_be_printed_where_only_ascii_can() -> None:
    """A Ctrl-C must not end in an encoding error; the frame's lines are replaced by rich where it has to."""
    text = as_text(results_table("t", "A", summarise([outcome(0, "interrupted", 3)]), 0.5))
    assert set(text) - {"─"} <= set(map(chr, range(128)))


def test_accuracy_under_attack_is_the_clean_one_less_what_was_fooled() -> None:
    outcomes = [outcome(0, "success", 9), *(outcome(index, "budget", 30) for index in range(1, 4))]
    assert "80.0% clean, 60.0% under this attack" in as_text(results_table("t", "A", summarise(outcomes), 0.8))

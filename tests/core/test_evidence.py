"""The sequential test: its evidence is the mixture that it claims to be, and it errs as rarely as it promises."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad

from parsimon.core.evidence import events_missing, evidence, spent_error_rate

RATES = [0.5, 0.2, 0.05, 0.01, 0.001]
TRIALS = 200
known = cache(evidence)  # the function keeps fewer values than the trees below have nodes


def integrated(events: int, trials: int) -> float:
    """The likelihood ratio against 1/2, averaged over a point mass at 1 and the even spread over [1/2, 1]."""

    def ratio(p: float) -> float:
        return (2 * p) ** events * (2 * (1 - p)) ** (trials - events)

    spread, _ = quad(lambda p: 2 * ratio(p), 0.5, 1, epsabs=0, epsrel=1e-10, limit=200)
    return float(0.5 * ratio(1.0) + 0.5 * spread)


def crossed(error_rate: float, p: float) -> NDArray[np.float64]:
    """The probability of having reached 1 / error_rate after each number of trials, by adding up all paths."""
    alive = {0: 1.0}  # probability by number of events
    reached = [0.0]
    for trials in range(1, TRIALS + 1):
        after: dict[int, float] = {}
        for events, mass in alive.items():
            for gained, share in ((1, p), (0, 1 - p)):
                after[events + gained] = after.get(events + gained, 0.0) + mass * share
        crossing = {events for events in after if known(events, trials) >= 1 / error_rate}
        reached.append(reached[-1] + sum(after.pop(events) for events in crossing))
        alive = after
    return np.array(reached)


@pytest.mark.parametrize("trials", [0, 1, 2, 3, 5, 10, 40, 60])
def test_the_evidence_is_the_integral_of_the_mixture(trials: int) -> None:
    for events in range(trials + 1):
        assert evidence(events, trials) == pytest.approx(integrated(events, trials), rel=1e-8)


def test_the_evidence_is_one_before_the_first_trial() -> None:
    assert evidence(0, 0) == 1


def test_more_events_are_more_evidence() -> None:
    for trials in range(1, 61):
        values = [evidence(events, trials) for events in range(trials + 1)]
        assert values == sorted(set(values))


@pytest.mark.parametrize("p", [0.5, 0.49, 0.3, 0.0])
def test_the_expected_evidence_after_a_trial_is_the_evidence_before_it_or_less(p: float) -> None:
    """At p = 1/2 it is the same: a martingale. Below it is less: a supermartingale."""
    for trials in range(100):
        for events in range(trials + 1):
            before = evidence(events, trials)
            after = p * evidence(events + 1, trials + 1) + (1 - p) * evidence(events, trials + 1)
            if p == 0.5:
                assert after == pytest.approx(before, rel=1e-12)
            else:
                assert after < before


@pytest.mark.parametrize("error_rate", RATES)
def test_a_fair_coin_reaches_the_evidence_with_at_most_the_error_rate(error_rate: float) -> None:
    """Exact for up to 200 trials. The test is not so strict either that it would rarely find anything."""
    reached = crossed(error_rate, 0.5)
    assert reached[-1] <= error_rate
    assert reached[-1] >= 0.5 * error_rate
    assert crossed(error_rate, 0.4)[-1] < reached[-1]


@pytest.mark.parametrize("error_rate", RATES)
def test_a_coin_that_changes_at_will_reaches_the_evidence_with_at_most_the_error_rate(error_rate: float) -> None:
    """Whoever chooses p from 0 to 1/2 before each trial cannot do better; it is enough to choose between the two."""
    value = np.zeros(TRIALS + 1)  # of the best choices from here on, by number of events
    for trials in reversed(range(TRIALS + 1)):
        events = np.arange(trials + 1)
        if trials < TRIALS:
            value = np.maximum(value[events], (value[events] + value[events + 1]) / 2)
        value[[known(each, trials) >= 1 / error_rate for each in events.tolist()]] = 1
    assert 0.5 * error_rate <= value[0] <= error_rate


def test_a_clear_event_is_found_within_few_trials() -> None:
    """A change that always raises the loss is accepted after five pairs at the default error rate."""
    assert crossed(0.05, 1.0).tolist() == [0.0] * 5 + [1.0] * (TRIALS - 4)
    assert crossed(0.05, 0.9)[20] > 0.9
    assert crossed(0.05, 0.75)[60] > 0.85


@pytest.mark.parametrize("error_rate", RATES)
def test_the_missing_events_are_the_fewest_that_suffice(error_rate: float) -> None:
    for trials in range(40):
        for events in range(trials + 1):
            missing = events_missing(events, trials, error_rate)
            assert evidence(events + missing, trials + missing) * error_rate >= 1
            fewer = [evidence(events + each, trials + each) * error_rate for each in range(missing)]
            assert max(fewer, default=0.0) < 1


def test_no_further_trials_reach_the_evidence_faster() -> None:
    """The fewest further trials, found by walking through all trees of events and no events."""

    @cache
    def fewest(events: int, trials: int, left: int) -> float:
        if evidence(events, trials) * 0.05 >= 1:
            return 0
        if not left:
            return math.inf
        return 1 + min(fewest(events + 1, trials + 1, left - 1), fewest(events, trials + 1, left - 1))

    for trials in range(12):
        for events in range(trials + 1):
            assert events_missing(events, trials, 0.05) == fewest(events, trials, 40)


@pytest.mark.parametrize("error_rate", RATES)
def test_the_error_rates_of_all_tests_add_up_to_at_most_the_error_rate(error_rate: float) -> None:
    shares = [spent_error_rate(error_rate, number) for number in range(1, 10_001)]
    assert all(later < earlier for earlier, later in pairwise(shares))
    assert 0.999 * error_rate < sum(shares) <= error_rate
    # The sum of 1 / n^2 from 10,001 on is below 1 / 10,000.
    assert sum(shares) + shares[0] / 10_000 <= error_rate * (1 + 1e-4)

"""The verdict: what it is called, when it passes a gate, and that its interval covers the truth as often as it says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from parsimon.results.statistics import agresti_coull_interval, wilson_interval
from parsimon.results.verdict import Verdict, product_interval


@pytest.mark.parametrize(("images", "attacked"), [(676, 20), (800, 100), (200, 20), (60, 20), (50, 10)])
@pytest.mark.parametrize("clean", [0.6, 0.9, 0.97])
@pytest.mark.parametrize("share", [0.02, 0.05, 0.3, 0.5, 0.8, 0.95, 0.98])
def test_the_interval_of_an_estimate_covers_the_truth_in_93_percent_of_cases(
    images: int, attacked: int, clean: float, share: float
) -> None:
    """Sum the chances of all pairs of counts whose interval holds the truth; correct images are drawn first."""
    counts = np.arange(attacked + 1, images + 1)
    chances = binom.pmf(counts, images, clean)
    of_robust = binom.pmf(np.arange(attacked + 1), attacked, share)
    covered = total = 0.0
    for correct, chance in zip(counts[chances > 1e-4].tolist(), chances[chances > 1e-4], strict=True):
        total += chance
        for robust in np.flatnonzero(of_robust > 1e-5).tolist():
            low, high = product_interval(robust, attacked, correct, images)
            covered += chance * of_robust[robust] * (low <= clean * share <= high)
    assert covered / total > 0.93


def test_the_interval_of_agresti_and_coull_has_wilsons_centre_and_contains_it() -> None:
    for successes, trials in ((3, 10), (80, 100), (7, 900)):
        low, high = agresti_coull_interval(successes, trials)
        inner = wilson_interval(successes, trials)
        assert low < inner[0] < inner[1] < high
        assert low + high == pytest.approx(sum(inner))
    assert agresti_coull_interval(0, 10)[0] == 0
    assert agresti_coull_interval(10, 10)[1] == 1


def test_the_interval_of_an_estimate_is_wider_than_that_of_a_measurement() -> None:
    measured = Verdict.of(300, 600, 600, 700, unfinished=False)
    estimate = Verdict.of(10, 20, 600, 700, unfinished=False)
    assert (measured.kind, estimate.kind, measured.value, estimate.value) == ("measured", "estimate", 3 / 7, 3 / 7)
    assert measured.interval == wilson_interval(300, 700)
    assert estimate.interval is not None
    assert estimate.interval[1] - estimate.interval[0] > 4 * (measured.interval[1] - measured.interval[0])


def test_a_gate_compares_the_value_or_the_lower_end_and_refuses_what_is_unfinished() -> None:
    verdict = Verdict.of(3, 8, 8, 10, unfinished=False)
    assert verdict.interval is not None
    assert verdict.passes(0.3)
    assert not verdict.passes(0.301)
    assert verdict.passes(verdict.interval[0], "lower")
    assert not verdict.passes(0.3, "lower")
    assert not Verdict.of(8, 8, 8, 10, unfinished=True).passes(0)


def test_an_unfinished_verdict_has_no_value_in_json() -> None:
    cut = Verdict.of(6, 8, 8, 10, unfinished=True)
    assert cut.as_dict() == {"value": None, "at_most": 0.6, "interval": None, "kind": "at_most"}
    assert str(cut) == "at most 60.0% so far"
    assert Verdict.of(6, 8, 8, 10, unfinished=False).as_dict()["value"] == 0.6

"""Random models: images near one half are counted, and the expected accuracy of a query is that of its definition."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from scipy.stats import binomtest

import parsimon
from parsimon import Comparison, Result, Square, Threat
from parsimon.core.engine import Counters
from parsimon.core.threat import Sampling
from parsimon.core.types import Outcome
from parsimon.results.chance import SEVERAL_CHANCES, Drawn, mean_interval
from parsimon.results.evaluation import Evaluation, EvaluationGrid
from parsimon.results.result import CleanPredictions
from parsimon.results.statistics import bootstrap_interval

DRAWS = 100


def drawn(errors: dict[int, int], clean_errors: list[int]) -> Result:
    """An attack's errors in fresh draws by image; images with more than half of errors in clean draws are wrong."""
    count, clean = len(clean_errors), np.array(clean_errors)
    labels = np.zeros(count, np.intp)
    predictions = CleanPredictions(labels, 2 * clean <= DRAWS, 10, 1 - clean / DRAWS, draws=DRAWS, errors=clean)
    outcomes = tuple(
        Outcome(index, 2 * each > DRAWS, 50, "success" if 2 * each > DRAWS else "budget", draws=DRAWS, errors=each)
        for index, each in errors.items()
    )
    threat = Threat(8 / 255, loss="margin", sampling=Sampling(draws=DRAWS))
    pixels = np.zeros((count, 3, 1, 1), np.float32)
    return Result(Square(), threat, 50, pixels, labels, predictions, outcomes, Counters())


FIRST = drawn({0: 0, 1: 45, 2: 58, 3: 100}, [0, 0, 10, 20, 90])
SECOND = drawn({0: 41, 1: 30, 2: 40, 3: 80}, [0, 0, 10, 20, 90])
BOTH = Comparison({"First": FIRST, "Second": SECOND})


def test_an_image_is_undecided_if_the_wilson_interval_contains_one_half() -> None:
    for errors in range(DRAWS + 1):
        interval = binomtest(errors, DRAWS).proportion_ci(method="wilson")
        assert Drawn(errors, DRAWS).undecided == (interval.low <= 0.5 <= interval.high)


def test_the_largest_error_rate_of_an_image_decides() -> None:
    """Of image 0, the second attack found 41 errors, of image 1 the first found 45, of image 2 it found 58."""
    assert BOTH.chance is not None
    assert BOTH.chance.worst == {0: (41, 100), 1: (45, 100), 2: (58, 100), 3: (100, 100)}
    undecided = sum(Drawn(errors, DRAWS).undecided for errors in (41, 45, 58, 100))
    assert BOTH.chance.undecided == undecided == 3
    notes = BOTH.table().notes
    assert "Undecided: 3 images, whose 95% interval of the error rate contains 50%." in notes
    assert SEVERAL_CHANCES in notes
    alone = FIRST.table().notes
    assert "Undecided: 2 images, whose 95% interval of the error rate contains 50%." in alone
    assert not any("several chances" in note for note in alone)


def test_the_expected_accuracy_is_over_all_images() -> None:
    """The clean error rate counts where the model is wrong, and the largest of all attacks where it was attacked."""
    assert BOTH.chance is not None
    expected = BOTH.chance.expected
    assert expected is not None
    values = [0.59, 0.55, 0.42, 0.0, 0.1]
    assert expected.value == pytest.approx(fmean(values))
    assert expected.interval == pytest.approx(bootstrap_interval(values, np.mean))
    low, high = (f"{100 * end:.1f}" for end in bootstrap_interval(values, np.mean))
    assert f"Expected accuracy of a single query: 33.2% ({low} to {high})." in BOTH.table().notes
    assert BOTH.chance.as_dict() == {
        "undecided": 3,
        "expected_accuracy": {"value": expected.value, "interval": expected.interval, "kind": "measured"},
    }


def test_images_that_were_not_attacked_are_taken_to_fare_like_the_others() -> None:
    some = Comparison({"First": drawn({0: 0, 1: 50}, [0, 0, 10, 20, 90])})
    assert some.chance is not None
    expected = some.chance.expected
    assert expected is not None
    assert expected.value == pytest.approx((4 * fmean([1.0, 0.5]) + 0.1) / 5)
    assert expected.estimate
    assert str(expected).startswith("about 62.0% (")
    assert expected.interval is not None
    assert expected.interval[0] < expected.value < expected.interval[1]


def test_nothing_is_expected_of_an_unfinished_a_targeted_or_a_partial_run() -> None:
    waiting = replace(FIRST, outcomes=(*FIRST.outcomes[:3], Outcome(3, False, 7, "interrupted")))
    targeted = replace(FIRST, threat=replace(FIRST.threat, targeted=True))
    for found in (
        Comparison({"First": waiting}),
        Comparison({"First": targeted}),
        Comparison({"First": FIRST}, fooled_before=1),
    ):
        assert found.chance is not None
        assert found.chance.expected is None
        assert not any("Expected accuracy" in note for note in found.table().notes)
        assert any(note.startswith("Undecided: 2 images") for note in found.table().notes)


def test_a_model_that_is_not_random_has_no_chance() -> None:
    plain = replace(FIRST, threat=Threat(8 / 255), clean=replace(FIRST.clean, errors=None, draws=0))
    assert Comparison({"First": plain}).chance is None
    assert not any("ndecided" in note for note in plain.table().notes)


def test_an_evaluation_has_both_and_a_grid_lists_them() -> None:
    second = replace(SECOND, outcomes=SECOND.outcomes[:2])
    evaluation = Evaluation(("first", "second"), {"First": FIRST, "Second": second}, 8 / 255, (50,))
    assert evaluation.chance is not None
    assert evaluation.chance.worst == {0: (41, 100), 1: (45, 100), 2: (58, 100), 3: (100, 100)}
    notes = evaluation.table().notes
    assert "Undecided: 3 images, whose 95% interval of the error rate contains 50%." in notes
    assert any(note.startswith("Expected accuracy of a single query: 33.2% (") for note in notes)
    assert any(note.startswith("Mean error rate in fresh draws, each over the images that it a") for note in notes)
    assert any(note.startswith("Mean error rate in fresh draws, over all attacked") for note in BOTH.table().notes)
    larger = Evaluation(("first",), {"First": drawn({0: 90, 1: 10}, [0, 0, 10, 20, 90])}, 0.1, (50,), evaluation)
    assert larger.chance is not None
    assert larger.chance.worst == {0: (90, 100), 1: (45, 100), 2: (58, 100), 3: (100, 100)}
    grid = EvaluationGrid(("robust",), (8 / 255, 0.1), {"robust": (evaluation, larger)}).table().notes
    listed = "robust at 8/255 3, robust at 25.5/255 2."
    assert f"Undecided images, whose 95% interval of the error rate contains 50%: {listed}" in grid
    assert any(note.startswith("Expected accuracy of a single query: robust at 8/255 33.2% (") for note in grid)


def test_equal_error_rates_have_the_interval_of_a_share_of_images() -> None:
    """Resampling equal numbers says nothing: before, the interval was left out."""
    same = drawn(dict.fromkeys(range(8), 0), [0] * 8)
    assert same.summary.error_rate is not None
    mean, interval = same.summary.error_rate
    assert (mean, interval) == (0.0, mean_interval([0.0] * 8))
    assert interval is not None
    low, high = interval
    assert low == 0.0
    assert 1 - 0.025 ** (1 / 8) < high < 0.5  # at least the exact bound
    assert mean_interval([0.25]) is None
    assert any("Square 0.0% (0.0% to 37.2%)" in note for note in same.table().notes)


def test_the_clean_errors_of_a_real_run_are_kept_for_it() -> None:
    rng = np.random.default_rng(0)

    def noisy(images: np.ndarray) -> np.ndarray:
        means = images.mean(axis=(1, 2, 3))
        return np.stack([means, 1 - means], axis=1) + rng.normal(0, 0.2, (len(images), 2))

    images = np.linspace(0.3, 0.7, 12, dtype=np.float32)[:, None, None, None] * np.ones((1, 1, 2, 2), np.float32)
    labels = (images.mean(axis=(1, 2, 3)) < 0.5).astype(np.intp)
    found = parsimon.attack(noisy, images, labels, 0.05, attack="square", budget=20, stochastic=True, draws=50)
    assert found.clean.errors is not None
    rates = found.clean.errors / 50
    for outcome in found.outcomes:
        rates[outcome.index] = outcome.errors / 50
    low, high = (f"{100 * end:.1f}" for end in bootstrap_interval(1 - rates, np.mean))
    assert f"Expected accuracy of a single query: {1 - rates.mean():.1%} ({low} to {high})." in found.table().notes

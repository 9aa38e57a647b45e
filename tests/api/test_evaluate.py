"""`parsimon.evaluate`: what is left of a model's accuracy, held against the attacks run one by one on all images."""

from __future__ import annotations

import re
import signal
from typing import Any

import numpy as np
import pytest

import parsimon
from parsimon import Evaluation, InputError
from parsimon.results.statistics import wilson_interval
from small_model import IMAGES, LABELS, Pixels, changed, linear, softmax

WRONG = changed(LABELS, 2, (LABELS[2] + 1) % 10)  # one that the model misclassifies
EPS, BUDGET = 0.06, 25
ATTACKS = ("random", "signhunter", "parsimonious")  # the first two fool an image each


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return parsimon.evaluate(linear, IMAGES, WRONG, EPS, attacks=ATTACKS, budget=BUDGET)


@pytest.fixture(scope="module")
def alone() -> dict[str, parsimon.Result]:
    """Each attack on all images, in a run of its own."""
    attacks = [(name, parsimon.attack(linear, IMAGES, WRONG, EPS, attack=name, budget=BUDGET)) for name in ATTACKS]
    return {type(result.attack).__name__: result for _, result in attacks}


def test_an_image_is_robust_if_no_attack_alone_fools_it(evaluation: Evaluation, alone: dict[str, Any]) -> None:
    fooled = np.any([result.success for result in alone.values()], axis=0)
    assert [int(result.success.sum()) for result in evaluation.results.values()] == [1, 1, 0]
    correct = linear(IMAGES).argmax(axis=1) == WRONG
    np.testing.assert_array_equal(evaluation.correct, correct)
    np.testing.assert_array_equal(evaluation.robust, correct & ~fooled)
    assert evaluation.clean_accuracy == 5 / 6
    assert evaluation.robust_accuracy == (5 - fooled.sum()) / 6
    assert evaluation.interval == wilson_interval(5 - int(fooled.sum()), 6)
    assert evaluation.unfinished == 0


def test_the_table_has_the_accuracy_within_each_budget() -> None:
    """A smaller budget's accuracy is that of the images that no attack fooled in as many queries."""
    evaluation = parsimon.evaluate(linear, IMAGES, WRONG, EPS, attacks=ATTACKS, budget=[3, BUDGET])
    outcomes = [outcome for result in evaluation.results.values() for outcome in result.outcomes]
    early = {outcome.index for outcome in outcomes if outcome.success and outcome.queries <= 3}
    late = {outcome.index for outcome in outcomes if outcome.success} - early
    assert (len(early), len(late)) == (1, 1)
    assert f"Accuracy within 3 queries: {(5 - len(early)) / 6:.1%} (" in str(evaluation)
    assert "no earlier attack fooled within 3 queries." in " ".join(str(evaluation).split())
    assert f"Accuracy within {BUDGET} queries" not in str(evaluation)


def test_each_attack_meets_what_those_before_it_left(evaluation: Evaluation, alone: dict[str, Any]) -> None:
    left = np.flatnonzero(evaluation.correct)
    total = np.zeros(6, np.int64)
    for name, result in evaluation.results.items():
        np.testing.assert_array_equal(np.flatnonzero(result.attacked), left)
        # and does to them what it does when it meets all
        assert list(result.outcomes) == [each for each in alone[name].outcomes if each.index in left]
        left = left[~result.success[left]]
        total += result.queries
    np.testing.assert_array_equal(evaluation.queries, total)


def test_adversarial_images_fool_the_model_within_the_ball(evaluation: Evaluation) -> None:
    seen = linear(evaluation.adversarial).argmax(axis=1)
    np.testing.assert_array_equal(seen == WRONG, evaluation.robust)
    assert np.abs(evaluation.adversarial - IMAGES).max() <= EPS + 1e-6
    np.testing.assert_array_equal(evaluation.adversarial[evaluation.robust], IMAGES[evaluation.robust])


def test_later_attacks_are_left_out_where_nothing_is_left() -> None:
    evaluation = parsimon.evaluate(linear, IMAGES, LABELS, 1, attacks=ATTACKS, budget=50)
    assert evaluation.robust_accuracy == 0
    assert len(evaluation.results) < 3
    assert evaluation.unfinished == 0
    assert "Interrupted" not in str(evaluation)


def test_probabilities_are_told_from_logits(evaluation: Evaluation) -> None:
    told = parsimon.evaluate(softmax, IMAGES, WRONG, EPS, attacks=ATTACKS, budget=BUDGET)
    assert {result.threat.scores for result in told.results.values()} == {"probabilities"}
    assert {result.threat.scores for result in evaluation.results.values()} == {"logits"}


def test_the_table_fits_80_columns_and_holds_the_numbers(evaluation: Evaluation) -> None:
    text = str(evaluation)
    assert max(map(len, text.splitlines())) <= 80
    assert "6 images, at most 25 queries per image and attack" in text
    for name, result in evaluation.results.items():
        (row,) = (line for line in text.splitlines() if line.startswith(name))
        assert row.split()[1:3] == [str(len(result.outcomes)), str(result.success.sum())]
    assert row.endswith(f"{evaluation.robust_accuracy:.1%}")
    assert f"{evaluation.robust_accuracy:.1%}" in evaluation.table().markdown()
    charged = {name: result.queries.sum() for name, result in evaluation.results.items()}
    assert ", ".join(f"{name} {count:,}" for name, count in charged.items()) in text


def test_after_ctrl_c_the_accuracy_is_an_upper_bound() -> None:
    calls = 0

    def interrupting(images: Pixels) -> Pixels:
        nonlocal calls
        calls += 1
        if calls == 6:  # in the first attack
            signal.raise_signal(signal.SIGINT)
        return linear(images)

    evaluation = parsimon.evaluate(interrupting, IMAGES, LABELS, 1e-4, attacks=ATTACKS, budget=500)
    assert evaluation.unfinished == evaluation.robust.sum() > 0
    begun = [result.counters.calls > 0 for result in evaluation.results.values()]
    assert begun == [True, False, False]
    assert "<= " in str(evaluation)
    assert "Interrupted: 6 images have attacks left" in str(evaluation)


def test_robust_images_of_a_random_model_are_correct_and_robust_at_every_smaller_radius_too() -> None:
    """Each radius has a run of its own, in which the model may err about other clean images."""
    images, differing = np.random.default_rng(1).random((30, 3, 8, 8), dtype=np.float32), 0
    labels, radii = linear(images).argmax(axis=1), [1e-5, 2e-5, 3e-5]
    for seed in range(6):
        rng = np.random.default_rng(seed)

        def noisy(shown: Pixels, rng: np.random.Generator = rng) -> Pixels:
            return linear(shown) + rng.normal(0, 4, (len(shown), 10)).astype(np.float32)

        settings: Any = {"attacks": ["random", "square"], "stochastic": True, "budget": 5, "draws": 5}
        row = parsimon.evaluate(noisy, images, labels, radii, **settings).evaluations["model"]
        for number, found in enumerate(row):
            robust = 0
            for image in range(len(images)):
                correct = all(each.correct[image] for each in row[: number + 1])
                attacks = [result for each in row[: number + 1] for result in each.results.values()]
                robust += correct and not any(result.success[image] for result in attacks)
            assert found.verdict().value == robust / len(images)
            assert found.verdict().kind == "measured"
            assert found.table().groups[1][-1][-1].text == f"{robust / len(images):.1%}"
        accuracies = [each.robust_accuracy for each in row]
        assert accuracies == sorted(accuracies, reverse=True)
        differing += any((each.correct & ~row[0].correct).any() for each in row)
    assert differing >= 2  # or the test would compare little


def test_by_default_the_ensemble_is_black_box() -> None:
    evaluation = parsimon.evaluate(linear, IMAGES, LABELS, 1e-4, budget=3)
    assert list(evaluation.results) == ["Thrift", "Square"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"attacks": ["square", "pgd"]}, "can only query, and PGD needs gradients"),
        ({"attacks": []}, "there is no attack to run"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "there are no images to attack"),
        ({"labels": None}, "labels are missing: give one class per image"),
        ({"eps": 8}, "eps must lie above 0 and at most 1"),
        ({"at_most": 3}, "evaluate has no setting 'at_most': all images count"),
        ({"targets": "next"}, "evaluate has no setting 'targets'"),
    ],
)
def test_wrong_use_is_answered_with_a_sentence(arguments: dict[str, Any], words: str) -> None:
    given = {"images": IMAGES, "labels": LABELS, "eps": EPS, **arguments}
    with pytest.raises(InputError, match=re.escape(words)):
        parsimon.evaluate(linear, **given)


# --- labels that the model gives ------------------------------------------------------------------------------------


def test_from_what_the_model_sees_every_image_is_attacked() -> None:
    result = parsimon.attack(linear, IMAGES, "predicted", EPS, budget=BUDGET)
    expected = parsimon.attack(linear, IMAGES, LABELS, EPS, budget=BUDGET)
    assert result.outcomes == expected.outcomes
    np.testing.assert_array_equal(result.labels, LABELS)


def test_from_what_the_model_sees_an_image_at_its_target_is_left_alone() -> None:
    targets = changed((LABELS + 1) % 10, 4, LABELS[4])
    result = parsimon.attack(linear, IMAGES, "predicted", EPS, targets=targets, budget=BUDGET)
    np.testing.assert_array_equal(result.attacked, targets != LABELS)
    with pytest.raises(InputError, match=r"already predicts the target of each of the 6 images"):
        parsimon.attack(linear, IMAGES, "predicted", EPS, targets=LABELS)

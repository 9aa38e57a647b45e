"""The ball and the losses, against torch and against definitions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

from parsimon import InputError, Threat
from parsimon.core.threat import Loss, Sampling, Scores


def logits_and_goals(seed: int, rows: int = 40, classes: int = 7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 4, (rows, classes)).astype(np.float32), rng.integers(0, classes, rows)


@given(st.integers(0, 999), st.booleans())
def test_cross_entropy_is_torchs_and_is_negated_for_a_target(seed: int, targeted: bool) -> None:
    logits, goals = logits_and_goals(seed)
    loss, _, _ = Threat(0.1, targeted).judge(logits, goals)
    expected = F.cross_entropy(torch.tensor(logits, dtype=torch.float64), torch.tensor(goals), reduction="none").numpy()
    assert np.allclose(loss, -expected if targeted else expected, rtol=0, atol=1e-12)


@given(st.integers(0, 999), st.booleans())
def test_margin_is_positive_exactly_for_successes(seed: int, targeted: bool) -> None:
    logits, goals = logits_and_goals(seed)
    loss, success, predicted = Threat(0.1, targeted, "margin").judge(logits, goals)
    for row, goal in enumerate(goals):
        others = max(score for number, score in enumerate(logits[row].tolist()) if number != goal)
        margin = others - float(logits[row, goal])
        assert loss[row] == (-margin if targeted else margin)
    assert np.array_equal(success, loss > 0)
    assert np.array_equal(predicted, logits.argmax(axis=1))


@pytest.mark.parametrize("scores", ["logits", "probabilities"])
@pytest.mark.parametrize("targeted", [False, True])
def test_the_loss_of_a_draw_tells_whether_it_errs_also_at_a_tie(scores: Scores, targeted: bool) -> None:
    """Every row of three small whole numbers, with ties of each kind; the class of the first highest is predicted."""
    rows = np.array(list(product(range(3), repeat=3)), np.float64)
    rows = (rows + 1) / (rows + 1).sum(axis=1, keepdims=True) if scores == "probabilities" else rows
    threat = Threat(0.1, targeted, "margin", scores)
    random = replace(threat, sampling=Sampling())
    tied = 0
    for goal in range(3):
        goals = np.full(len(rows), goal)
        losses, wins, _ = random.judge(rows, goals)
        expected = [(row.index(max(row)) == goal) == targeted for row in rows.tolist()]
        assert random.errs(losses).tolist() == wins.tolist() == expected
        exact, as_before, _ = threat.judge(rows, goals)
        np.testing.assert_allclose(losses, exact, rtol=0, atol=1e-300)
        assert np.array_equal(as_before, wins)
        tied += int((wins & (exact == 0)).sum())
    assert tied > 0


@pytest.mark.parametrize("loss", ["cross-entropy", "margin"])
@pytest.mark.parametrize("targeted", [False, True])
def test_probabilities_give_the_losses_of_their_logits(loss: Loss, targeted: bool) -> None:
    logits, goals = logits_and_goals(0)
    probabilities = torch.softmax(torch.tensor(logits, dtype=torch.float64), 1).numpy()
    from_logits = Threat(0.1, targeted, loss).judge(logits, goals)
    from_probabilities = Threat(0.1, targeted, loss, "probabilities").judge(probabilities, goals)
    assert np.allclose(from_logits[0], from_probabilities[0], atol=1e-9)
    assert np.array_equal(from_logits[1], from_probabilities[1])


def test_a_probability_of_zero_is_a_finite_loss() -> None:
    scores, goals = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1, 1])
    loss, _, _ = Threat(0.1, scores="probabilities").judge(scores, goals)
    assert np.isfinite(loss).all()
    assert loss[0] > loss[1]


@given(st.integers(0, 999), st.booleans(), st.sampled_from(get_args(Loss)), st.sampled_from(get_args(Scores)))
def test_the_loss_gradient_is_the_numerical_derivative_of_the_loss(
    seed: int, targeted: bool, loss: Loss, scores: Scores
) -> None:
    logits, goals = logits_and_goals(seed, rows=8)
    exact = logits.astype(np.float64)
    given = torch.softmax(torch.tensor(exact), 1).numpy() if scores == "probabilities" else exact
    threat = Threat(0.1, targeted, loss, scores)
    gradient = threat.loss_gradient(given, goals)
    assert gradient.shape == given.shape
    for number in range(given.shape[1]):
        step = np.zeros_like(given)
        step[:, number] = 1e-6 * (given[:, number] if scores == "probabilities" else 1)
        above, below = (threat.judge(given + sign * step, goals)[0] for sign in (1, -1))
        # In units of the step, since the gradient is unbounded as a probability goes to 0.
        assert np.allclose((above - below) / 2, gradient[:, number] * step[:, number], rtol=1e-4, atol=1e-12)


@given(st.integers(0, 999), st.floats(1e-3, 1))
def test_bounds_are_the_ball_within_the_unit_cube(seed: int, eps: float) -> None:
    image = np.random.default_rng(seed).random((3, 5, 4)).astype(np.float32)
    low, high = Threat(eps).bounds(image)
    assert np.allclose(low, np.clip(image.astype(np.float64) - eps, 0, 1), atol=1e-6)
    assert np.allclose(high, np.clip(image.astype(np.float64) + eps, 0, 1), atol=1e-6)
    assert low.dtype == high.dtype == np.float32
    assert low.min() >= 0
    assert high.max() <= 1


@given(st.integers(0, 999), st.integers(1, 255))
def test_eight_bit_bounds_are_whole_levels_at_most_eps_away(seed: int, steps: int) -> None:
    levels = np.random.default_rng(seed).integers(0, 256, (3, 5, 4))
    threat = Threat(steps / 255, eight_bit=True)
    assert threat.eight_bit_steps == steps
    for bound, expected in zip(
        threat.bounds(levels.astype(np.float32) / np.float32(255)),
        (np.maximum(levels - steps, 0), np.minimum(levels + steps, 255)),
        strict=True,
    ):
        assert np.array_equal(bound, expected.astype(np.float32) / np.float32(255))
        assert np.array_equal((bound * 255).round().astype(np.uint8).astype(np.float32) / np.float32(255), bound)


def test_a_radius_between_two_levels_is_rounded_down() -> None:
    assert Threat(0.05, eight_bit=True).eight_bit_steps == 12


@pytest.mark.parametrize(
    ("eps", "hint"),
    [
        (0, "a ball of radius 0 holds only the image itself"),
        (-0.1, "did you mean 0.1?"),
        (8, "did you mean 8/255?"),
        (1000, "a radius of 8 on the scale of 0 to 255 is 8/255"),
        (float("nan"), "8/255"),
        (float("inf"), "8/255"),
    ],
)
def test_a_radius_outside_the_unit_interval_is_refused_with_the_one_that_was_meant(eps: float, hint: str) -> None:
    with pytest.raises(InputError, match=r"eps must lie above 0 and at most 1") as raised:
        Threat(eps)
    assert str(raised.value).endswith(hint)


@pytest.mark.parametrize("targeted", [False, True])
def test_confidence_is_torchs_probability_of_the_predicted_class(targeted: bool) -> None:
    logits, _ = logits_and_goals(3)
    probabilities = torch.tensor(logits, dtype=torch.float64).softmax(1).numpy()
    for threat, scores in (
        (Threat(0.1, targeted), logits),
        (Threat(0.1, targeted, scores="probabilities"), probabilities),
    ):
        confidence = threat.confidence(scores)
        assert confidence is not None
        assert np.allclose(confidence, probabilities.max(axis=1), rtol=0, atol=5.1e-7)
    extreme = np.array([[1e4, -1e4], [-1e4, -1e4], [np.inf, 0], [-np.inf, 3]])
    confidence = Threat(0.1).confidence(extreme)
    assert confidence is not None
    assert confidence.tolist() == [1, 0.5, 1, 1]


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("numbers", [[0, 3, 1], [3, 3, 0]])
def test_class_numbers_and_one_hot_rows_mean_the_same(numbers: list[int], targeted: bool) -> None:
    threat, goals = Threat(0.1, targeted, "label", "labels"), np.array([3, 3, 0])
    column, rows = np.array(numbers, np.uint8)[:, None], np.eye(4)[numbers]
    for labels in (column, rows):
        loss, success, predicted = threat.judge(labels, goals)
        assert predicted.tolist() == numbers
        reached = [number == goal for number, goal in zip(numbers, goals, strict=True)]
        assert success.tolist() == (reached if targeted else [not each for each in reached])
        assert np.isfinite(loss).tolist() == success.tolist()
        assert threat.confidence(labels) is None

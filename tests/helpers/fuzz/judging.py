"""Check a result against the images and a clean copy of the model, with arithmetic of its own."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon import Evaluation, Outcome, Result


def check_result(result: Result, originals: NDArray[np.float32], eps: Any) -> None:
    """Check all that can be said of a result without its model."""
    indices = [outcome.index for outcome in result.outcomes]
    assert indices == sorted(set(indices))
    assert result.clean.correct[indices].all()
    assert result.counters.queries == sum(outcome.queries for outcome in result.outcomes)
    assert result.queries.sum() == result.counters.queries
    drawn = result.adversarial
    for outcome in result.outcomes:
        _check_outcome(outcome, result.budget)
        if outcome.success:
            _check_ball(
                originals[outcome.index],
                drawn[outcome.index],
                result,
                float(Fraction(eps) if isinstance(eps, str) else eps),
            )
    unfooled = ~result.success
    assert np.array_equal(drawn[unfooled], originals[unfooled])
    taken = [outcome.queries for outcome in result.outcomes if outcome.success]
    assert result.summary.successes == len(taken) == result.success.sum()
    assert result.summary.mean == (fmean(taken) if taken else None)
    for text in (str(result), result.table().markdown(), result.table().latex()):
        assert text


def _check_outcome(outcome: Outcome, budget: int) -> None:
    assert 0 <= outcome.queries <= budget
    assert outcome.success == (outcome.ended == "success") == (outcome.point is not None)
    assert outcome.ended != "interrupted"
    if outcome.ended == "budget":
        assert outcome.queries == budget
    assert 0 <= outcome.out_of_range <= outcome.outside <= outcome.queries + outcome.uncharged
    assert min(outcome.uncharged, outcome.gradients) >= 0
    if outcome.success:
        assert outcome.confidence is not None
        assert 0 <= outcome.confidence <= 1


def _check_ball(original: NDArray[np.float32], image: NDArray[np.float32], result: Result, eps: float) -> None:
    assert image.dtype == np.float32
    assert image.shape == original.shape
    assert 0 <= image.min() <= image.max() <= 1
    if result.threat.eight_bit:
        levels, before = (np.rint(each.astype(np.float64) * 255) for each in (image, original))
        assert np.array_equal(image, (levels.astype(np.float32) / np.float32(255)))
        assert np.abs(levels - before).max() <= math.floor(eps * 255 + 1e-6)
        return
    slack = 2**-24 if result.threat.rounding == "nearest" else 0
    assert np.abs(image.astype(np.float64) - original).max() <= eps + slack
    assert np.abs(image - original).max() <= np.float32(eps + slack)


def check_with_model(result: Result, originals: NDArray[np.float32], clean: Any, targets: Any) -> None:
    """Ask a clean copy of the model about every image of a result."""
    seen = clean(originals).argmax(axis=1)
    assert np.array_equal(result.clean.predicted, seen)
    assert np.array_equal(result.clean.correct, seen == result.labels)
    if result.verification is not None:
        assert result.verification.failed == ()
        assert result.verification.queried == result.success.sum()
    drawn = clean(result.adversarial)
    for outcome in result.outcomes:
        if not outcome.success:
            continue
        number = int(drawn[outcome.index].argmax())
        label = int(result.labels[outcome.index])
        assert number == outcome.predicted != label
        if isinstance(targets, str) and targets == "next":
            assert number == (label + 1) % drawn.shape[1]
        elif not isinstance(targets, str | None):
            assert number == np.asarray(targets)[outcome.index]


def check_evaluation(evaluation: Evaluation) -> None:
    """Check the robust images of an evaluation against its outcomes."""
    robust = evaluation.correct.copy()
    for result in evaluation.results.values():
        assert [outcome.index for outcome in result.outcomes] == np.flatnonzero(robust).tolist()
        robust[[outcome.index for outcome in result.outcomes if outcome.success]] = False
    assert np.array_equal(robust, evaluation.robust)
    assert evaluation.robust_accuracy == robust.sum() / len(robust)
    assert str(evaluation)
    assert (evaluation.adversarial >= 0).all()

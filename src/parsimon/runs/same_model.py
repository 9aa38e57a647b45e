"""Compare responses to the same images: between two calls, and between the start of a run and its continuation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.threat import predicted_classes
from parsimon.errors import InputError
from parsimon.results.result import CleanPredictions

# Tolerances relative to the spread of the scores. Smaller differences are rounding: between two calls of one model,
# and between two machines or runtimes.
_SAME_CALL, _SAME_MODEL = 1e-4, 1e-3


def check_same_draws(before: CleanPredictions, now: CleanPredictions) -> None:
    """Refuse another random model than before, whose same draws give other results; rounding may change a few."""
    assert before.errors is not None, "only random models are drawn"
    assert now.errors is not None, "only random models are drawn"
    draws = before.draws * len(before.errors)
    differing = int(np.abs(before.errors - now.errors).sum())
    if before.draws != now.draws or differing > _SAME_MODEL * draws:
        raise InputError(
            f"this run was begun with another model: of {draws:,} draws of the clean images, {differing:,} now have "
            "another result, so continuing would mix the results of two models. Start a new run, or restore the model."
        )


def check_same_model(before: NDArray[np.float32], now: NDArray[np.float32]) -> None:
    """Refuse another model than before: the scores of the clean images must agree up to rounding."""
    distance = largest_difference(before, now) if before.shape == now.shape else math.inf
    if distance > _SAME_MODEL * spread_of(before):
        raise InputError(
            f"this run was begun with another model: the scores of the clean images differ by up to {distance:.3g}, "
            "so continuing would mix the results of two models. Start a new run, or restore the model."
        )


def agree(again: NDArray[Any], scores: NDArray[Any]) -> bool:
    """Return whether the scores of two calls with the same images agree up to rounding."""
    return largest_difference(again, scores) <= _SAME_CALL * spread_of(scores)


def spread_of(scores: NDArray[Any]) -> float:
    """Return the scale of the scores: the median distance from an image's median score to its best."""
    numbers = scores.astype(np.float64)
    return float(np.median(numbers.max(axis=1) - np.median(numbers, axis=1)))


def largest_difference(left: NDArray[Any], right: NDArray[Any]) -> float:
    """Return the largest difference between two arrays of scores."""
    return float(np.abs(left.astype(np.float64) - right.astype(np.float64)).max())


def count_differing(left: NDArray[Any], right: NDArray[Any]) -> int:
    """Return the number of images whose predicted classes differ."""
    return int((predicted_classes(left) != predicted_classes(right)).sum())

"""Results as plain rows, one per image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from parsimon.core.types import Outcome
from parsimon.results.statistics import wilson_interval

if TYPE_CHECKING:
    from parsimon.results.evaluation import Evaluation
    from parsimon.results.result import CleanPredictions, Result

Row = dict[str, Any]


def result_rows(result: Result) -> Iterator[Row]:
    """Yield what an attack did to each given image; one that it did not attack has no outcome."""
    outcomes = {outcome.index: outcome for outcome in result.outcomes}
    for image in range(len(result.labels)):
        outcome = outcomes.get(image)
        yield {
            **_clean(image, int(result.labels[image]), result.clean),
            "attacked": outcome is not None,
            "success": outcome is not None and outcome.success,
            "queries": 0 if outcome is None else outcome.queries,
            "ended": None if outcome is None else outcome.ended,
            "predicted": None if outcome is None else outcome.predicted,
            "verified": None if outcome is None else result.verified(outcome),
            "extra": 0 if outcome is None else outcome.extra,
            "radius": None if outcome is None else outcome.radius,
            **_drawn(outcome, result),
            **_watched(outcome, result),
            **_defended(result),
        }


def _drawn(outcome: Outcome | None, result: Result) -> Row:
    """Return the fresh draws of the point returned, if the model is random, with the interval of their error rate."""
    if result.threat.sampling is None:
        return {}
    draws, errors = (0, 0) if outcome is None else (outcome.draws, outcome.errors)
    low, high = wilson_interval(errors, draws) if draws else (None, None)
    rate = errors / draws if draws else None
    return {"draws": draws, "errors": errors, "error_rate": rate, "error_low": low, "error_high": high}


def _watched(outcome: Outcome | None, result: Result) -> Row:
    """Return what a detector flagged, if there is one."""
    if result.summary.flagged is None:
        return {}
    flagged, first = (None, None) if outcome is None else (outcome.flagged, outcome.first_flag)
    return {"flagged": flagged, "first_flag": first}


def _defended(result: Result) -> Row:
    """Return the defences in front of the model, if there are any."""
    return {"defence": " + ".join(result.defence)} if result.defence else {}


def evaluation_rows(evaluation: Evaluation) -> Iterator[Row]:
    """Yield what all black-box attacks left of each image."""
    fooled_by = _fooled_by(evaluation)
    queries, robust, labels = evaluation.queries, evaluation.robust, evaluation.any_result.labels
    for image in range(len(evaluation.correct)):
        fooled = image in fooled_by
        yield {
            **_clean(image, int(labels[image]), evaluation.clean),
            "robust": bool(robust[image]),
            "fooled_by": fooled_by.get(image),
            "fooled_after": int(evaluation.fooled_after[image]) if fooled else None,
            "queries": int(queries[image]),
            **_defended(evaluation.any_result),
        }


def _clean(image: int, label: int, clean: CleanPredictions) -> Row:
    predicted, correct = int(clean.predicted[image]), bool(clean.correct[image])
    return {"image": image, "label": label, "clean_predicted": predicted, "correct": correct}


def _fooled_by(evaluation: Evaluation) -> dict[int, str]:
    """Return the attack that fooled each image in fewest queries, here or at a smaller radius."""
    found = {} if evaluation.smaller is None else _fooled_by(evaluation.smaller)
    for name, result in evaluation.black_box.items():
        for outcome in result.outcomes:
            if outcome.success and outcome.queries == evaluation.fooled_after[outcome.index]:
                found.setdefault(outcome.index, name)
    return found

"""The headline of a comparison: its verdict in one sentence, for the terminal, the report and notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsimon.results.notes import with_gradients
from parsimon.results.statistics import wilson_interval
from parsimon.results.text import behind, percent_range, radius_text

if TYPE_CHECKING:
    from parsimon.results.evaluation import Evaluation
    from parsimon.results.result import Comparison


def headline(comparison: Comparison) -> str:
    """Return the robust accuracy, or how many images reached their target, with what it rests on."""
    first, verdict = comparison.first, comparison.verdict
    images = f"{verdict.images:,} images"
    if verdict.attacked < first.clean.correct.sum():
        some = f"{verdict.attacked:,} of {first.clean.correct.sum():,} correctly classified images"
        images = f"estimate from {some}"
    found = f"Robust accuracy {verdict}"
    if first.threat.targeted:
        images, found = f"{len(first.outcomes):,} images", _reached(comparison)
    attacks = ", ".join(comparison.counted)
    limit = f"at most {first.budget:,} queries per image"
    place = f"{behind(first.defence)} at eps {radius_text(first.threat.effective_eps)}"
    sentence = f"{found}{place}: {images}, {attacks}, {limit}"
    return "; ".join(filter(None, (sentence, with_gradients(comparison))))


def evaluation_headline(evaluation: Evaluation, model: str) -> str:
    """Return the robust accuracy of a model at one radius, beside its clean accuracy."""
    model = f"{model}{behind(evaluation.any_result.defence)}"
    accuracy = f"{model}: robust accuracy {evaluation.verdict()} at eps {radius_text(evaluation.effective_eps)}"
    return f"{accuracy}, clean accuracy {evaluation.clean_accuracy:.1%}"


def evaluation_basis(evaluation: Evaluation) -> str:
    """Return what the robust accuracy rests on."""
    attacks, limit = ", ".join(evaluation.attacks), f"at most {evaluation.budget:,} queries per image and attack"
    return f"{len(evaluation.correct):,} images, {attacks}, {limit}"


def advice(comparison: Comparison) -> str | None:
    """Return what makes a verdict of the headline, if it is none."""
    if len(comparison.counted) > 1 or comparison.first.threat.targeted:
        return None
    return "An upper bound: one attack only. For a verdict: parsimon evaluate MODEL"


def _reached(comparison: Comparison) -> str:
    """Return how many images reached their target under any attack."""
    images = len(comparison.first.outcomes)
    reached = len({each.index for result in comparison.counted.values() for each in result.outcomes if each.success})
    if any(result.summary.unfinished for result in comparison.counted.values()):
        return f"Target reached on at least {reached:,} of {images:,} images so far"
    interval = percent_range(wilson_interval(reached, images))
    return f"Target reached on {reached:,} of {images:,} images, {reached / images:.1%} ({interval}),"

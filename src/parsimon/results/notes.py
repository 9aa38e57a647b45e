"""The notes below tables: what the numbers rest on, and everything that was counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from statistics import median
from typing import TYPE_CHECKING

from parsimon.core.threat import Sampling
from parsimon.results.chance import SEVERAL_CHANCES
from parsimon.results.summary import Summary
from parsimon.results.text import radius_text
from parsimon.results.verdict import bound_note

if TYPE_CHECKING:
    from parsimon.results.evaluation import Evaluation, EvaluationGrid
    from parsimon.results.result import Comparison, Result
    from parsimon.results.verdict import Verdict


def label_only_summaries(results: Mapping[str, Result]) -> dict[str, Summary]:
    """Return the summaries of the attacks that have radii."""
    return {name: result.summary for name, result in results.items() if result.summary.radii is not None}


def comparison_notes(comparison: Comparison) -> list[str]:
    """Return the notes below a comparison."""
    clean, budget = comparison.first.clean, comparison.first.budget
    notes = [
        *warned(comparison.warnings),
        *_accuracies(comparison),
        "Success: share of the attacked (correctly classified) images.",
        "Mean and median: queries per fooled image.",
        f"Mean of all: over all attacked images; a failure counts as {budget:,} queries.",
    ]
    if comparison.reference is not None:
        notes.append(f"On {comparison.relative_to}'s: mean queries on the images that {comparison.relative_to} fooled.")
    notes.append("Intervals: 95%; Wilson for success, percentile bootstrap for queries.")
    notes += [*_radius_notes(comparison.results), *accounts(comparison.results)]
    notes += [] if comparison.chance is None else comparison.chance.notes()
    if len(comparison.black_box) > 1 and comparison.unfinished:
        notes.append("Paired comparison: omitted until every image is finished.")
    if clean.backend is not None:
        notes.append(f"Model run by {clean.backend}.")
    return [*notes, *clean.remarks]


def _radius_notes(results: Mapping[str, Result]) -> list[str]:
    """Return what the radii of label-only attacks mean."""
    summaries = label_only_summaries(results)
    if not summaries:
        return []
    found = [f"{name} {each.with_radius:,} of {each.attacked:,}" for name, each in summaries.items()]
    notes = [
        "Radius: distance to the closest adversarial image found, within eps or not.",
        "Median radius: over all images; one without a radius counts as infinite.",
        *_listed("Mean radius: over the images with a radius", found),
    ]
    if not all(results[name].threat.until_budget for name in summaries):
        notes.append("A success ends an attack, so its radius is an upper bound near eps.")
        notes.append("To continue to closer images: --until-budget, or until_budget=True.")
    return notes


def _accuracies(comparison: Comparison) -> list[str]:
    """Return the clean accuracy, and the robust one with what it rests on."""
    clean, verdict = comparison.first.clean, comparison.verdict
    accuracy = f"Clean accuracy: {clean.accuracy:.1%}."
    if comparison.first.threat.targeted:
        return [accuracy]
    attacks = "these attacks" if len(comparison.counted) > 1 else "this attack"
    if len(comparison.counted) < len(comparison.results):
        attacks = ", ".join(comparison.counted)
    found = f": {verdict.value:.1%} under {attacks}" if verdict.interval else f" so far: at most {verdict.value:.1%}"
    notes = [f"{accuracy} Robust accuracy{found}."]
    if verdict.kind == "estimate":
        some = f"{verdict.attacked:,} of {clean.correct.sum():,} correctly classified images"
        notes.append(f"It is estimated from {some}: {verdict}.")
    if other := with_gradients(comparison):
        notes.append(f"{other[0].upper()}{other[1:]}.")
    return [*notes, bound_note(random=comparison.first.random)]


def with_gradients(comparison: Comparison) -> str:
    """Return what white-box attacks leave beside black-box ones, or an empty text."""
    other = comparison.white_box_verdict
    if other is None or not comparison.black_box or comparison.first.threat.targeted:
        return ""
    return _seeing_gradients(comparison.white_box, {"": other})


def evaluation_with_gradients(evaluations: Mapping[str, Evaluation]) -> str:
    """Return what white-box attacks leave of each model beside black-box ones, or an empty text.

    `evaluations` has the name of each model; a single one may have an empty name.
    """
    others = {model: other for model, each in evaluations.items() if (other := each.white_box_verdict)}
    names = dict.fromkeys(name for each in evaluations.values() for name in each.white_box_attacks)
    return _seeing_gradients(names, others) if others else ""


def _seeing_gradients(names: Collection[str], verdicts: Mapping[str, Verdict]) -> str:
    see = "which sees gradients" if len(names) == 1 else "which see gradients"
    values = [
        " ".join(filter(None, (model, f"{other.value:.1%}" if other.interval else f"at most {other.value:.1%} so far")))
        for model, other in verdicts.items()
    ]
    return f"with {', '.join(names)}, {see}: {', '.join(values)}"


def accounts(results: Mapping[str, Result]) -> list[str]:
    """Return the losses, and everything that was counted."""
    by_loss: dict[str, list[str]] = {}
    for name, result in results.items():
        by_loss.setdefault(result.threat.loss, []).append(name)
    losses = [loss if len(by_loss) == 1 else f"{loss} ({', '.join(by_loss[loss])})" for loss in sorted(by_loss)]
    notes = [f"Loss: {'; '.join(losses)}."]
    summaries = [result.summary for result in results.values()]
    for what, counts in (
        ("Queries charged", [each.queries for each in summaries]),
        ("Evaluations not charged", [each.uncharged for each in summaries]),
        ("Evaluations outside the ball", [each.outside for each in summaries]),
        ("Evaluations with pixels outside [0, 1]", [each.out_of_range for each in summaries]),
        ("Evaluations with gradient", [each.gradients for each in summaries]),
        ("Unfinished images, counted as not fooled so far", [each.unfinished for each in summaries]),
    ):
        counted = [f"{name} {count:,}" for name, count in zip(results, counts, strict=True) if count]
        notes += _listed(what, counted)
    notes += _sampled(results) or _verified({name: each for name, each in results.items() if each.summary.successes})
    notes += _flagged(results)
    rounded = [name for name, result in results.items() if result.threat.rounding == "nearest"]
    if rounded:
        notes.append(f"Rounding as published: pixels of {', '.join(rounded)} may exceed eps by up to 6e-8.")
    for name, result in results.items():
        if result.traffic is not None:
            sent = f"{result.traffic.attempted:,} attempted, {result.traffic.answered:,} answered"
            notes.append(f"Images sent to the server: {name} {sent}.")
    return notes


def _verified(results: Mapping[str, Result]) -> list[str]:
    """Return how many successes held on their second query."""
    seen = {name: result.verification for name, result in results.items() if result.verification is not None}
    held = [f"{name} {each.held:,} of {each.queried:,}" for name, each in seen.items()]
    notes = _listed("Successes that hold when queried again", held)
    return notes + _listed("Successes not verified", [name for name in results if name not in seen])


def _sampled(results: Mapping[str, Result]) -> list[str]:
    """Return how the results on a random model were judged, and how often it erred at the points returned."""
    first = next(iter(results.values()), None)
    sampling = None if first is None else first.threat.sampling
    if sampling is None:
        return []
    rates = []
    for name, result in results.items():
        if (found := result.summary.error_rate) is not None:
            mean, interval = found
            ends = "" if interval is None else f" ({interval[0]:.1%} to {interval[1]:.1%})"
            rates.append(f"{name} {mean:.1%}{ends}")
    attacked = {tuple(each.index for each in result.outcomes) for result in results.values()}
    over = "over all attacked images" if len(attacked) == 1 else "each over the images that it attacked"
    return [
        fooled_by_draws(sampling),
        "Correct: it errs in at most half of as many draws of the clean image. None of these is charged.",
        *_listed(f"Mean error rate in fresh draws, {over}", rates),
        *_listed("Fresh draws", [f"{name} {each.summary.draws:,}" for name, each in results.items()]),
        "No tests: attacks take every draw as exact."
        if sampling.error_rate == 1
        else f"Changes are accepted, and attacks end, by tests with an error rate of {sampling.error_rate:g}.",
    ]


def fooled_by_draws(sampling: Sampling) -> str:
    """Return when an image of a random model counts as fooled."""
    return f"Random model. Fooled: it errs in more than half of {sampling.draws:,} fresh draws of one point."


def grid_chance_notes(grid: EvaluationGrid) -> list[str]:
    """Return what chance leaves open in each cell of an evaluation of random models."""
    cells = [
        (f"{model} at {radius_text(each.effective_eps)}", each.chance)
        for model, row in grid.evaluations.items()
        for each in row
    ]
    undecided = [f"{name} {chance.undecided:,}" for name, chance in cells if chance is not None]
    expected = [f"{name} {chance.expected}" for name, chance in cells if chance is not None and chance.expected]
    several = any(chance.undecided and chance.attacks > 1 for _, chance in cells if chance is not None)
    return [
        *_listed("Undecided images, whose 95% interval of the error rate contains 50%", undecided),
        *([SEVERAL_CHANCES] if several else []),
        *_listed("Expected accuracy of a single query", expected),
    ]


def _flagged(results: Mapping[str, Result]) -> list[str]:
    """Return what a detector flagged."""
    watched = {name: result.summary for name, result in results.items() if result.summary.flagged is not None}
    attacks = [f"{name} {len(each.first_flags):,} of {each.attacked:,}" for name, each in watched.items()]
    first = [f"{name} {median(each.first_flags):,g}" for name, each in watched.items() if each.first_flags]
    return [
        *_listed("Attacks flagged", attacks),
        *_listed("Median query of the first flag", first),
        *_listed("Queries flagged", [f"{name} {each.flagged:,}" for name, each in watched.items()]),
    ]


def warned(warnings: Iterable[str]) -> list[str]:
    """Return warnings as notes."""
    return [f"WARNING: {warning}" for warning in warnings]


def _listed(what: str, names: Iterable[str]) -> list[str]:
    listed = ", ".join(names)
    return [f"{what}: {listed}."] if listed else []

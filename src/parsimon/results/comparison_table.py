"""The tables of a comparison: one attack a row, and the first attack against each of the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from parsimon.core.model import Traffic
from parsimon.core.threat import Loss, Rounding, Threat
from parsimon.core.types import Outcome
from parsimon.results.statistics import Interval, Paired
from parsimon.results.summary import Summary, summarise, where_fooled, withstood
from parsimon.results.table import Cell, Table
from parsimon.results.verification import Verification


class Entry(NamedTuple):
    """One attack of a comparison."""

    name: str
    outcomes: Sequence[Outcome]
    budget: int
    loss: Loss
    white_box: bool = False
    traffic: Traffic | None = None
    verification: Verification | None = None
    rounding: Rounding = "inward"


class Value(NamedTuple):
    """A number of a column."""

    number: float | None
    interval: Interval | None = None


def comparison_table(
    threat: Threat,
    entries: Sequence[Entry],
    relative_to: str | None,
    clean_accuracy: float,
    remarks: Sequence[str] = (),
) -> Table:
    """Attacks on the same images. Those that see gradients come last, and no other is measured against them.

    Args:
        threat: What all of them are allowed.
        entries: The attacks.
        relative_to: The one over whose successes queries are averaged once more.
        clean_accuracy: Of the model, on all images that were given.
        remarks: On how the model was run.
    """
    summaries = {entry.name: summarise(entry.outcomes, entry.budget) for entry in entries}
    reference = next((entry.outcomes for entry in entries if entry.name == relative_to), None)
    headers = ["attack", "success", "mean", "median", "mean of all"]
    if reference is not None:
        headers.insert(4, f"on {relative_to}'s")

    groups = []
    for white_box in (False, True):
        group = [entry for entry in entries if entry.white_box == white_box]
        of_group = [summaries[entry.name] for entry in group]
        columns = [
            [Cell(entry.name) for entry in group],
            success_column(of_group),
            column([Value(each.mean, each.mean_interval) for each in of_group]),
            column([Value(each.median, each.median_interval) for each in of_group]),
            column([Value(None if white_box else each.mean_of_all) for each in of_group]),
        ]
        if reference is not None:
            shared = [summarise(where_fooled(reference, entry.outcomes), entry.budget) for entry in group]
            columns.insert(4, column([Value(each.mean, each.mean_interval) for each in shared]))
        if group:
            groups.append(list(zip(*columns, strict=True)))

    goal = "targeted" if threat.targeted else "untargeted"
    images, budget = len(entries[0].outcomes), entries[0].budget
    title = f"eps {threat.eps * 255:.4g}/255, {goal}, {images:,} images, at most {budget:,} queries an image"
    notes = _notes(entries, summaries, relative_to, reference is not None, clean_accuracy)
    return Table(title, headers, groups, [*notes, *remarks])


def column(
    values: Sequence[Value], write: Callable[[float], str] | None = None, rank: Callable[[float], float] = float
) -> list[Cell]:
    """A column's cells; the lowest in rank are the best, where there is anything to compare."""
    write = write or _number
    ranks = [rank(value.number) for value in values if value.number is not None]
    best = min(ranks) if len(ranks) > 1 else None
    return [
        Cell("-")
        if number is None
        else Cell(write(number), rank(number) == best, None if ends is None else (_number(ends[0]), _number(ends[1])))
        for number, ends in values
    ]


def success_column(summaries: Sequence[Summary]) -> list[Cell]:
    values = [Value(each.success_rate, each.interval and _percent(each.interval)) for each in summaries]
    cells = column(values, "{:.1%}".format, lambda rate: -rate)
    return [
        cell._replace(text=f">= {cell.text}") if each.unfinished else cell
        for cell, each in zip(cells, summaries, strict=True)
    ]


def _percent(interval: Interval) -> Interval:
    low, high = interval
    return 100 * low, 100 * high


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _notes(
    entries: Sequence[Entry],
    summaries: dict[str, Summary],
    relative_to: str | None,
    is_relative: bool,
    clean_accuracy: float,
) -> list[str]:
    """What the numbers are taken over, and what they leave out."""
    left = withstood(entry.outcomes for entry in entries)
    under_attack = clean_accuracy * left / max(1, len(entries[0].outcomes))
    together = "all of these attacks together" if len(entries) > 1 else "this attack"
    unfinished = any(summary.unfinished for summary in summaries.values())
    at_most, so_far = ("at most ", " so far") if unfinished else ("", "")
    notes = [
        f"Accuracy: {clean_accuracy:.1%} clean, {at_most}{under_attack:.1%} under {together}{so_far}.",
        "Success: of all attacked (correctly classified) images.",
        "Mean and median: queries of the successes.",
        f"Mean of all: a failure counted at the budget of {entries[0].budget:,}.",
    ]
    if is_relative:
        notes.append(f"On {relative_to}'s: mean queries over the images that {relative_to} fooled too.")
    notes.append("Intervals: 95 %; Wilson's for success, percentile bootstrap for queries.")
    notes += accounts(entries, summaries)
    several = sum(not entry.white_box for entry in entries) > 1
    if several and unfinished:
        notes.append("Paired comparison: left out until every image is finished.")
    return notes


def accounts(entries: Sequence[Entry], summaries: Mapping[str, Summary]) -> list[str]:
    """What was climbed, and all that was counted."""
    notes = []
    losses = sorted({entry.loss for entry in entries})
    if len(losses) == 1:
        notes.append(f"Loss: {losses[0]}.")
    else:
        named = (f"{loss} ({', '.join(entry.name for entry in entries if entry.loss == loss)})" for loss in losses)
        notes.append(f"Loss: {'; '.join(named)}.")
    for what, count in (
        ("Queries charged", "queries"),
        ("Evaluations not charged", "uncharged"),
        ("Evaluations outside the ball", "outside"),
        ("Evaluations with pixels outside [0, 1]", "out_of_range"),
        ("Evaluations with gradient", "gradients"),
        ("Unfinished images, counted as not fooled so far", "unfinished"),
    ):
        counts = {name: getattr(summary, count) for name, summary in summaries.items()}
        if any(counts.values()):
            notes.append(f"{what}: {', '.join(f'{name} {number:,}' for name, number in counts.items() if number)}.")
    notes += _verified(entries, summaries)
    if rounded := [entry.name for entry in entries if entry.rounding == "nearest"]:
        notes.append(f"Rounding as published: pixels of {', '.join(rounded)} may exceed eps by up to 6e-8.")
    for entry in entries:
        if entry.traffic is not None:
            attempted, answered = entry.traffic.attempted, entry.traffic.answered
            notes.append(f"Images sent to the server: {entry.name} {attempted:,} attempted, {answered:,} answered.")
    return notes


def _verified(entries: Sequence[Entry], summaries: Mapping[str, Summary]) -> list[str]:
    """Say how many successes hold when they are queried once more."""
    with_successes = [entry for entry in entries if summaries[entry.name].successes]
    seen = {entry.name: entry.verification for entry in with_successes if entry.verification is not None}
    notes = []
    if seen:
        held = (f"{name} {each.held:,} of {each.queried:,}" for name, each in seen.items())
        notes.append(f"Successes that hold when queried again: {', '.join(held)}.")
    if any(each.failed for each in seen.values()):
        notes.append("WARNING: where a success does not hold, the result is doubtful. Does the model answer at random?")
    if missing := [entry.name for entry in with_successes if entry.verification is None]:
        notes.append(f"Successes not verified: {', '.join(missing)}.")
    return notes


def paired_table(subject: str, pairs: Mapping[str, Paired]) -> Table:
    """One attack against each of some others, on the same images."""
    headers = ["against", "both", "only it", "only other", "difference", "McNemar p", "ratio", "Wilcoxon p"]
    rows = [
        [
            Cell(name),
            *(Cell(f"{count:,}") for count in (pair.both, pair.only_a, pair.only_b)),
            Cell(_points(pair.difference), interval=_both(_points, pair.difference_interval)),
            Cell(_p(pair.success_p)),
            Cell(_ratio(pair.mean_ratio), interval=_both(_ratio, pair.mean_ratio_interval)),
            Cell(_p(pair.queries_p)),
        ]
        for name, pair in pairs.items()
    ]
    first = next(iter(pairs.values()))
    images = first.both + first.only_a + first.only_b + first.neither
    notes = [
        f"Only it, only other: images that {subject}, or the other, alone fooled.",
        f"Difference: {subject}'s success rate minus the other's, in points.",
        f"Ratio: {subject}'s mean queries over the other's, where both fooled.",
        "Intervals: 95 %; Newcombe's for differences, percentile bootstrap for ratios.",
        "McNemar p: of the difference, exact.",
        "Wilcoxon p: of queries, where both fooled.",
        "Each p is of one test by itself, not corrected for their number.",
    ]
    others = "the others" if len(pairs) > 1 else next(iter(pairs))
    return Table(f"{subject} against {others}, on the same {images:,} images", headers, [rows], notes)


def _both(write: Callable[[float], str], ends: Interval | None) -> tuple[str, str] | None:
    return None if ends is None else (write(ends[0]), write(ends[1]))


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _ratio(value: float | None) -> str:
    if value is None:
        return "-"
    if math.isinf(value):
        return "inf"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"

"""The tables of a comparison, of paired attacks, and of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from parsimon.core.types import Outcome
from parsimon.results.notes import (
    accounts,
    comparison_notes,
    fooled_by_draws,
    grid_chance_notes,
    label_only_summaries,
    warned,
)
from parsimon.results.statistics import Interval, Paired
from parsimon.results.summary import Summary, summarise, where_fooled
from parsimon.results.table import Cell, Table
from parsimon.results.text import behind, p_text, percent_ends, points_text, radius_text, titled
from parsimon.results.verdict import Verdict, bound_note

if TYPE_CHECKING:
    from parsimon.results.evaluation import Evaluation, EvaluationGrid
    from parsimon.results.result import Comparison, Result


class Value(NamedTuple):
    """A number of a column, with its interval."""

    number: float | None
    interval: Interval | None = None


def comparison_table(comparison: Comparison) -> Table:
    """Return one row per attack. White-box attacks form a second group, and only their own group ranks them."""
    first, relative_to = comparison.first, comparison.relative_to
    reference = comparison.reference
    headers = ["attack", "success", "mean", "median", "mean of all"]
    if reference is not None:
        headers.insert(4, f"on {relative_to}'s")
    if label_only_summaries(comparison.results):
        headers += ["median radius", "mean radius"]
    radii = bool(label_only_summaries(comparison.results))
    groups = [_rows(group, reference, radii=radii) for group in (comparison.black_box, comparison.white_box) if group]
    goal = "targeted" if first.threat.targeted else "untargeted"
    title = f"eps {radius_text(first.threat.effective_eps)}, {goal}, {len(first.outcomes):,} images"
    title = f"{title}, at most {first.budget:,} queries per image"
    return Table(titled(title, first.defence), headers, groups, comparison_notes(comparison))


def _rows(results: Mapping[str, Result], reference: Result | None, *, radii: bool) -> list[tuple[Cell, ...]]:
    summaries = [result.summary for result in results.values()]
    outcomes = [result.outcomes for result in results.values()]
    same = same_successes(outcomes)
    columns = [
        [Cell(name) for name in results],
        success_column(summaries),
        column([Value(each.mean, each.mean_interval) for each in summaries], ranked=same),
        column([Value(each.median, each.median_interval) for each in summaries], ranked=same),
    ]
    if reference is not None:
        shared = [where_fooled(reference.outcomes, each) for each in outcomes]
        averaged = [summarise(each, reference.budget) for each in shared]
        values = [Value(each.mean, each.mean_interval) for each in averaged]
        columns.append(column(values, ranked=same_successes(shared)))
    of_all = [None if result.attack.white_box else result.summary.mean_of_all for result in results.values()]
    columns.append(column([*map(Value, of_all)]))
    if radii:
        columns.append(column([Value(each.median_radius) for each in summaries], _radius))
        # Means are over the images for which an attack found something, so they cannot be ranked.
        columns.append(column([Value(each.mean_radius) for each in summaries], _radius, ranked=False))
    return list(zip(*columns, strict=True))


def same_successes(attacks: Sequence[Sequence[Outcome]]) -> bool:
    """Return whether all attacks fooled the same images, so that averages over their successes can be ranked."""
    return len({frozenset(each.index for each in outcomes if each.success) for outcomes in attacks}) <= 1


def column(
    values: Sequence[Value],
    write: Callable[[float], str] | None = None,
    rank: Callable[[float], float] = float,
    *,
    ranked: bool = True,
) -> list[Cell]:
    """Return a column's cells. The cells of lowest rank are the best, if there are several that can be compared."""
    write = write or _number
    ranks = [rank(value.number) for value in values if value.number is not None]
    best = min(ranks) if len(ranks) > 1 and ranked else None
    return [
        Cell("-") if number is None else Cell(write(number), rank(number) == best, _ends(_number, interval))
        for number, interval in values
    ]


def success_column(summaries: Sequence[Summary]) -> list[Cell]:
    """Return success rates in percent; `>=` marks the rate of an unfinished attack."""
    values = [Value(each.success_at_least, each.interval and _percent(each.interval)) for each in summaries]
    finished = not any(each.unfinished for each in summaries)
    cells = column(values, "{:.1%}".format, lambda rate: -rate, ranked=finished)
    return [
        cell._replace(text=f">= {cell.text}") if each.unfinished else cell
        for cell, each in zip(cells, summaries, strict=True)
    ]


def paired_table(subject: str, pairs: Mapping[str, Paired], defence: Sequence[str] = ()) -> Table:
    """Return one row per attack that `subject` is compared with, image by image."""
    headers = ["against", "both", "only it", "only other", "difference", "McNemar p", "ratio", "Wilcoxon p"]
    rows = [
        [
            Cell(name),
            *(Cell(f"{count:,}") for count in (pair.both, pair.only_a, pair.only_b)),
            Cell(points_text(pair.difference), interval=_ends(points_text, pair.difference_interval)),
            Cell(p_text(pair.success_p)),
            Cell(_ratio(pair.mean_ratio), interval=_ends(_ratio, pair.mean_ratio_interval)),
            Cell(p_text(pair.queries_p)),
        ]
        for name, pair in pairs.items()
    ]
    first = next(iter(pairs.values()))
    images = first.both + first.only_a + first.only_b + first.neither
    notes = [
        f"Only it: images that {subject} alone fooled. Only other: the reverse.",
        f"Difference: {subject}'s success rate minus the other's, in points.",
        f"Ratio: {subject}'s mean queries over the other's, on images both fooled.",
        "Intervals: 95%; Newcombe for differences, percentile bootstrap for ratios.",
        "McNemar p: exact test of the difference.",
        "Wilcoxon p: test of the queries, on images both fooled.",
        "The p-values are not corrected for the number of tests.",
    ]
    others = "the others" if len(pairs) > 1 else next(iter(pairs))
    title = f"{subject} against {others}, on the same {images:,} images"
    return Table(titled(title, defence), headers, [rows], notes)


def evaluation_table(evaluation: Evaluation) -> Table:
    """Return a row for the clean images, then one for each attack on the images that are still robust."""
    images, budget = len(evaluation.correct), evaluation.budget
    left = evaluation.correct
    left = left if evaluation.smaller is None else left & evaluation.smaller.robust_within(budget)
    clean = [Cell("(clean)"), Cell("-"), Cell("-"), Cell("-"), accuracy_cell(evaluation.clean_accuracy_verdict)]
    rows = []
    for name, result in evaluation.black_box.items():
        summary = result.summary
        left = left & ~result.success
        accuracy = accuracy_cell(evaluation.verdict_of(left, unfinished=summary.unfinished > 0))
        rows.append([Cell(name), *_counts(summary), accuracy])
    groups = [[clean], rows]
    if (other := evaluation.white_box_verdict) is not None:
        groups.append([_white_box_row(name, result, other) for name, result in evaluation.white_box.items()])
    smaller = evaluation.budgets[:-1]
    within = f" within {smaller[0]:,} queries" if smaller else ""
    notes = [
        *warned(evaluation.warnings),
        f"Attacked: correctly classified images that no earlier attack fooled{within}.",
        "Accuracy: share of all images still correct after this and earlier attacks.",
        bound_note(random=evaluation.random),
        *(["White-box attacks see gradients: their row counts all attacks together."] if len(groups) > 2 else []),
        "Intervals: 95%, Wilson.",
        *(f"Accuracy within {each:,} queries: {evaluation.verdict(each)}." for each in smaller),
        *accounts(evaluation.results),
    ]
    notes += [] if evaluation.chance is None else evaluation.chance.notes()
    if evaluation.smaller is not None:
        known = int((evaluation.correct & evaluation.smaller.settled).sum())
        notes.append(f"{known:,} images fooled at a smaller radius were not attacked again.")
    if evaluation.unfinished:
        notes.append(f"Interrupted: {evaluation.unfinished:,} images have attacks left; the accuracy may be lower.")
    notes += evaluation.clean.remarks
    limits = f"at most {budget:,} queries per image and attack"
    title = f"eps {radius_text(evaluation.effective_eps)}, {images:,} images, {limits}"
    title = titled(title, evaluation.any_result.defence)
    return Table(title, ["attack", "attacked", "fooled", "queries", "accuracy"], groups, notes)


def _white_box_row(name: str, result: Result, verdict: Verdict) -> list[Cell]:
    return [Cell(name), *_counts(result.summary), accuracy_cell(verdict)]


def _counts(summary: Summary) -> list[Cell]:
    """Return images attacked, images fooled and queries charged. A mean would compare attacks on different images."""
    return [Cell(f"{count:,}") for count in (summary.attacked, summary.successes, summary.queries)]


def grid_table(grid: EvaluationGrid) -> Table:
    """Return the robust accuracy: one row per radius, one column per model, one group per budget."""
    first = grid.any_evaluation
    evaluated = [grid.evaluations.get(model, ()) for model in grid.models]
    clean = [
        Cell("0 (clean)"),
        *(accuracy_cell(row[0].clean_accuracy_verdict) if row else Cell("-") for row in evaluated),
    ]
    groups = [[clean]]
    for budget in first.budgets:
        within = f", {budget:,} queries" if len(first.budgets) > 1 else ""
        groups.append(
            [
                [
                    Cell(f"{radius_text(radius)}{within}"),
                    *(accuracy_cell(row[place].verdict(budget)) if row else Cell("-") for row in evaluated),
                ]
                for place, radius in enumerate(grid.effective_radii)
            ]
        )
    if any(row and row[0].white_box_verdict for row in evaluated):
        groups.append(
            [
                [
                    Cell(f"{radius_text(radius)}, white box"),
                    *(accuracy_cell(row[place].white_box_verdict) if row else Cell("-") for row in evaluated),
                ]
                for place, radius in enumerate(grid.effective_radii)
            ]
        )
    attacks = ", ".join(first.attacks)
    limits = "" if len(first.budgets) > 1 else f", at most {first.budget:,} queries per image and attack"
    title = f"Robust accuracy{behind(first.any_result.defence)} on {len(first.correct):,} images{limits}"
    notes = [
        f"Share of images that are classified correctly and that no attack fooled ({attacks}).",
        bound_note(random=first.random),
        "An image fooled at a radius counts as fooled at every larger one.",
        "Intervals: 95%, Wilson.",
    ]
    sampling = first.any_result.threat.sampling
    if sampling is not None:
        notes += [fooled_by_draws(sampling), *grid_chance_notes(grid)]
    notes += first.clean.remarks
    if grid.unfinished:
        notes.append("Unfinished: `<=` marks accuracies that can still fall.")
    return Table(title, ["eps", *grid.models], groups, notes)


def accuracy_cell(verdict: Verdict | None) -> Cell:
    """Return the cell of an accuracy; `<=` marks one that can still fall."""
    if verdict is None:
        return Cell("-")
    interval = verdict.interval and percent_ends(verdict.interval)
    return Cell(f"{'<= ' * (interval is None)}{verdict.value:.1%}", interval=interval)


def number_cell(number: float | None, interval: Interval | None = None) -> Cell:
    """Return the cell of a number, with its interval."""
    return Cell("-") if number is None else Cell(_number(number), interval=_ends(_number, interval))


def _ends(write: Callable[[float], str], interval: Interval | None) -> tuple[str, str] | None:
    return None if interval is None else (write(interval[0]), write(interval[1]))


def _percent(interval: Interval) -> Interval:
    return 100 * interval[0], 100 * interval[1]


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _radius(radius: float) -> str:
    return f"{radius:.4f}"


def _ratio(value: float | None) -> str:
    if value is None:
        return "-"
    if math.isinf(value):
        return "inf"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"

"""The charts of a page, as plain data: success, accuracy and radius against queries, and accuracy against radius."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from parsimon.core.types import Outcome
from parsimon.report.data import Data
from parsimon.report.style import Mark, marks_in_order, marks_of_runs
from parsimon.results.evaluation import Evaluation, EvaluationGrid
from parsimon.results.result import Comparison, Result
from parsimon.results.statistics import curve, known_queries, median_radii, wilson_interval
from parsimon.results.text import radius_text
from parsimon.results.verdict import Verdict

_WHITE_BOX_DASHES: tuple[list[float], ...] = ([6, 4], [2, 3], [10, 3, 2, 3])
_READING = (
    "To read values, point at the plot, or focus it and use the arrow keys. Wide intervals stand at the right edge; "
    "point at a name to see its band."
)
_NO_CURVE = (
    "A random model has no curve: fresh draws decide about an image only once, at the end of its attack. Make one run "
    "per budget. "
)
_SUCCESS_HINT = "The share of attacked images fooled within a number of queries, with its 95 % Wilson interval. "


def success_chart(comparisons: Mapping[str, Comparison]) -> Data:
    """Return each attack's success curve with its Wilson interval at every step.

    The lines of several comparisons name theirs; an attack has the same colour in all of them.
    """
    several = len(comparisons) > 1
    looks = marks_of_runs({name: list(comparison.black_box) for name, comparison in comparisons.items()})
    lines: list[Data] = []
    random = False
    for run, comparison in comparisons.items():
        for attack, result in comparison.results.items():
            random |= result.random
            if not result.outcomes or result.random:
                continue
            line = {"name": f"{attack}, {run}" if several else attack, **_success_line(result)}
            lines.append({**line, **_look(looks.get((run, attack)), lines, several=several)})
    budget = max(result.budget for comparison in comparisons.values() for result in comparison.results.values())
    return {
        "name": "",
        "heading": "Success against queries",
        "hint": _NO_CURVE * random + (_SUCCESS_HINT + _READING if lines or not random else ""),
        "budget": budget,
        "lines": lines,
    }


def radius_chart(comparisons: Mapping[str, Comparison]) -> Data | None:
    """Return the median radius of each label-only attack against queries; None without such an attack."""
    several = len(comparisons) > 1
    looks = marks_of_runs({name: list(comparison.black_box) for name, comparison in comparisons.items()})
    lines: list[Data] = []
    for run, comparison in comparisons.items():
        for attack, result in comparison.results.items():
            if result.threat.loss == "label" and result.outcomes:
                line = {"name": f"{attack}, {run}" if several else attack, **_radius_line(result)}
                lines.append({**line, **_look(looks[run, attack], lines, several=several)})
    if not lines:
        return None
    results = [result for comparison in comparisons.values() for result in comparison.results.values()]
    radii = {result.threat.effective_eps for result in results}
    return {
        "budget": max(result.budget for result in results),
        "eps": radii.pop() if len(radii) == 1 else None,
        "lines": lines,
    }


def _radius_line(result: Result) -> Data:
    found, known = median_radii(result.outcomes, result.budget), known_queries(result.outcomes, result.budget)
    return {
        "queries": [query for query, _ in found],
        "radii": [float(f"{radius:.5g}") for _, radius in found],
        "known": known,
        "note": _unfinished_note(result.outcomes, known) if result.summary.unfinished else "",
        "white_box": False,
    }


def _success_line(result: Result) -> Data:
    found, white_box = curve(result.outcomes, result.budget), result.attack.white_box
    unfinished = result.summary.unfinished > 0
    known = 0 if unfinished and white_box else found.known
    counts = [0, *found.fooled[found.queries <= found.known].tolist()]
    low, high = np.array([wilson_interval(count, found.images) for count in counts]).T.round(5).tolist()
    return {
        "queries": [0, *found.queries[found.queries <= found.known].tolist()],
        "rates": [round(count / found.images, 5) for count in counts],
        "low": None if unfinished else low,
        "high": None if unfinished else high,
        "known": known,
        "note": _unfinished_note(result.outcomes, known) if unfinished else "",
        "bound": "",
        "white_box": white_box,
    }


def _unfinished_note(outcomes: Sequence[Outcome], known: int) -> str:
    """Return what is said of an unfinished attack beside its name."""
    if not has_started(outcomes):
        return "waiting"
    return f"known up to {known:,} {'query' if known == 1 else 'queries'}" if known else "too early to say"


def has_started(outcomes: Sequence[Outcome]) -> bool:
    """Return whether an attack has made a query or ended on an image."""
    return any(outcome.ended != "interrupted" or outcome.queries for outcome in outcomes)


def _look(mark: Mark | None, before: Sequence[Data], *, several: bool) -> Data:
    """Return colour and dashes of a line; a white-box attack has no mark."""
    if mark is None:
        count = sum(line["white_box"] for line in before)
        return {"colour": None, "dashes": _WHITE_BOX_DASHES[count % len(_WHITE_BOX_DASHES)]}
    # Solid steps are the easiest to follow, so dashes only separate lines of the same colour.
    dashed = several or any(line["colour"] == mark.colour for line in before)
    return {"colour": mark.colour, "dashes": [3 * length for length in mark.dashes[1]] if dashed else []}


def accuracy_charts(grid: EvaluationGrid) -> list[Data]:
    """Return a chart for each radius: the models' robust accuracy against queries per image and attack."""
    if grid.any_evaluation.random:
        heading = "Robust accuracy against queries"
        return [{"name": "", "heading": heading, "hint": _NO_CURVE, "budget": grid.any_evaluation.budget, "lines": []}]
    looks = marks_in_order(grid.models)
    budgets = grid.any_evaluation.budgets
    exact = " and ".join(f"{budget:,}" for budget in budgets)
    hint = (
        "The share of images that are classified correctly and that no attack fooled within a number of queries per "
        f"image and attack, with its 95 % interval. It is exact at {exact} queries. Between them it is an upper bound: "
        "an attack skips the images that an earlier one fooled. "
    )
    charts = []
    for place, radius in enumerate(grid.effective_radii):
        lines = [
            line
            for model, evaluations in grid.evaluations.items()
            for line in _accuracy_lines(model, evaluations, place, looks[model])
        ]
        heading = f"Robust accuracy against queries, radius {radius_text(radius)}"
        charts.append(
            {
                "name": radius_text(radius),
                "heading": heading,
                "hint": hint + _READING,
                "budget": budgets[-1],
                "lines": lines,
            }
        )
    return charts


def _accuracy_lines(model: str, evaluations: Sequence[Evaluation], place: int, look: Mark) -> list[Data]:
    """Return the line of a model at a radius, and a level one for what white-box attacks leave."""
    evaluation = evaluations[place]
    fooled_after = evaluation.fooled_after[evaluation.correct & (evaluation.fooled_after <= evaluation.budget)]
    queries = [0, *np.unique(fooled_after[fooled_after > 0]).astype(int).tolist()]
    lines = [_accuracy_line(model, queries, [evaluation.verdict(each) for each in queries], evaluation.budget)]
    lines[0] |= {"white_box": False, "colour": look.colour, "dashes": []}
    if (verdict := evaluation.white_box_verdict) is not None:
        line = _accuracy_line(white_box_name(model, evaluations), [0], [verdict], evaluation.budget)
        lines.append({**line, "white_box": True, "colour": look.colour, "dashes": _WHITE_BOX_DASHES[0]})
    return lines


def _accuracy_line(name: str, queries: list[int], verdicts: Sequence[Verdict], budget: int) -> Data:
    intervals = [verdict.interval for verdict in verdicts if verdict.interval is not None]
    finished = len(intervals) == len(verdicts)
    return {
        "name": name,
        "queries": queries,
        "rates": [round(verdict.value, 5) for verdict in verdicts],
        "low": [round(low, 5) for low, _ in intervals] if finished else None,
        "high": [round(high, 5) for _, high in intervals] if finished else None,
        "known": budget,
        "note": "" if finished else "unfinished",
        "bound": "" if finished else "\N{LESS-THAN OR EQUAL TO}\N{NO-BREAK SPACE}",
    }


def white_box_name(model: str, evaluations: Sequence[Evaluation]) -> str:
    """Return the name of the line of what white-box attacks leave."""
    return ", ".join([model, *dict.fromkeys(attack for each in evaluations for attack in each.white_box)])


def radii_chart(grid: EvaluationGrid) -> Data:
    """Return the robust accuracy against the radius: a line per model, and one for what white-box attacks leave.

    Radius 0 has the clean accuracy. Unfinished evaluations have no point.
    """
    looks = marks_in_order(grid.models)
    lines: list[Data] = []
    for number, (model, evaluations) in enumerate(grid.evaluations.items()):
        clean = evaluations[0].clean_accuracy_verdict
        line = {"model": number, "colour": looks[model].colour}
        verdicts = [clean, *(each.verdict() for each in evaluations)]
        lines.append({**line, "name": model, "white_box": False, "dashes": [], "points": _points(verdicts)})
        other = [clean, *(each.white_box_verdict for each in evaluations)]
        if len(points := _points(other)) > 1:
            name = white_box_name(model, evaluations)
            lines.append({**line, "name": name, "white_box": True, "dashes": _WHITE_BOX_DASHES[0], "points": points})
    texts = [{"eps": 0.0, "text": "0"}, *({"eps": eps, "text": radius_text(eps)} for eps in grid.effective_radii)]
    return {"radii": texts, "lines": lines}


def _points(verdicts: Sequence[Verdict | None]) -> list[Data]:
    return [
        {"place": place, "rate": verdict.value, "low": verdict.interval[0], "high": verdict.interval[1]}
        for place, verdict in enumerate(verdicts)
        if verdict is not None and verdict.interval is not None
    ]

"""Figures of rates against queries and of robust accuracy against radius and queries, with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Outcome
from parsimon.errors import InputError
from parsimon.report.charts import white_box_name
from parsimon.report.style import (
    COLUMN,
    INK,
    Mark,
    legend_above,
    marks,
    marks_in_order,
    marks_of_runs,
    plot_axes,
    styled,
    thousands,
    tick_locator,
)
from parsimon.results.result import RANDOM_BUDGETS
from parsimon.results.statistics import Interval, band, curve, known_queries, mean_band, median_radii
from parsimon.results.text import radius_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from parsimon.results.evaluation import EvaluationGrid
    from parsimon.results.result import Comparison
    from parsimon.results.verdict import Verdict

_WHITE_BOX_DASHES = ((3, 2), (1, 1), (5, 1, 1, 1))
_WIDE = 0.15  # intervals wider than this are drawn at the ends of lines: overlapping bands hide everything
_BESIDE = 0.018  # distance between two such intervals, as a share of the plot's width


@styled
def success_curves(
    entries: Mapping[str, Sequence[Outcome]],
    budget: int,
    white_box: Mapping[str, float] | None = None,
    *,
    log: bool = False,
    confidence: float | None = 0.95,
    legend: bool = True,
    width: float = COLUMN,
    looks: Mapping[str, Mark] | None = None,
) -> Figure:
    """Plot cumulative success against queries with pointwise Wilson bands (the paper's figures 5 and 6).

    If an interval is wider than 15 points, intervals stand at the right edge instead of bands. The curve of an
    unfinished attack ends where the status of its images is no longer known, and has no interval.

    Args:
        entries: Outcomes of each attack, by its name.
        budget: Largest number of queries on the axis.
        white_box: Success rates in [0, 1] of attacks that see gradients, as dashed lines.
        log: Whether the query axis is logarithmic.
        confidence: Confidence of the intervals; None for no intervals.
        legend: Whether to draw a legend; panels side by side need only one.
        width: Inches.
        looks: The mark of each attack; by default those of `parsimon.report.style.marks`.
    """
    _check_not_random(each for found in entries.values() for each in found)
    figure, axes = plot_axes(width)
    ends: list[_End] = []
    shades = []
    for number, (name, mark) in enumerate((looks or marks(entries)).items()):
        found = curve(entries[name], budget)
        places = _places(number, len(entries), budget, log)
        places = places[places <= found.known]
        at = np.unique([int(log), *found.queries, *places, found.known])
        at = at[(at >= log) & (at <= found.known)]  # a logarithmic axis starts at 1
        _line(axes, at, found.at(at), places, mark, name, drawstyle="steps-post")
        if confidence is not None and found.known == budget:
            low, high = band(found, at, confidence)
            shades.append((at, low, high, mark))
            ends.append((float(found.at(budget)), (low[-1], high[-1]), mark))
    wide = any(high - low > _WIDE for _, (low, high), _ in ends)
    alpha = min(0.18, 0.6 / len(entries))  # lighter if many overlap
    for at, low, high, mark in [] if wide else shades:
        axes.fill_between(at, 100 * low, 100 * high, step="post", color=mark.colour, alpha=alpha, linewidth=0)
    for (name, rate), dashes in zip((white_box or {}).items(), cycle(_WHITE_BOX_DASHES), strict=False):
        axes.axhline(100 * rate, label=f"{name} (white box)", color=INK, linewidth=0.9, linestyle=(0, dashes))
    _against_queries(axes, budget, "Success rate (%)", log=log)
    if wide:
        _intervals_beside(axes, ends)  # after all else, since they fix the height of the axis
    if legend:
        legend_above(figure, axes)
    return figure


def comparison_curves(comparisons: Mapping[str, Comparison], *, log: bool = False, width: float = COLUMN) -> Figure:
    """Plot the success curves of whole comparisons, white-box attacks as dashed lines.

    With several comparisons, each label names its comparison, and all curves end at the smallest budget. An attack has
    the same colour in all of them; dashes and markers tell them apart.
    """
    named = {
        (run, attack): result
        for run, comparison in comparisons.items()
        for attack, result in comparison.results.items()
    }
    label = {key: f"{key[1]}, {key[0]}" if len(comparisons) > 1 else key[1] for key in named}
    looks = marks_of_runs({run: list(comparison.black_box) for run, comparison in comparisons.items()})
    entries = {label[key]: named[key].outcomes for key in looks}
    rates = {label[key]: result.summary.success_rate for key, result in named.items() if result.attack.white_box}
    white_box = {name: rate for name, rate in rates.items() if rate is not None}
    budget = min((result.budget for result in named.values()), default=0)
    marked = {label[key]: mark for key, mark in looks.items()}
    return success_curves(entries, budget, white_box, log=log, width=width, looks=marked)


@styled
def radius_curves(comparisons: Mapping[str, Comparison], *, width: float = COLUMN) -> Figure:
    """Plot the median radius of label-only attacks against queries, on logarithmic axes; a dashed line is eps.

    The median is over all attacked images. An image counts as infinite until an adversarial image is found.
    """
    figure, axes = plot_axes(width)
    looks = marks_of_runs({run: list(comparison.black_box) for run, comparison in comparisons.items()})
    named = {key: comparisons[key[0]].results[key[1]] for key in looks}
    shown = {key: result for key, result in named.items() if result.threat.loss == "label"}
    if not shown:
        raise InputError("a figure of radii needs a label-only attack; got none")
    for (run, attack), result in shown.items():
        found = median_radii(result.outcomes, result.budget)
        mark, known = looks[run, attack], known_queries(result.outcomes, result.budget)
        at = [*(query for query, _ in found), known] if found else []
        radii = [*(radius for _, radius in found), found[-1][1]] if found else []
        name = f"{attack}, {run}" if len(comparisons) > 1 else attack
        axes.step(at, radii, where="post", label=name, color=mark.colour, linestyle=mark.dashes)
    for eps in {result.threat.effective_eps for result in shown.values()}:
        axes.axhline(eps, color=INK, linewidth=0.9, linestyle=(0, _WHITE_BOX_DASHES[0]))
    axes.set(xscale="log", yscale="log", xlabel="Queries", ylabel="Median radius")
    axes.set_xlim(1, max(result.budget for result in shown.values()))
    axes.xaxis.set_major_formatter(thousands)
    legend_above(figure, axes)
    return figure


@styled
def curve_bands(
    families: Mapping[str, Sequence[Sequence[Outcome]]], budget: int, *, points: int = 500, width: float = COLUMN
) -> Figure:
    """Plot mean and standard deviation of success over each attack's hyperparameters (the paper's supplement D).

    `families` holds the outcomes of each setting of an attack, by the attack's name.
    """
    _check_not_random(each for family in families.values() for found in family for each in found)
    figure, axes = plot_axes(width)
    for number, (name, mark) in enumerate(marks(families).items()):
        places = _places(number, len(families), budget, log=False)
        at = np.unique([*np.linspace(0, budget, points).round(), *places])
        mean, deviation = mean_band([curve(outcomes, budget) for outcomes in families[name]], at)
        _line(axes, at, mean, places, mark, f"{name} ({len(families[name])} settings)")
        low, high = mean - deviation, mean + deviation
        axes.fill_between(at, 100 * low, 100 * high, color=mark.colour, alpha=0.25, linewidth=0)
    _against_queries(axes, budget, "Success rate (%)", log=False)
    legend_above(figure, axes)
    return figure


@styled
def accuracy_against_radius(grid: EvaluationGrid, *, width: float = COLUMN) -> Figure:
    """Plot the robust accuracy of each model against the radius, with 95 % intervals; at 0 it is the clean accuracy.

    Dashed lines are what white-box attacks leave. Unfinished evaluations have no point.
    """
    figure, axes = plot_axes(width)
    for (model, evaluations), mark in zip(grid.evaluations.items(), marks_in_order(grid.models).values(), strict=False):
        clean = evaluations[0].clean_accuracy_verdict
        verdicts = [clean, *(each.verdict() for each in evaluations)]
        _radius_line(axes, verdicts, grid, mark._replace(dashes=(0, ())), model)
        if evaluations[0].white_box:
            other = [clean, *(each.white_box_verdict for each in evaluations)]
            name = f"{white_box_name(model, evaluations)} (white box)"
            _radius_line(axes, other, grid, mark._replace(dashes=(0, _WHITE_BOX_DASHES[0]), marker=""), name)
    axes.set_xticks([0, *(255 * eps for eps in grid.effective_radii)], ["0", *map(radius_text, grid.effective_radii)])
    axes.set(xlabel="Radius", ylabel="Robust accuracy (%)")
    axes.set_ylim(bottom=0)
    legend_above(figure, axes)
    return figure


def _radius_line(axes: Axes, verdicts: Sequence[Verdict | None], grid: EvaluationGrid, mark: Mark, label: str) -> None:
    """Draw the verdicts with an interval; at the radii of a grid, after radius 0."""
    pairs = zip((0.0, *grid.effective_radii), verdicts, strict=True)
    points = [(255 * eps, each) for eps, each in pairs if each is not None and each.interval is not None]
    values = np.array([each.value for _, each in points])
    ends = np.array([each.interval for _, each in points], np.float64).reshape(-1, 2)
    reach = 100 * np.abs(ends.T - values)
    look = {"color": mark.colour, "linestyle": mark.dashes, "marker": mark.marker, "capsize": 2, "elinewidth": 0.8}
    axes.errorbar([eps for eps, _ in points], 100 * values, yerr=reach, label=label, **look)  # type: ignore[arg-type]


@styled
def accuracy_against_queries(grid: EvaluationGrid, *, log: bool = False, width: float = COLUMN) -> Figure:
    """Plot the robust accuracy against queries per image and attack: a colour per model, dashes per radius.

    95 % intervals stand at the right edge. An unfinished evaluation has no line.
    """
    if grid.any_evaluation.random:
        raise InputError(f"no figure against queries: {RANDOM_BUDGETS}")
    figure, axes = plot_axes(width)
    budget = grid.any_evaluation.budget
    radii = [radius_text(eps) for eps in grid.effective_radii]
    own = marks_in_order(grid.models)
    looks = marks_of_runs({radius: list(grid.evaluations) for radius in radii}, own)
    ends: list[_End] = []
    for number, ((radius, model), mark) in enumerate(looks.items()):
        evaluation = grid.evaluations[model][radii.index(radius)]
        verdict = evaluation.verdict()
        if verdict.interval is None:
            continue
        places = _places(number, len(looks), budget, log)
        fooled_after = evaluation.fooled_after[np.isfinite(evaluation.fooled_after)]
        at = np.unique([int(log), *fooled_after, *places, budget])
        at = at[(at >= log) & (at <= budget)]
        rates = np.array([evaluation.robust_within(queries).mean() for queries in at])
        name = f"{model}, {radius}" if len(radii) > 1 else model
        _line(axes, at, rates, places, mark, name, drawstyle="steps-post")
        ends.append((verdict.value, verdict.interval, mark))
    _against_queries(axes, budget, "Robust accuracy (%)", log=log)
    _intervals_beside(axes, ends)
    axes.set_xlabel("Queries per image and attack")
    legend_above(figure, axes)
    return figure


def _check_not_random(outcomes: Iterable[Outcome]) -> None:
    """Refuse curves of a random model: a success counts where the attack ended, and earlier points were not judged."""
    if any(each.draws for each in outcomes):
        raise InputError(f"no success curve: {RANDOM_BUDGETS}")


_End = tuple[float, Interval, Mark]  # the value at the end of a line, its interval, its look


def _intervals_beside(axes: Axes, ends: Sequence[_End]) -> None:
    """Draw intervals beside the right edge, next to each other: a line from end to end, and a tick at the value."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    for number, (value, (low, high), mark) in enumerate(ends):
        place = 1 + _BESIDE * (number + 1)
        points = [(place, low), (place, high), (place - _BESIDE / 3, value), (place + _BESIDE / 3, value)]
        shape = Path([(x, 100 * y) for x, y in points], [Path.MOVETO, Path.LINETO] * 2)
        settings: Any = {"edgecolor": mark.colour, "transform": axes.get_yaxis_transform(), "clip_on": False}
        axes.add_artist(PathPatch(shape, linewidth=1, facecolor="none", **settings))
    if ends:
        axes.set_ylim(top=max(axes.get_ylim()[1], *(100 * high for _, (_, high), _ in ends)))


def _places(number: int, lines: int, budget: int, log: bool) -> NDArray[np.float64]:
    """Return the places of a line's five markers, different for each line."""
    shares = (np.arange(5) + (number + 0.5) / lines) / 5
    return np.unique((budget**shares if log else budget * shares).round())


def _line(
    axes: Axes, at: NDArray[Any], rates: NDArray[Any], places: NDArray[Any], mark: Mark, label: str, **settings: Any
) -> None:
    """Draw a curve with markers at the given places."""
    every = np.searchsorted(at, places).tolist()
    look = {"color": mark.colour, "linestyle": mark.dashes, "marker": mark.marker, "markevery": every}
    axes.plot(at, 100 * rates, label=label, **look, **settings)


def _against_queries(axes: Axes, budget: int, rate: str, *, log: bool) -> None:
    axes.set(xlabel="Queries", ylabel=rate)
    if log:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(tick_locator(axes.figure.bbox.width / axes.figure.dpi))
    axes.set_xlim(1 if log else 0, budget)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(thousands)

"""The paper's figures, from plain data. Each function returns a matplotlib figure; `save` writes it to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parsimon.core.types import Outcome
from parsimon.errors import InputError
from parsimon.report.panels import examples, grid
from parsimon.report.style import (
    COLUMN,
    INK,
    MUTED,
    PAGE,
    blank,
    label_markers,
    legend_above,
    marks,
    save,
    styled,
    thousands,
)
from parsimon.results.statistics import band, curve, mean_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from parsimon.results.result import Comparison

__all__ = [
    "COLUMN",
    "PAGE",
    "Setting",
    "comparison_curves",
    "curve_bands",
    "examples",
    "grid",
    "noise_histogram",
    "noise_shares",
    "save",
    "sensitivity",
    "sorted_differences",
    "success_curves",
]

_WHITE_BOX_DASHES = ((3, 2), (1, 1), (5, 1, 1, 1))
_RATIO, _LOWEST, _HIGHEST = 0.66, 1.55, 2.7  # height of a plot over its width, and its limits in inches


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
) -> Figure:
    """Cumulative success against queries (the paper's figures 5 and 6), each with its pointwise Wilson band.

    Args:
        entries: Each attack's outcomes, by its name.
        budget: Queries to plot up to.
        white_box: Success rates, in [0, 1], of attacks that see gradients: dashed lines across.
        log: Whether queries are on a logarithmic axis.
        confidence: Of the bands; None for curves without.
        legend: Whether there is one; panels side by side need one between them.
        width: Inches.
    """
    figure, axes = _plot(width)
    for number, (name, mark) in enumerate(marks(entries).items()):
        found = curve(entries[name], budget)
        places = _places(number, len(entries), budget, log)
        at = np.unique([1 if log else 0, *found.queries[found.queries > log], *places, budget])
        axes.step(
            at,
            100 * found.at(at),
            where="post",
            label=name,
            color=mark.colour,
            linestyle=mark.dashes,
            marker=mark.marker,
            markevery=np.searchsorted(at, places).tolist(),
        )
        if confidence is not None:
            low, high = band(found, at, confidence)
            shade = min(0.18, 0.6 / len(entries))  # lighter where many lie upon each other
            axes.fill_between(at, 100 * low, 100 * high, step="post", color=mark.colour, alpha=shade, linewidth=0)
    for (name, rate), dashes in zip((white_box or {}).items(), cycle(_WHITE_BOX_DASHES), strict=False):
        axes.axhline(100 * rate, label=f"{name} (white box)", color=INK, linewidth=0.9, linestyle=(0, dashes))
    _success_against_queries(axes, budget, log, width)
    if legend:
        legend_above(figure, axes)
    return figure


def comparison_curves(comparisons: Mapping[str, Comparison], *, log: bool = False, width: float = COLUMN) -> Figure:
    """The success curves of whole comparisons, white-box attacks as dashed lines.

    Of several, each curve says in its label whose it is, and all end at the smallest budget: past its own, an attack
    was not asked.
    """
    named = {
        f"{attack}, {name}" if len(comparisons) > 1 else attack: result
        for name, comparison in comparisons.items()
        for attack, result in comparison.results.items()
    }
    entries = {name: result.outcomes for name, result in named.items() if not result.attack.white_box}
    white_box = {name: result.summary.success_rate for name, result in named.items() if result.attack.white_box}
    budget = min((result.budget for result in named.values()), default=0)
    return success_curves(entries, budget, white_box, log=log, width=width)


@styled
def curve_bands(
    families: Mapping[str, Sequence[Sequence[Outcome]]], budget: int, *, points: int = 500, width: float = COLUMN
) -> Figure:
    """Mean and standard deviation of success over each attack's hyperparameters, at every number of queries.

    The paper's supplement D. `families` holds, by an attack's name, the outcomes of each of its settings.
    """
    figure, axes = _plot(width)
    for number, (name, mark) in enumerate(marks(families).items()):
        places = _places(number, len(families), budget, log=False)
        at = np.unique([*np.linspace(0, budget, points).round(), *places])
        mean, deviation = mean_band([curve(outcomes, budget) for outcomes in families[name]], at)
        axes.plot(
            at,
            100 * mean,
            label=f"{name} ({len(families[name])} settings)",
            color=mark.colour,
            linestyle=mark.dashes,
            marker=mark.marker,
            markevery=np.searchsorted(at, places).tolist(),
        )
        low, high = mean - deviation, mean + deviation
        axes.fill_between(at, 100 * low, 100 * high, color=mark.colour, alpha=0.25, linewidth=0)
    _success_against_queries(axes, budget, False, width)
    legend_above(figure, axes)
    return figure


@styled
def noise_histogram(
    perturbations: ArrayLike, eps: float, *, bars: int = 9, scale: float = 255, width: float = COLUMN
) -> Figure:
    """The distribution of what an attack adds to pixels: how much of it lies at the corners of the ball.

    Args:
        perturbations: Adversarial minus original images, of any shape.
        eps: The ball's radius, in the same units.
        bars: How many, from -eps to +eps; each covers what is nearest to it.
        scale: What changes are multiplied with on the axis: 255 for images in [0, 1] that are thought of as bytes.
        width: Inches.
    """
    changes = np.asarray(perturbations, np.float64).ravel()
    if not changes.size or np.abs(changes).max() > eps * (1 + 1e-4) + 1e-6:
        what = f"up to {np.abs(changes).max():g}" if changes.size else "none"
        raise InputError(f"perturbations must lie within eps, {eps:g}; got {what}: give both in the same units")
    figure, axes = _plot(width)
    centres = np.linspace(-eps, eps, bars)
    shares = noise_shares(changes, eps, bars)
    drawn = axes.bar(range(bars), shares, width=0.75, color=marks(["Bandits"])["Bandits"].colour)
    narrow = width < 0.3 * bars
    texts = [f"{share:.1f}" for share in shares]
    axes.bar_label(drawn, texts, fontsize=6, padding=2 if narrow else 1, rotation=90 if narrow else 0)
    below = ["(\N{MINUS SIGN}\N{GREEK SMALL LETTER EPSILON})", *[" "] * (bars - 2), "(\N{GREEK SMALL LETTER EPSILON})"]
    labels = [f"{round(scale * each, 6):g}\n{under}" for each, under in zip(centres, below, strict=True)]
    shown = slice(None, None, 2 if narrow and bars % 2 else 1)
    axes.set_xticks(range(bars)[shown], [label.replace("-", "\N{MINUS SIGN}") for label in labels[shown]])
    axes.grid(False, axis="x")
    axes.set(xlabel="Change in pixel value", ylabel="Share of pixels (%)")
    axes.margins(y=0.35 if narrow else 0.1)
    return figure


def noise_shares(changes: NDArray[np.floating], eps: float, bars: int) -> NDArray[np.float64]:
    """How many of the changes, in percent, are nearest to each of some values from -eps to +eps."""
    places = (changes.ravel().astype(np.float64) + eps) / (2 * eps) * (bars - 1)
    # What lies half-way, as changes cut off at black or white often do, must not go by the last bit of a pixel.
    nearest = np.rint(places.round(3)).astype(np.intp).clip(0, bars - 1)
    shares: NDArray[np.float64] = 100 * np.bincount(nearest, minlength=bars) / changes.size
    return shares


@styled
def sorted_differences(local_search: ArrayLike, greedy: ArrayLike, *, width: float = COLUMN) -> Figure:
    """How far the losses that two searches reach lie above PGD's: f(.) - f(x_pgd) of each image, sorted for each."""
    images = np.size(local_search)
    if np.ndim(local_search) != 1 or np.shape(local_search) != np.shape(greedy) or not images:
        what = f"{np.shape(local_search)} and {np.shape(greedy)}"
        raise InputError(f"differences must be lists, of the same images in both; got the shapes {what}")
    figure, axes = _plot(width)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    looks = zip((local_search, greedy), ("Local search", "Greedy insertion"), ("Parsimonious", "Bandits"), strict=True)
    for differences, label, look in looks:
        mark = marks([look])[look]
        values = np.sort(np.asarray(differences, np.float64))
        values = np.append(values, values[-1])  # the last image has its width too
        axes.step(range(images + 1), values, where="post", label=label, color=mark.colour, linestyle=mark.dashes)
    axes.set_xlim(0, images)
    axes.set(xlabel="Image (sorted for each search)", ylabel=r"$f(\cdot) - f(x_{\mathrm{pgd}})$")
    legend_above(figure, axes)
    return figure


class Setting(NamedTuple):
    """One setting of an attack: where it ended, and what to write beside its marker."""

    family: str
    queries: float  # mean, of the successes
    rate: float  # in [0, 1]
    label: str = ""


@styled
def sensitivity(points: Sequence[Setting], *, width: float = COLUMN) -> Figure:
    """Success rate against mean queries over hyperparameters: one marker a setting, one look a family."""
    figure, axes = _plot(width)
    for family, mark in marks(dict.fromkeys(point.family for point in points)).items():
        members = [point for point in points if point.family == family]
        axes.plot(
            [point.queries for point in members],
            [100 * point.rate for point in members],
            label=family,
            color=mark.colour,
            marker=mark.marker,
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.4,
            linestyle="none",
        )
    axes.margins(0.12)
    axes.set(xlabel="Mean queries", ylabel="Success rate (%)")
    axes.xaxis.set_major_locator(_ticks(width))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    legend_above(figure, axes, handlelength=1)
    figure.draw_without_rendering()  # where the labels go depends on where the axes end up
    label_markers(axes, [(point.queries, 100 * point.rate) for point in points], [point.label for point in points])
    return figure


def _plot(width: float) -> tuple[Figure, Axes]:
    figure = blank(width, min(max(_LOWEST, _RATIO * width), _HIGHEST))
    return figure, figure.subplots()


def _ticks(width: float) -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(max(3, min(10, int(2 * width))), steps=[1, 2, 4, 5, 10])


def _places(number: int, lines: int, budget: int, log: bool) -> NDArray[np.float64]:
    """Where a line has its markers: five across the axis, none above another line's."""
    shares = (np.arange(5) + (number + 0.5) / lines) / 5
    return np.unique((budget**shares if log else budget * shares).round())


def _success_against_queries(axes: Axes, budget: int, log: bool, width: float) -> None:
    axes.set(xlabel="Queries", ylabel="Success rate (%)")
    if log:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(_ticks(width))
    axes.set_xlim(1 if log else 0, budget)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(thousands)

"""The paper's figures, from plain data. Each function returns a matplotlib figure, which `save` writes to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parsimon.core.types import Image, Outcome
from parsimon.errors import InputError
from parsimon.report.picture import as_bytes
from parsimon.report.style import COLUMN as COLUMN
from parsimon.report.style import INK, MUTED, Mark, blank, label_markers, legend_above, marks, styled, thousands
from parsimon.report.style import PAGE as PAGE
from parsimon.report.style import save as save
from parsimon.results.statistics import band, curve, mean_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from parsimon.results.result import Comparison

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
    """Plot cumulative success against queries with pointwise Wilson bands (the paper's figures 5 and 6).

    The curve of an unfinished attack ends where the status of its images is no longer known.

    Args:
        entries: Outcomes of each attack, by its name.
        budget: Largest number of queries on the axis.
        white_box: Success rates in [0, 1] of attacks that see gradients, as dashed lines.
        log: Whether the query axis is logarithmic.
        confidence: Confidence of the bands; None for no bands.
        legend: Whether to draw a legend; panels side by side need only one.
        width: Inches.
    """
    figure, axes = _plot(width)
    for number, (name, mark) in enumerate(marks(entries).items()):
        found = curve(entries[name], budget)
        places = _places(number, len(entries), budget, log)
        places = places[places <= found.known]
        at = np.unique([int(log), *found.queries, *places, found.known])
        at = at[(at >= log) & (at <= found.known)]  # a logarithmic axis starts at 1
        _line(axes, at, found.at(at), places, mark, name, drawstyle="steps-post")
        if confidence is not None:
            low, high = band(found, at, confidence)
            shade = min(0.18, 0.6 / len(entries))  # lighter if many overlap
            axes.fill_between(at, 100 * low, 100 * high, step="post", color=mark.colour, alpha=shade, linewidth=0)
    for (name, rate), dashes in zip((white_box or {}).items(), cycle(_WHITE_BOX_DASHES), strict=False):
        axes.axhline(100 * rate, label=f"{name} (white box)", color=INK, linewidth=0.9, linestyle=(0, dashes))
    _success_against_queries(axes, budget, log, width)
    if legend:
        legend_above(figure, axes)
    return figure


def comparison_curves(comparisons: Mapping[str, Comparison], *, log: bool = False, width: float = COLUMN) -> Figure:
    """Plot the success curves of whole comparisons, white-box attacks as dashed lines.

    With several comparisons, each label names its comparison, and all curves end at the smallest budget.
    """
    named = {
        f"{attack}, {name}" if len(comparisons) > 1 else attack: result
        for name, comparison in comparisons.items()
        for attack, result in comparison.results.items()
    }
    entries = {name: result.outcomes for name, result in named.items() if not result.attack.white_box}
    rates = {name: result.summary.success_rate for name, result in named.items() if result.attack.white_box}
    white_box = {name: rate for name, rate in rates.items() if rate is not None}
    budget = min((result.budget for result in named.values()), default=0)
    return success_curves(entries, budget, white_box, log=log, width=width)


@styled
def curve_bands(
    families: Mapping[str, Sequence[Sequence[Outcome]]], budget: int, *, points: int = 500, width: float = COLUMN
) -> Figure:
    """Plot mean and standard deviation of success over each attack's hyperparameters (the paper's supplement D).

    `families` holds the outcomes of each setting of an attack, by the attack's name.
    """
    figure, axes = _plot(width)
    for number, (name, mark) in enumerate(marks(families).items()):
        places = _places(number, len(families), budget, log=False)
        at = np.unique([*np.linspace(0, budget, points).round(), *places])
        mean, deviation = mean_band([curve(outcomes, budget) for outcomes in families[name]], at)
        _line(axes, at, mean, places, mark, f"{name} ({len(families[name])} settings)")
        low, high = mean - deviation, mean + deviation
        axes.fill_between(at, 100 * low, 100 * high, color=mark.colour, alpha=0.25, linewidth=0)
    _success_against_queries(axes, budget, False, width)
    legend_above(figure, axes)
    return figure


@styled
def noise_histogram(
    perturbations: ArrayLike, eps: float, *, bars: int = 9, scale: float = 255, width: float = COLUMN
) -> Figure:
    """Plot the distribution of pixel changes, which shows how many lie at the corners of the ball.

    Args:
        perturbations: Adversarial minus original images, of any shape.
        eps: Radius of the ball, in the same units.
        bars: Number of bars from -eps to +eps; each covers the changes nearest to it.
        scale: Factor of the changes on the axis: 255 shows images in [0, 1] as bytes.
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
    """Return the percentage of changes nearest to each of `bars` values from -eps to +eps."""
    places = (changes.ravel().astype(np.float64) + eps) / (2 * eps) * (bars - 1)
    # Rounded first: changes clipped at black or white often lie half-way, and the last bit must not decide.
    nearest = np.rint(places.round(3)).astype(np.intp).clip(0, bars - 1)
    shares: NDArray[np.float64] = 100 * np.bincount(nearest, minlength=bars) / changes.size
    return shares


@styled
def sorted_differences(local_search: ArrayLike, greedy: ArrayLike, *, width: float = COLUMN) -> Figure:
    """Plot how far the losses of two searches lie above PGD's: f(.) - f(x_pgd) per image, sorted for each search."""
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
        values = np.append(values, values[-1])  # the last image also has a width
        axes.step(range(images + 1), values, where="post", label=label, color=mark.colour, linestyle=mark.dashes)
    axes.set_xlim(0, images)
    axes.set(xlabel="Image (sorted for each search)", ylabel=r"$f(\cdot) - f(x_{\mathrm{pgd}})$")
    legend_above(figure, axes)
    return figure


class Setting(NamedTuple):
    """One setting of an attack: its result, and the label of its marker."""

    family: str
    queries: float  # mean over the successes
    rate: float  # in [0, 1]
    label: str = ""


@styled
def sensitivity(points: Sequence[Setting], *, width: float = COLUMN) -> Figure:
    """Plot success rate against mean queries, with one marker per setting and one look per family."""
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
    figure.draw_without_rendering()  # the labels' places depend on the axes' final place
    label_markers(axes, [(point.queries, 100 * point.rate) for point in points], [point.label for point in points])
    return figure


@styled
def examples(pairs: Sequence[tuple[Image, Image]], captions: Sequence[str] = (), *, width: float = COLUMN) -> Figure:
    """Show original images above perturbed ones, (channels, rows, columns) in [0, 1], with captions below."""
    if not pairs or len(captions) not in (0, len(pairs)):
        what = f"{len(pairs)} pairs and {len(captions)} captions"
        raise InputError(f"examples need pairs of images, and a caption for each pair or none; got {what}")
    side = (width - 0.15) / len(pairs)  # inches, after the names of the rows
    texts = [fill(caption, max(4, int(side / 0.05))) for caption in captions]
    lines = max((1 + text.count("\n") for text in texts), default=0)
    figure = blank(width, 2 * side + 0.11 * lines)
    rows = figure.subplots(2, len(pairs), squeeze=False)
    for row, name in zip(range(2), ("original", "perturbed"), strict=True):
        rows[row, 0].set_ylabel(name)
        for column, pair in enumerate(pairs):
            axes: Axes = rows[row, column]
            # Unsmoothed bytes: the pixels as the model saw them.
            axes.imshow(as_bytes(pair[row]), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            axes.grid(False)
    for axes, text in zip(rows[1], texts, strict=bool(texts)):
        axes.set_xlabel(text, fontsize=6)
    return figure


@styled
def grid(
    table: Sequence[Mapping[str, Any]],
    rows: str,
    columns: str,
    values: str,
    *,
    best: Literal["high", "low"] = "high",
    width: float = COLUMN,
) -> Figure:
    """Show a tuning grid as a heat map with numbers, darker is better (the paper's supplement C).

    `table` has one mapping per cell, in which `rows`, `columns` and `values` are keys.
    """
    unknown = [key for key in (rows, columns, values) if not table or any(key not in record for record in table)]
    if unknown:
        had = ", ".join(map(str, table[0])) if table else "nothing"
        raise InputError(f"a grid needs {rows}, {columns} and {values} of each cell; got no {unknown[0]}, but {had}")
    down, across = (list(dict.fromkeys(record[key] for record in table)) for key in (rows, columns))
    cells = np.full((len(down), len(across)), np.nan)
    for record in table:
        place = down.index(record[rows]), across.index(record[columns])
        if not np.isnan(cells[place]):
            what = f"{rows} {record[rows]}, {columns} {record[columns]}"
            raise InputError(f"a grid needs one value per cell; got two at {what}: choose other rows or columns")
        cells[place] = record[values]
    figure = blank(width, 0.24 * len(down) + 0.55)
    axes = figure.subplots()
    low, high = np.nanmin(cells), np.nanmax(cells)
    margin = 0.15 * (high - low) or 1.0  # neither as light as paper nor as dark as text
    colours = "Blues" if best == "high" else "Blues_r"
    shade = axes.imshow(cells, cmap=colours, aspect="auto", vmin=low - margin, vmax=high + margin)
    chosen = high if best == "high" else low
    for (row, column), value in np.ndenumerate(cells):
        text = "\N{EN DASH}" if np.isnan(value) else f"{value:,.0f}" if high >= 1000 else f"{value:.1f}"
        dark = not np.isnan(value) and np.dot(shade.to_rgba(value)[:3], (0.299, 0.587, 0.114)) < 0.55
        weight = "bold" if value == chosen else "normal"
        axes.text(column, row, text, ha="center", va="center", color="white" if dark else INK, weight=weight)
    axes.set_xticks(range(len(across)), [str(each) for each in across])
    axes.set_yticks(range(len(down)), [str(each) for each in down])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    axes.set(xlabel=columns, ylabel=rows)
    axes.set_title(values, fontsize=7)
    return figure


def _plot(width: float) -> tuple[Figure, Axes]:
    figure = blank(width, min(max(_LOWEST, _RATIO * width), _HIGHEST))
    return figure, figure.subplots()


def _ticks(width: float) -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(max(3, min(10, int(2 * width))), steps=[1, 2, 4, 5, 10])


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


def _success_against_queries(axes: Axes, budget: int, log: bool, width: float) -> None:
    axes.set(xlabel="Queries", ylabel="Success rate (%)")
    if log:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(_ticks(width))
    axes.set_xlim(1 if log else 0, budget)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(thousands)

"""The paper's figures, from plain data. Each function returns a matplotlib figure, which `save` writes to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parsimon.core.types import Image
from parsimon.errors import InputError
from parsimon.report.curve_figures import accuracy_against_queries as accuracy_against_queries
from parsimon.report.curve_figures import accuracy_against_radius as accuracy_against_radius
from parsimon.report.curve_figures import comparison_curves as comparison_curves
from parsimon.report.curve_figures import curve_bands as curve_bands
from parsimon.report.curve_figures import radius_curves as radius_curves
from parsimon.report.curve_figures import success_curves as success_curves
from parsimon.report.picture import as_bytes
from parsimon.report.style import COLUMN as COLUMN
from parsimon.report.style import INK, MUTED, blank, label_markers, legend_above, marks, plot_axes, styled, tick_locator
from parsimon.report.style import PAGE as PAGE
from parsimon.report.style import save as save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    figure, axes = plot_axes(width)
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
    figure, axes = plot_axes(width)
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
    figure, axes = plot_axes(width)
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
    axes.xaxis.set_major_locator(tick_locator(width))
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

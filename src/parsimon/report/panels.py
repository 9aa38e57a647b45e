"""Figures without curves: examples of images, and a grid of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parsimon.core.types import Image
from parsimon.errors import InputError
from parsimon.report.picture import as_bytes
from parsimon.report.style import COLUMN, INK, blank, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def examples(pairs: Sequence[tuple[Image, Image]], captions: Sequence[str] = (), *, width: float = COLUMN) -> Figure:
    """Original images above their perturbed ones, (channels, rows, columns) in [0, 1]; captions go below."""
    if not pairs or len(captions) not in (0, len(pairs)):
        what = f"{len(pairs)} pairs and {len(captions)} captions"
        raise InputError(
            f"examples need pairs of original and perturbed image, and a caption for each or none; got {what}"
        )
    side = (width - 0.15) / len(pairs)  # inches, beside the names of the rows
    texts = [fill(caption, max(4, int(side / 0.05))) for caption in captions]
    lines = max((1 + text.count("\n") for text in texts), default=0)
    figure = blank(width, 2 * side + 0.11 * lines)
    rows = figure.subplots(2, len(pairs), squeeze=False)
    for row, name in zip(range(2), ("original", "perturbed"), strict=True):
        rows[row, 0].set_ylabel(name)
        for column, pair in enumerate(pairs):
            axes: Axes = rows[row, column]
            # Bytes, nearest: the pixels as the model saw them, not a viewer's smoothing.
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
    """A heat map with its numbers, as of a tuning grid (the paper's supplement C); the darker, the better.

    `table` has a mapping for each cell; `rows`, `columns` and `values` name its entries.
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
            raise InputError(f"a grid needs one value a cell; got two at {what}: choose other rows or columns")
        cells[place] = record[values]
    figure = blank(width, 0.24 * len(down) + 0.55)
    axes = figure.subplots()
    low, high = np.nanmin(cells), np.nanmax(cells)
    margin = 0.15 * (high - low) or 1.0  # neither as light as the paper nor as dark as the type
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

"""Draw the mean queries of Thrift and of its best rival per network: queries.svg, and queries-narrow.svg for phones.

python docs/_make/queries_chart.py [FOLDER]      # by default docs/pictures; it needs the extra plot
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from parsimon.report.style import INK, MUTED, RULE, save, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "queries.csv"
OWN, RIVAL, NEITHER = "#D55E00", "#0072B2", "#666666"
SIZE, NARROW = (7.4, 5.0), (4.3, 5.4)  # inches
KINDS = {"development": "used to develop Thrift", "held-out": "held out: not used for this version of Thrift"}


class Row(NamedTuple):
    """The result on one network."""

    network: str
    data: str
    eps: str
    held_out: bool
    own: float
    rival: str
    rivals: float
    ratio: tuple[float, float, float]  # with its 95 % interval


def read(path: Path = RESULTS) -> list[Row]:
    """Return the networks: held-out ones first, then by ratio."""
    with path.open(newline="") as file:
        rows = [
            Row(
                each["network"],
                each["data"].split(",")[0],
                each["eps"],
                each["role"] == "held-out",
                float(each["thrift_mean"]),
                each["best_rival"].split(",")[0],
                float(each["rival_mean"]),
                (float(each["ratio"]), float(each["ratio_low"]), float(each["ratio_high"])),
            )
            for each in csv.DictReader(file)
        ]
    return sorted(rows, key=lambda row: (not row.held_out, row.ratio))


@styled
def chart(rows: list[Row], *, narrow: bool = False) -> Figure:
    """Draw one line per network, from Thrift's mean to the best rival's. A narrow chart leaves out some names."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=NARROW if narrow else SIZE, facecolor="white")
    axes = figure.subplots()
    held_out = sum(row.held_out for row in rows)
    places = [number + 1.2 * (number >= held_out) for number in range(len(rows))]  # a gap between the kinds
    axes.axhspan(-0.9, held_out - 0.4, color="#FBF3EC", linewidth=0)
    for place, row in zip(places, rows, strict=True):
        draw(axes, place, row, narrow=narrow)
    for text, place in ((KINDS["held-out"], -0.62), (KINDS["development"], held_out + 0.45)):
        axes.annotate(text, (0.995, place), xycoords=("axes fraction", "data"), ha="right", va="center", color=MUTED)
    axes.set(xscale="log", xlim=(2.6 if narrow else 3.8, 1000), ylim=(places[-1] + 0.8, -1.1), yticks=places)
    labels = [row.network if narrow else f"{row.network}  ({row.data}, {row.eps})" for row in rows]
    axes.set_yticklabels(labels, fontsize=8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    between = "\n" if narrow else ", "
    axes.set_xlabel(f"mean queries to success{between}failures counted as the budget of 1,000 (log scale)", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.plot([], [], "o", color=OWN, markersize=6, label="Thrift, parsimon's own attack")
    axes.plot([], [], "D", color=RIVAL, markersize=5, label="best rival that ran: Square, SignHunter or Parsimonious")
    figure.legend(loc="outside upper left", ncols=1 if narrow else 2, fontsize=9, handlelength=1)
    return figure


def draw(axes: Axes, place: float, row: Row, *, narrow: bool) -> None:
    ratio, _, high = row.ratio
    axes.plot([row.own, row.rivals], [place, place], color=RULE, linewidth=2.5, zorder=1)
    axes.plot(row.rivals, place, "D", color=RIVAL, markersize=5)
    axes.plot(row.own, place, "o", color=OWN, markersize=6)
    differs = high < 1
    rival = row.rival if differs or narrow else f"{row.rival}: no clear difference"
    axes.annotate(rival, (row.rivals, place), (7, 0), textcoords="offset points", va="center", color=RIVAL)
    axes.annotate(
        f"{ratio:.2f} x",
        (min(row.own, row.rivals), place),
        (-7, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        color=INK if differs else NEITHER,
    )


def main(folder: Path) -> None:
    save(chart(read()), folder / "queries.svg")
    save(chart(read(), narrow=True), folder / "queries-narrow.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "pictures")

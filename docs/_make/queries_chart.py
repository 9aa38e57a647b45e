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
SIZE, NARROW = (7.4, 6.3), (4.3, 9.2)  # inches
LETTERS = 8.5  # points; a phone shows the narrow chart with 1.15 pixels per point
KINDS = {
    "later": "first measured after development",
    "held-out": "held out in the last round",
    "development": "used in development",
}
GAP = 1.2  # between two kinds, in rows


class Row(NamedTuple):
    """The result on one network."""

    network: str
    data: str
    eps: str
    role: str  # one of KINDS
    own: float
    rival: str
    rivals: float
    ratio: tuple[float, float, float]  # with its 95 % interval


def read(path: Path = RESULTS) -> list[Row]:
    """Return the networks by kind, then by ratio."""
    with path.open(newline="") as file:
        rows = [
            Row(
                each["network"],
                "photographs" if "own labels" in each["data"] else each["data"],
                each["eps"],
                each["role"],
                float(each["thrift_mean"]),
                each["best_rival"].split(",")[0],
                float(each["rival_mean"]),
                (float(each["ratio"]), float(each["ratio_low"]), float(each["ratio_high"])),
            )
            for each in csv.DictReader(file)
        ]
    return sorted(rows, key=lambda row: ([*KINDS].index(row.role), row.ratio))


@styled
def chart(rows: list[Row], *, narrow: bool = False) -> Figure:
    """Draw one line per network, from Thrift's mean to the best rival's. A narrow chart has higher rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=NARROW if narrow else SIZE, facecolor="white")
    axes = figure.subplots()
    above = 0.85 if narrow else 1.05  # the room for the name of each kind, in rows
    places = [number + GAP * [*KINDS].index(row.role) for number, row in enumerate(rows)]
    for kind, text in KINDS.items():
        own = [place for place, row in zip(places, rows, strict=True) if row.role == kind]
        if kind != "development":
            axes.axhspan(own[0] - above - 0.45, own[-1] + 0.6, color="#FBF3EC", linewidth=0)
        middle = own[0] - above
        axes.annotate(text, (0.99, middle), xycoords=("axes fraction", "data"), ha="right", va="center", color=MUTED)
    for place, row in zip(places, rows, strict=True):
        draw(axes, place, row)
    axes.set(xscale="log", xlim=(1.5 if narrow else 3.8, 1400), ylim=(places[-1] + 0.8, -above - 0.6), yticks=places)
    between = "\n" if narrow else "  "
    labels = [f"{row.network}{between}({row.data}, {row.eps})" for row in rows]
    axes.set_yticklabels(labels, fontsize=LETTERS, linespacing=1.0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    between = "\n" if narrow else "; "
    axes.set_xlabel(f"mean queries per image{between}a failure counts as 1,000 (log scale)", fontsize=LETTERS)
    axes.tick_params(axis="x", labelsize=LETTERS)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.plot([], [], "o", color=OWN, markersize=6, label="Thrift, parsimon's own attack")
    axes.plot([], [], "D", color=RIVAL, markersize=5, label="best rival: Square, SignHunter or Parsimonious")
    axes.plot([], [], "s", color=NEITHER, markersize=5, label="grey: no clear difference")
    figure.legend(loc="outside upper left", ncols=1 if narrow else 3, fontsize=9, handlelength=1, columnspacing=1.2)
    return figure


def draw(axes: Axes, place: float, row: Row) -> None:
    ratio, _, high = row.ratio
    differs = high < 1
    axes.plot([row.own, row.rivals], [place, place], color=RULE, linewidth=2.5, zorder=1)
    axes.plot(row.rivals, place, "D", color=RIVAL if differs else NEITHER, markersize=5)
    axes.plot(row.own, place, "o", color=OWN if differs else NEITHER, markersize=6)
    axes.annotate(
        row.rival,
        (row.rivals, place),
        (7, 0),
        textcoords="offset points",
        va="center",
        fontsize=LETTERS,
        color=RIVAL if differs else NEITHER,
    )
    axes.annotate(
        f"{ratio:.2f} x",
        (min(row.own, row.rivals), place),
        (-7, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=LETTERS,
        color=INK if differs else NEITHER,
    )


def main(folder: Path) -> None:
    save(chart(read()), folder / "queries.svg")
    save(chart(read(), narrow=True), folder / "queries-narrow.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "pictures")

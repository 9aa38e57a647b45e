"""The look of all figures: sizes for a two-column page, fonts, colours, and how a figure is saved.

The colours of Okabe and Ito ("Color universal design", 2008) can be distinguished with any colour vision. Each has its
own dash and marker, for print without colour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec
from zlib import crc32

from parsimon.errors import InputError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.ticker import MaxNLocator

COLUMN, PAGE = 3.25, 6.75  # inches: the widths of one column and of both

_RATIO, _LOWEST, _HIGHEST = 0.66, 1.55, 2.7  # height of a plot over its width, and its limits in inches
_LETTER = 0.058  # inches: average width of a letter
INK, MUTED, RULE = "#000000", "#666666", "#D9D9D9"
_LOOK: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelpad": 2.5,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.02,
    "figure.constrained_layout.w_pad": 0.02,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "font.size": 7,
    "grid.color": RULE,
    "grid.linewidth": 0.4,
    "legend.borderaxespad": 0.2,
    "legend.columnspacing": 1.2,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.8,  # long enough for a dash pattern
    "legend.handletextpad": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "savefig.dpi": 300,
    "svg.fonttype": "path",
    "svg.hashsalt": "parsimon",
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "xtick.minor.size": 1.5,
    "xtick.minor.width": 0.4,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.major.size": 2.5,
    "ytick.major.width": 0.6,
}
_WITHOUT_DATES: Mapping[str, dict[str, str | None]] = {
    ".pdf": {"Creator": "parsimon", "CreationDate": None},
    ".svg": {"Creator": "parsimon", "Date": None},
    ".png": {"Software": "parsimon"},
}


class Mark(NamedTuple):
    """The look of one attack, the same in every figure."""

    colour: str
    dashes: tuple[int, tuple[float, ...]]
    marker: str


_SOLID, _LONG, _DOTTED, _MIXED = (), (4.0, 1.2), (1.0, 1.0), (4.0, 1.2, 1.0, 1.2)
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#666666", "#9467BD")
_DASHES = (_SOLID, _LONG, _MIXED, _DOTTED)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "p", "*", ">", "d", "h", "8")
# Each colour several times, with different dashes and markers.
_MARKS = tuple(
    Mark(colour, (0, _DASHES[(number + turn) % 4]), _MARKERS[(number + len(_COLOURS) * turn) % len(_MARKERS)])
    for turn in range(4)
    for number, colour in enumerate(_COLOURS)
)
_CONTRAST = (1, 0, 2, 7, 3, 5, 4, 6)  # places of colours: neighbours differ most
_KNOWN = (
    *("Parsimonious", "Bandits", "NES", "Square", "SignHunter", "SimBA", "RandomCorners", "Thrift"),
    *("RayS", "SignFlip", "HopSkipJump", "ADBA", "Haggle"),  # label-only: other dashes
    "Scatter",
)


def marks(names: Collection[str]) -> dict[str, Mark]:
    """Return a mark for each name: parsimon's attacks have fixed ones, other names depend on their hash.

    No two names of one figure share a mark: the later one takes the next free mark.
    """
    if not names:
        raise InputError("a figure needs at least one attack to show; got none")
    taken = {name: _KNOWN.index(name) for name in names if name in _KNOWN}
    for name in names:
        if name in taken:
            continue
        if len(taken) == len(_MARKS):
            raise InputError(f"a figure can tell {len(_MARKS)} names apart; got {len(names)}: split it into several")
        wanted = crc32(name.encode()) % len(_COLOURS)
        colours = [place % len(_COLOURS) for place in taken.values()]
        # A colour of its own before a dash of its own.
        order = sorted(range(len(_MARKS)), key=lambda place: (place - wanted) % len(_COLOURS))
        order.sort(key=lambda place: (colours.count(place % len(_COLOURS)), place // len(_COLOURS)))
        taken[name] = next(place for place in order if place not in taken.values())
    return {name: _MARKS[taken[name]] for name in names}


def marks_in_order(names: Sequence[str]) -> dict[str, Mark]:
    """Return a mark for each name by its place, for names that are no attacks; the first two contrast best."""
    if len(names) > len(_MARKS):
        raise InputError(f"a figure can tell {len(_MARKS)} names apart; got {len(names)}: split it into several")
    order = [turn + place for turn in range(0, len(_MARKS), len(_COLOURS)) for place in _CONTRAST]
    return {name: _MARKS[place] for name, place in zip(names, order, strict=False)}


def marks_of_runs(
    runs: Mapping[str, Collection[str]], own: Mapping[str, Mark] | None = None
) -> dict[tuple[str, str], Mark]:
    """Return a mark for each attack of each run. An attack keeps its colour; dashes and markers tell runs apart.

    `own` are the marks of the attacks in one run.
    """
    attacks = dict.fromkeys(attack for each in runs.values() for attack in each)
    own = own or (marks(attacks) if attacks else {})
    if len(runs) == 1:
        return {(run, attack): own[attack] for run, each in runs.items() for attack in each}
    if len(runs) > len(_MARKERS):
        raise InputError(f"a figure can tell {len(_MARKERS)} runs apart; got {len(runs)}: split it into several")
    return {
        (run, attack): own[attack]._replace(dashes=(0, _DASHES[place % len(_DASHES)]), marker=_MARKERS[place])
        for place, (run, each) in enumerate(runs.items())
        for attack in each
    }


@contextmanager
def _look() -> Iterator[None]:
    """Use this look, without the user's own settings, and restore matplotlib afterwards."""
    matplotlib = require("matplotlib", "plot")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_LOOK)
        yield


Settings = ParamSpec("Settings")


def styled(draw: Callable[Settings, Figure]) -> Callable[Settings, Figure]:
    """Decorate a function that draws a figure, so that it draws in this look."""

    @wraps(draw)
    def drawn(*args: Settings.args, **kwargs: Settings.kwargs) -> Figure:
        with _look():
            figure = draw(*args, **kwargs)
            figure.draw_without_rendering()  # ticks are made on first drawing, in the current look
            return figure

    return drawn


def blank(width: float, height: float) -> Figure:
    """Return an empty figure, which belongs to no window and no list of open figures."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def plot_axes(width: float) -> tuple[Figure, Axes]:
    """Return a figure with one plot, of a height that suits its width."""
    figure = blank(width, min(max(_LOWEST, _RATIO * width), _HIGHEST))
    return figure, figure.subplots()


def tick_locator(width: float) -> MaxNLocator:
    """Return where the ticks of an axis are, for a figure of this width."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(max(3, min(10, int(2 * width))), steps=[1, 2, 4, 5, 10])


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PDF, SVG or PNG by its suffix. The same figure gives the same bytes."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in _WITHOUT_DATES:
        raise InputError(f"a figure is saved as {', '.join(_WITHOUT_DATES)}; got {path.name!r}: choose one of these")
    with _look():
        figure.savefig(path, metadata=_WITHOUT_DATES[kind])


def legend_above(figure: Figure, axes: Axes, **settings: Any) -> None:
    """Add a legend above the axes, in as few rows as fit. The figure grows by its height."""
    handles, names = axes.get_legend_handles_labels()
    labels = [fill(name, int((figure.get_figwidth() - 0.5) / _LETTER)) for name in names]
    for rows in range(1, len(labels) + 1):
        columns = -(-len(labels) // rows)
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=columns, **settings)
        box = legend.get_window_extent()
        if columns == 1 or box.width <= figure.bbox.width:
            figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
            return
        legend.remove()


def thousands(value: float, _position: float = 0) -> str:
    """Return the label of a tick, such as 4k for 4,000, as in the paper."""
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def label_markers(axes: Axes, points: Sequence[tuple[float, float]], labels: Sequence[str]) -> None:
    """Write each label beside its marker, on the side where it overlaps the least."""
    from matplotlib.transforms import Bbox

    centres = [axes.transData.transform(point) for point in points]
    unit = axes.figure.dpi / 72  # one point, in pixels
    covered = [Bbox.from_bounds(x - 2.5 * unit, y - 2.5 * unit, 5 * unit, 5 * unit) for x, y in centres]
    sides = [(0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, -1), (-1, 1)]
    for point, label in zip(points, labels, strict=True):
        if not label:
            continue
        tried: list[tuple[int, int, Text, Bbox]] = []
        for across, up in sides:
            text = axes.annotate(
                label,
                point,
                xytext=(4 * across, 4 * up),
                textcoords="offset points",
                fontsize=6,
                ha=("center", "left", "right")[across],
                va=("center", "bottom", "top")[up],
            )
            box = text.get_window_extent()
            inside = axes.bbox.contains(box.x0, box.y0) and axes.bbox.contains(box.x1, box.y1)
            overlaps = sum(box.overlaps(other) for other in covered) + (not inside)
            tried.append((overlaps, len(tried), text, box))
        tried.sort(key=lambda each: each[:2])
        covered.append(tried[0][3])
        for _, _, worse, _ in tried[1:]:
            worse.remove()

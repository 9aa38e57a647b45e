"""Draw the moves of Thrift in one attack for docs/decisions/0007-thrift.md: thrift-moves.png, and one for phones.

python docs/_make/thrift_moves.py [FOLDER]      # by default docs/pictures; it needs the extras onnx and plot
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import parsimon
from _shared import draw_panel
from parsimon import zoo
from parsimon.attacks import thrift
from parsimon.attacks.block_refiner import BlockRefiner
from parsimon.attacks.mutable_corner import MutableCorner
from parsimon.core.canvas import render
from parsimon.core.grid import Window
from parsimon.core.model import AnswerLevel
from parsimon.core.types import Ask, Corners, Image, ImageContext, Reply, Search
from parsimon.data.cifar10 import CLASSES
from parsimon.models import as_model
from parsimon.report.style import INK, MUTED, PAGE, RULE, blank, marks, save, styled
from parsimon.setsearch import Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NETWORK, EPS = "standard", 4 / 255
IMAGE = 93  # of the bundled ones: the attack on it has moves of every kind
SIDE = 32
BUDGET = 600
MARKED = "#D55E00"  # flipped blocks
WIDE, NARROW = (PAGE, 4.9), (3.4, 9.8)  # inches


_BATCH = 8


class Query(NamedTuple):
    """One query."""

    signs: Mask
    loss: float


class Refined(NamedTuple):
    """A block that was refined, with its pieces in the order of the queries. A piece without a query was deduced."""

    first: int  # query
    queries: int
    windows: list[Window]
    effects: list[float]


@dataclass
class Trace:
    """The moves of an attack on one image."""

    queries: list[Query] = field(default_factory=list)
    refined: list[Refined] = field(default_factory=list)
    combined: dict[int, list[Window]] = field(default_factory=dict)  # by query, where the flips were kept

    def flipped(self, query: int) -> Window:
        """Return the window that a query flipped."""
        (block,) = (each for each in self.refined if 0 <= query - each.first < each.queries)
        return block.windows[query - block.first]


@dataclass(frozen=True)
class TracedThrift(parsimon.Thrift):
    """Thrift with a record of its queries."""

    trace: Trace = field(default_factory=Trace, compare=False, repr=False)
    needs: ClassVar[AnswerLevel] = "scores"

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        search = super().search(context, rng)
        ask = next(search)
        try:
            while True:
                reply = yield ask
                assert isinstance(ask.points, Corners)
                signs = ask.points.point(0).members.reshape(SIDE, SIDE, 3).copy()
                self.trace.queries.append(Query(signs, reply.loss.item()))
                ask = search.send(reply)
        except StopIteration:
            return


class TracedRefiner(BlockRefiner):
    """A refiner with a record of its moves."""

    trace: ClassVar[Trace]
    _split: list[Any]

    def _pieces(self, row: int, column: int, group: int) -> list[Any]:
        self._split = super()._pieces(row, column, group)
        return self._split

    def refine_next(self, best: MutableCorner, rng: np.random.Generator) -> Generator[Ask, Reply, list[Window]]:
        before = len(self.trace.queries)
        kept = yield from super().refine_next(best, rng)
        effects = [self._finer_effects.values.item(place) for place, _, _ in self._split]
        windows = [window for _, window, _ in self._split]
        self.trace.refined.append(Refined(before + 1, len(self.trace.queries) - before, windows, effects))
        return kept

    def flip_combination(self, best: MutableCorner, contender: int) -> Generator[Ask, Reply, list[Window]]:
        before = len(self.trace.queries)
        windows = yield from super().flip_combination(best, contender)
        if windows:
            self.trace.combined[before + 1] = windows
        return windows


class Attacked(NamedTuple):
    """An attack from its first query to its success."""

    image: Image
    adversarial: Image
    before: str
    after: str
    trace: Trace


def attacked() -> Attacked:
    """Attack the image, and record every move."""
    images, labels = zoo.images()
    only = slice(IMAGE, IMAGE + 1)
    attack = TracedThrift()
    TracedRefiner.trace = attack.trace
    with mock.patch.object(thrift, "BlockRefiner", TracedRefiner):
        result = parsimon.attack(
            NETWORK, images[only], labels[only], EPS, attack=attack, budget=BUDGET, batch_size=4, progress=False
        )
    (outcome,) = result.outcomes
    assert outcome.point is not None  # the engine keeps the response to the success to itself
    assert outcome.predicted is not None
    adversarial = render(images[IMAGE], result.threat, outcome.point)
    scores = as_model(NETWORK)(np.stack([adversarial] * _BATCH))
    losses, _, _ = result.threat.judge(scores, np.full(_BATCH, labels[IMAGE]))
    signs = adversarial > images[IMAGE]
    attack.trace.queries.append(Query(signs.transpose(1, 2, 0), float(losses[0])))
    return Attacked(images[IMAGE], adversarial, CLASSES[int(labels[IMAGE])], CLASSES[outcome.predicted], attack.trace)


@styled
def moves(attack: Attacked, *, narrow: bool = False) -> Figure:
    """Draw the moves in the order of the queries, and the highest loss below them."""
    from matplotlib.gridspec import GridSpec

    figure = blank(*(NARROW if narrow else WIDE))
    figure.set_layout_engine("constrained", hspace=0.06)  # between a caption and the title below
    rows, columns = (5, 2) if narrow else (2, 5)
    grid = GridSpec(rows + 1, columns, figure, height_ratios=[1] * rows + [0.95])
    panels = [figure.add_subplot(grid[row, column]) for row in range(rows) for column in range(columns)]
    queries = attack.trace.queries
    quarter, texture = 9, 28  # chosen by hand
    split = next(each for each in attack.trace.refined if each.first > texture and len(each.windows) > each.queries)
    (together,) = attack.trace.combined

    show(panels[0], attack.image.transpose(1, 2, 0), "the image", attack.before)
    for axes, query, title in zip(
        panels[1:5],
        (1, 3, 4, 6),
        ("a pattern: columns", "less contrast", "lighter pixels flipped", "a checkerboard"),
        strict=True,
    ):
        show(axes, queries[query - 1].signs, title, caption(attack, query))
    corner(panels[5], attack, quarter, "a quarter flipped")
    corner(panels[6], attack, texture, "columns flipped")
    deduction(panels[7], attack, split)
    corner(panels[8], attack, together, f"{len(attack.trace.combined[together])} flips at once")
    show(panels[9], attack.adversarial.transpose(1, 2, 0), "adversarial", f"query {len(queries)}: {attack.after}")
    curve(figure.add_subplot(grid[rows, :]), attack, (1, 3, 4, 6, quarter, texture, together, len(queries)))
    return figure


def corner(axes: Axes, attack: Attacked, query: int, title: str) -> None:
    """Draw the corner of a query with frames around its flips."""
    show(axes, attack.trace.queries[query - 1].signs, title, caption(attack, query))
    outline(axes, attack.trace.combined.get(query) or [attack.trace.flipped(query)])


def caption(attack: Attacked, query: int) -> str:
    return f"query {query}: {attack.trace.queries[query - 1].loss:.2f}"


def deduction(axes: Axes, attack: Attacked, split: Refined) -> None:
    """Draw a block that was split, with the effect of each quarter. The last one was not queried."""
    last = split.first + split.queries - 1
    show(axes, attack.trace.queries[last - 1].signs, "the fourth deduced", f"queries {split.first} to {last}")
    outline(axes, split.windows)
    for (rows, columns, _), effect in zip(split.windows, split.effects, strict=True):
        middle = (columns.start + columns.stop - 1) / 2, (rows.start + rows.stop - 1) / 2
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        deduced = effect is split.effects[-1]
        text = f"({effect:.2f})" if deduced else f"{effect:.2f}"
        axes.text(*middle, text, ha="center", va="center", fontsize=5.5, color=MARKED if deduced else INK, bbox=paper)


def outline(axes: Axes, windows: Sequence[Window]) -> None:
    from matplotlib.patches import Rectangle

    for rows, columns, _ in windows:
        place, size = (columns.start - 0.5, rows.start - 0.5), (columns.stop - columns.start, rows.stop - rows.start)
        axes.add_patch(Rectangle(place, *size, fill=False, edgecolor=MARKED, linewidth=1.2, clip_on=False))


def show(axes: Axes, picture: NDArray[Any], title: str, below: str) -> None:
    draw_panel(axes, picture.astype(float), title, below)


def curve(axes: Axes, attack: Attacked, marked: Sequence[int]) -> None:
    """Draw every loss, the highest so far, and the queries of the panels."""
    losses = np.array([query.loss for query in attack.trace.queries])
    numbers, highest = np.arange(1, len(losses) + 1), np.maximum.accumulate(losses)
    colour = marks(["Thrift"])["Thrift"].colour
    axes.axhline(0, color=MUTED, linewidth=0.6)
    axes.plot(numbers, losses, ".", color=RULE, markersize=3)
    axes.step(numbers, highest, where="post", color=colour)
    for query in marked:
        axes.plot(query, losses[query - 1], "o", color=colour)
        aside = (-4 if query == marked[1] else 4 if query == marked[2] else 0, 4)
        axes.annotate(str(query), (query, losses[query - 1]), aside, textcoords="offset points", ha="center")
    axes.set(xlabel="queries", ylabel="margin loss", xlim=(0, len(losses) + 2), ylim=(losses.min() - 0.3, 1))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    attack = attacked()
    for name, narrow in (("thrift-moves.png", False), ("thrift-moves-narrow.png", True)):
        path = folder / name
        save(moves(attack, narrow=narrow), path)
        print(f"{path}: {path.stat().st_size:,} bytes")
    print(f"{attack.before} as {attack.after}, {len(attack.trace.queries)} queries")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "pictures")

"""Draw the pictures of docs/algorithm.md, from attacks on the bundled network, and print the numbers of its text.

python docs/_make/pictures.py [FOLDER]      # by default docs/pictures; it needs the extras onnx and plot
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

import parsimon
from _shared import draw_panel
from parsimon import setsearch, zoo
from parsimon.core.canvas import render
from parsimon.core.grid import Grid, first_grid
from parsimon.core.threat import Threat
from parsimon.core.types import Corner, Image
from parsimon.data.cifar10 import CLASSES
from parsimon.models import as_model
from parsimon.report.style import MUTED, blank, marks, save, styled, thousands
from parsimon.setsearch import Found, Mask, Phase, SetSearch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from watch_an_attack import JournalEntry, Watched

EPS = 8 / 255
IMAGE = 30  # of the bundled ones: it withstands until the blocks are single pixels
BUDGET = 6000
LAZY_IMAGES = 8

_WIDTH = 4.4  # inches: narrow, so that the text can be read on a phone
_MOMENTS = 4  # of the attack that unfolds
_BATCH = 8
_FROM = 64  # queries: the first mini-batch, before which little happens
_LEVELS = {4: "#E8E8E8", 2: "#F4F4F4", 1: "#FFFFFF"}  # behind the curve, by the side of the blocks


class Frame(NamedTuple):
    """The working set at one moment of an attack."""

    queries: int
    grid: Grid
    members: Mask
    loss: float


class Unfolded(NamedTuple):
    """An attack from its first query to its end."""

    image: Image
    threat: Threat
    frames: list[Frame]
    before: str
    after: str

    def drawn(self, frame: Frame) -> Image:
        return render(self.image, self.threat, Corner(frame.grid, np.packbits(frame.members).tobytes()))


def unfolded() -> Unfolded:
    """Attack one image and record each new working set."""
    images, labels = zoo.images()
    watched = Watched(parsimon.Parsimonious())
    only = slice(IMAGE, IMAGE + 1)  # alone, so in small batches: most of a larger one would be padding
    result = parsimon.attack("robust", images[only], labels[only], EPS, attack=watched, budget=BUDGET, batch_size=4)
    (outcome,) = result.outcomes
    frames = list(working_sets(watched.journal))
    if outcome.success:
        assert isinstance(outcome.point, Corner)  # whose loss the engine keeps to itself
        grid, members = outcome.point.grid, outcome.point.members
        (loss,) = losses_of(images[IMAGE], int(labels[IMAGE]), grid)([members])
        frames.append(Frame(outcome.queries, grid, members, float(loss)))
    before = CLASSES[int(labels[IMAGE])]
    after = CLASSES[outcome.predicted] if outcome.predicted is not None else before
    return Unfolded(images[IMAGE], result.threat, frames, before, after)


def working_sets(journal: list[JournalEntry]) -> Iterator[Frame]:
    """Yield the best corner whenever it improves."""
    queries, best = 0, -np.inf
    for asked, losses in journal:
        for number, loss in enumerate(losses.tolist()):
            queries += 1
            if loss > best:
                best = loss
                yield Frame(queries, asked.grid, asked.point(number).members, loss)


@styled
def hierarchy(attack: Unfolded) -> Figure:
    """Draw the image and the set found on each level of blocks."""
    levels = {frame.grid.block: frame for frame in attack.frames}  # the last frame of each
    figure = blank(_WIDTH, _WIDTH / 4 + 0.3)
    axes = figure.subplots(1, 1 + len(levels))
    show(axes[0], attack.image, "the image", f"{attack.before}, 32 x 32 x 3")
    for axis, (block, frame) in zip(axes[1:], levels.items(), strict=True):
        blocks = f"blocks of {block} x {block}" if block > 1 else "single pixels"
        show(axis, perturbation(attack, frame), blocks, f"{frame.grid.count:,} of them")
        if block > 1:
            for place in range(block, 32, block):
                axis.axhline(place - 0.5, color="#00000022", linewidth=0.4)
                axis.axvline(place - 0.5, color="#00000022", linewidth=0.4)
    return figure


@styled
def unfolding(attack: Unfolded) -> Figure:
    """Draw the loss against queries, and the working set at some moments."""
    from matplotlib.gridspec import GridSpec

    moments = chosen(attack.frames, _MOMENTS)
    figure = blank(_WIDTH, 4.0)
    grid = GridSpec(3, len(moments), figure, height_ratios=[1.7, 1, 1])
    curve = figure.add_subplot(grid[0, :])
    draw_levels(curve, attack.frames)
    queries, losses = [each.queries for each in attack.frames], [each.loss for each in attack.frames]
    mark = marks(["Parsimonious"])["Parsimonious"]
    curve.step(queries, losses, where="post", color=mark.colour)
    curve.plot([each.queries for each in moments], [each.loss for each in moments], "o", color=mark.colour)
    curve.set(xlabel="queries", ylabel="loss", xscale="log", xlim=(_FROM / 2, queries[-1] * 1.05))
    curve.xaxis.set_major_formatter(thousands)
    curve.margins(y=0.16)
    curve.grid(visible=False)
    for column, frame in enumerate(moments):
        last = frame is attack.frames[-1]
        seen = attack.after if last else attack.before
        show(figure.add_subplot(grid[1, column]), perturbation(attack, frame), f"{frame.queries:,} queries", "")
        show(figure.add_subplot(grid[2, column]), attack.drawn(frame), "", f"{seen}")
    return figure


def draw_levels(axes: Axes, frames: list[Frame]) -> None:
    """Shade the levels of the attack behind its curve."""
    starts: dict[int, int] = {}
    for frame in frames:
        starts.setdefault(frame.grid.block, frame.queries)
    ends = [*list(starts.values())[1:], frames[-1].queries]
    for (block, start), end in zip(starts.items(), ends, strict=True):
        axes.axvspan(start, end, color=_LEVELS[block], linewidth=0)
        axes.annotate(
            f"blocks of {block} x {block}" if block > 1 else "single pixels",
            (np.sqrt(max(start, _FROM / 2) * end), 0.03),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            color=MUTED,
        )


def chosen(frames: list[Frame], count: int) -> list[Frame]:
    """Return frames spread evenly over the logarithm of the queries, up to the last one."""
    wanted = np.geomspace(min(_FROM, frames[-1].queries), frames[-1].queries, count)
    asked = np.array([frame.queries for frame in frames])
    return [frames[int(np.abs(asked - want).argmin())] for want in wanted]


def show(axes: Axes, image: NDArray[np.floating], title: str, caption: str) -> None:
    draw_panel(axes, image.transpose(1, 2, 0), title, caption)


def perturbation(attack: Unfolded, frame: Frame) -> NDArray[np.floating]:
    """Scale each channel so that -eps is black and +eps is white."""
    shown: NDArray[np.floating] = 0.5 + (attack.drawn(frame) - attack.image) / (2 * EPS)
    return shown


class Phases(NamedTuple):
    """One phase of insertion into a mini-batch, lazily and naively."""

    lazy: list[int]  # queries so far, at each insertion
    naive: list[int]
    lazy_value: float
    naive_value: float
    again: int  # bounds that were queried again
    above: int  # of those, how many were above their bound, against submodularity


def lazily_and_naively(number: int) -> Phases:
    """Insert from the first 64 blocks of an image, with a heap of bounds and by querying every gain."""
    images, labels = zoo.images()
    image, label = images[number], int(labels[number])
    grid = first_grid(image.shape)
    batch = np.random.default_rng(0).permutation(grid.count)[:64]
    value_of = losses_of(image, label, grid)
    lazy, lazy_found, refreshed = counted(setsearch.lazy_greedy, batch, grid, value_of)
    naive, naive_found, _ = counted(setsearch.greedy, batch, grid, value_of)
    again, above = refreshed
    return Phases(lazy, naive, lazy_found.value, naive_found.value, again, above)


def losses_of(image: Image, label: int, grid: Grid) -> Callable[[list[Mask]], NDArray[np.float64]]:
    """Return the set function: the loss of the corner of each set of blocks."""
    model, threat = as_model("robust"), Threat(EPS)

    def values(sets: list[Mask]) -> NDArray[np.float64]:
        corners = [render(image, threat, Corner(grid, np.packbits(members).tobytes())) for members in sets]
        corners += [corners[-1]] * (-len(corners) % _BATCH)  # one shape: then no value depends on the batch
        scores = [model(np.stack(corners[start : start + _BATCH])) for start in range(0, len(corners), _BATCH)]
        losses, _, _ = threat.judge(np.concatenate(scores), np.full(len(corners), label))
        return losses[: len(sets)]

    return values


def counted(
    phase: Phase, batch: NDArray[np.intp], grid: Grid, value_of: Callable[[list[Mask]], NDArray[np.float64]]
) -> tuple[list[int], Found, tuple[int, int]]:
    """Run a phase; return the queries before each insertion, and the results of repeated evaluations."""

    def search() -> SetSearch:
        found = yield from setsearch.evaluate(np.zeros(grid.count, np.bool_))
        return (yield from phase(found, batch, inserting=True))

    running, asked, adopted, again, above = search(), 0, [], 0, 0
    bounds: dict[int, float] = {}
    family = next(running)
    base, base_value, known = family.base, -np.inf, {}
    while True:
        values = value_of(list(family.sets()))
        asked += len(values)
        for flip, value in zip(family.flips, values.tolist(), strict=False):
            if flip in bounds and len(family.flips) == 1:
                again += 1
                above += value - base_value > bounds[flip] + 1e-9
            bounds[flip] = value - base_value
            known[flip] = value
        if not family.flips:
            base_value = float(values[0])
        try:
            family = running.send(values)
        except StopIteration as stop:
            found: Found = stop.value
            if found.members is not base and (found.members != base).any():
                adopted.append(asked)
            return adopted, found, (again, above)
        if family.base is not base:
            (element,) = np.flatnonzero(family.base != base).tolist()
            base, base_value = family.base, known[element]
            adopted.append(asked)


@styled
def lazy(phases: list[Phases]) -> Figure:
    """Draw the queries of lazy and naive insertion, for one image and for several."""
    figure = blank(_WIDTH, 2.1)
    left, right = figure.subplots(1, 2, width_ratios=[1.3, 1])
    look = marks(["Parsimonious", "Bandits"])
    colours = {"lazy": look["Parsimonious"].colour, "naive": look["Bandits"].colour}
    for name, colour in colours.items():
        asked = getattr(phases[0], name)
        left.plot(range(1, len(asked) + 1), asked, color=colour)
        left.annotate(
            f"{name}: {asked[-1]:,}", (len(asked), asked[-1]), (-4, 4), textcoords="offset points", ha="right"
        )
    left.set(xlabel="blocks inserted", ylabel="queries", ylim=(0, phases[0].naive[-1] * 1.15), xlim=(0, None))
    places = np.arange(len(phases))
    for shift, (name, colour) in zip((-0.2, 0.2), colours.items(), strict=True):
        right.bar(places + shift, [getattr(each, name)[-1] for each in phases], 0.4, color=colour, label=name)
    right.set(xlabel="image", ylabel="queries", xticks=places, xticklabels=[str(place + 1) for place in places])
    right.legend(loc="upper right", ncols=2)
    right.set_ylim(0, max(each.naive[-1] for each in phases) * 1.2)
    return figure


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    attack = unfolded()
    save(hierarchy(attack), folder / "hierarchy.png")
    save(unfolding(attack), folder / "unfolding.png")
    print(f"loss {attack.frames[0].loss:.3f} at first")
    for block in sorted({frame.grid.block for frame in attack.frames}, reverse=True):
        last = [frame for frame in attack.frames if frame.grid.block == block][-1]
        print(f"blocks of {block}: loss {last.loss:.3f} after {last.queries:,} queries")
    print(f"{attack.before} as {attack.after} after {attack.frames[-1].queries:,} queries")
    phases = [lazily_and_naively(number) for number in right_ones(LAZY_IMAGES)]
    save(lazy(phases), folder / "lazy.png")
    for each in phases:
        print(
            f"lazy {each.lazy[-1]:,} values, {len(each.lazy)} blocks, loss {each.lazy_value:.4f}; naive "
            f"{each.naive[-1]:,}, {len(each.naive)}, {each.naive_value:.4f}; again {each.again}, above {each.above}"
        )


def right_ones(count: int) -> list[int]:
    """Return the first bundled images that the network classifies correctly."""
    images, labels = zoo.images()
    predicted = np.asarray(as_model("robust")(images[:64])).argmax(axis=1)
    numbers: list[int] = np.flatnonzero(predicted == labels[:64])[:count].tolist()
    return numbers


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "pictures")

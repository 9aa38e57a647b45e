"""Draw docs/pictures/attack.gif, the animated picture of the README: an attack of Thrift, query by query.

python docs/_make/animation.py [FOLDER]      # by default docs/pictures; it needs the extras onnx and plot
"""

from __future__ import annotations

import base64
import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from _shared import frame_panel
from parsimon.data.cifar10 import CLASSES
from parsimon.report.style import INK, MUTED, marks, styled
from parsimon.view.stepwise import bundled, steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NETWORK, RADIUS, EPS = "robust", "8/255", 8 / 255
IMAGE = 159  # of the bundled ones: Thrift needs some 150 queries
SIDE = 32
MOVING, STILL = 5.6, 2.0  # seconds
FRAME = 0.1  # seconds
WON = "#C00000"  # colour of a wrong class
INCHES, DOTS = (8.0, 2.9), 110  # size of the picture, and dots per inch

Pixels = NDArray[np.uint8]


class Query(NamedTuple):
    """One query of the attack."""

    number: int
    pixels: Pixels
    loss: float
    label: str
    confidence: float


class Attacked(NamedTuple):
    """The attack on one image."""

    original: Pixels
    label: str
    confidence: float
    queries: list[Query]


def attacked(number: int = IMAGE) -> Attacked:
    """Attack a bundled image, and return every query."""
    target = bundled(NETWORK)
    start, *events = steps(target.sample(number), target, "thrift", RADIUS)
    queries = [
        Query(each["query"], pixels_of(each["frame"]), each["loss"], CLASSES[each["seen"]], each["confidence"])
        for each in events
        if "query" in each
    ]
    return Attacked(pixels_of(start["pictures"]["original"]), CLASSES[start["label"]], start["confidence"], queries)


def pixels_of(text: str) -> Pixels:
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(SIDE, SIDE, 3)


def shown(queries: list[Query]) -> list[int]:
    """Return the queries to draw: every one at first, then in growing steps, and the last one."""
    moments = np.geomspace(1, len(queries), round(MOVING / FRAME))
    return sorted({min(len(queries), round(moment)) for moment in moments} | {len(queries)})


@styled
def frame(attack: Attacked, until: int) -> Figure:
    """Draw the attack after its first queries."""
    from matplotlib.figure import Figure

    made = attack.queries[:until]
    best = max(made, key=lambda query: query.loss)
    won = best.label != attack.label
    colour = marks(["Thrift"])["Thrift"].colour
    figure = Figure(figsize=INCHES, dpi=DOTS, facecolor="white")
    panels = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.55])
    change = 127.5 + (best.pixels.astype(float) - attack.original) / (255 * EPS) * 127.5
    picture(panels[0], attack.original, "image", f"{attack.label} {attack.confidence:.0%}", INK)
    picture(panels[1], change.clip(0, 255).astype(np.uint8), "perturbation, amplified", "at most 8/255", MUTED)
    picture(panels[2], best.pixels, "best query so far", f"{best.label} {best.confidence:.0%}", WON if won else INK)
    curve(panels[3], attack, made, colour)
    panels[3].set_title(f"query {made[-1].number}", fontsize=16, color=INK, pad=8, fontweight="bold")
    return figure


def picture(axes: Axes, pixels: Pixels, title: str, caption: str, colour: str) -> None:
    axes.imshow(pixels, interpolation="nearest")
    axes.set_title(title, fontsize=10, color=MUTED, pad=5)
    axes.set_xlabel(caption, fontsize=12, color=colour, labelpad=6)
    frame_panel(axes)


def curve(axes: Axes, attack: Attacked, made: list[Query], colour: str) -> None:
    """Draw the highest loss against queries. The class changes where the margin loss passes zero."""
    every = [query.loss for query in attack.queries]
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.annotate("misclassified above", (1, 0), (3, 3), textcoords="offset points", color=MUTED, fontsize=9)
    axes.step(
        [query.number for query in made],
        np.maximum.accumulate([query.loss for query in made]),
        where="post",
        color=colour,
        linewidth=2,
    )
    reach = max(every) - min(every)
    axes.set(
        xscale="log", xlim=(1, len(every) * 1.3), ylim=(min(every) - 0.05 * reach, max(max(every), 0) + 0.2 * reach)
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("queries", fontsize=10)
    axes.set_ylabel("loss", fontsize=10)
    axes.tick_params(labelsize=9)


def pixels(figure: Figure) -> PIL.Image.Image:
    """Return a drawn figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    content = BytesIO()
    figure.savefig(content, format="png", dpi=DOTS)
    return PIL.Image.open(content).convert("RGB")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    attack = attacked()
    moments = shown(attack.queries)
    drawn = [pixels(frame(attack, moment)) for moment in moments]
    # One palette for all frames, from the last one, which has every colour.
    palette = drawn[-1].quantize(128)
    frames = [each.quantize(palette=palette, dither=PIL.Image.Dither.NONE) for each in drawn]
    lasts = [round(1000 * MOVING / len(frames))] * len(frames)
    lasts[-1] = round(1000 * STILL)
    path = folder / "attack.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=lasts, loop=0, optimize=True)
    last = attack.queries[-1]
    print(f"{path}: {sum(lasts) / 1000:.1f} s, {path.stat().st_size:,} bytes, {len(frames)} frames")
    print(f"{attack.label} as {last.label} after {last.number} queries")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "pictures")

"""Draw docs/pictures/attacks.png: what each black-box attack adds to one image, and how many queries that takes.

python docs/_make/attack_pictures.py [FOLDER]      # by default docs/pictures; it needs the extras onnx and plot
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

import parsimon
from _shared import draw_panel, label_panel
from parsimon import zoo
from parsimon.attacks import ATTACKS
from parsimon.core.types import Image
from parsimon.data.cifar10 import CLASSES
from parsimon.report.style import blank, save, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NETWORK, EPS, BUDGET = "robust", 8 / 255, 5000
IMAGE = 9  # of the bundled ones
SHOWN = "Parsimonious"  # whose adversarial image is drawn, too

_COLUMNS = 4
_WIDTH, _CELL = 3.6, 1.22  # inches: narrow, so that the text can be read on a phone
_SMALL = 6.5  # points
_EMPTY = "#F2F2F2"  # where an attack failed


class Attacked(NamedTuple):
    """The outcome of one attack: its adversarial image, unless it failed."""

    name: str
    queries: int
    adversarial: Image | None
    predicted: int | None


def attacked(number: int = IMAGE) -> tuple[Image, int, list[Attacked]]:
    """Attack one bundled image with every black-box attack; return the image, its class and the outcomes."""
    images, labels = (array[number : number + 1] for array in zoo.images())
    found = []
    for name, attack in ATTACKS.items():
        if attack.needs == "gradient":
            continue
        result = parsimon.attack(NETWORK, images, labels, EPS, attack=name, budget=BUDGET, batch_size=4)
        (outcome,) = result.outcomes
        adversarial = result.adversarial[0] if outcome.success else None
        found.append(Attacked(attack.__name__, outcome.queries, adversarial, outcome.predicted))
    return images[0], int(labels[0]), found


@styled
def perturbations(image: Image, label: int, found: list[Attacked]) -> Figure:
    """Draw the image, one adversarial image, and the perturbation of every attack."""
    rows = -(-(len(found) + 2) // _COLUMNS)
    figure = blank(_WIDTH, rows * _CELL)
    axes = figure.subplots(rows, _COLUMNS).ravel()
    (example,) = (each for each in found if each.name == SHOWN)
    assert example.adversarial is not None
    assert example.predicted is not None
    show(axes[0], image, "image", CLASSES[label])
    show(axes[1], example.adversarial, "adversarial", CLASSES[example.predicted])
    for axis, each in zip(axes[2:], found, strict=False):
        if each.adversarial is None:
            show(axis, None, each.name, f"none in {BUDGET:,}")
        else:
            show(axis, scaled(each.adversarial - image), each.name, f"{each.queries:,} queries")
    for axis in axes[2 + len(found) :]:
        axis.set_axis_off()
    return figure


def scaled(perturbation: NDArray[np.floating]) -> NDArray[np.floating]:
    """Scale each channel so that -eps is black and +eps is white."""
    shown: NDArray[np.floating] = 0.5 + perturbation / (2 * EPS)
    return shown


def show(axes: Axes, image: NDArray[np.floating] | None, title: str, caption: str) -> None:
    if image is not None:
        draw_panel(axes, image.transpose(1, 2, 0), title, caption, fontsize=_SMALL)
    else:
        axes.set_facecolor(_EMPTY)
        axes.set_box_aspect(1)
        label_panel(axes, title, caption, fontsize=_SMALL)


def main(folder: Path) -> None:
    image, label, found = attacked()
    save(perturbations(image, label, found), folder / "attacks.png")
    for each in found:
        print(each.name, each.queries, None if each.predicted is None else CLASSES[each.predicted])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "pictures")

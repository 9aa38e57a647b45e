"""Queries to success: Thrift beside the best of Square, SignHunter and Parsimonious on each of several networks.

    python benchmarks/queries.py [robust standard efficientnet-lite0 resnet-50] [--images 60] [--results FOLDER]
    python benchmarks/queries.py mine.onnx --data bundled --eps 4/255

Every attack is shown the same correctly classified images and climbs the margin loss, the one with which each of them
needs the fewest queries here (the paper's own cross-entropy is run beside it); Square has its preset for the kind of
data. Of a network that is marked so, only those images are attacked that PGD, which sees gradients, fools in 20 steps:
on the others all attacks would spend their budgets, which says nothing of queries.

The mean and the median are over the images that any attack fools, a failure counted at the budget. Each is divided by
the same of the rival whose mean is lowest; intervals are bootstrapped over images, which keeps pairs whole. What an
attack has come to is kept in the folder, so that a run that was cut short can be taken up.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parsimon import PGD, Attack, Parsimonious, SignHunter, Square, Thrift, attack
from parsimon.api import Settings
from parsimon.data import open_data_for
from parsimon.statistics import bootstrap_interval
from parsimon.threat import Loss, Targets


@dataclass(frozen=True)
class Setting:
    """A network, and how it is attacked."""

    model: str
    data: str
    eps: float
    budget: int
    square: str = "cifar10"  # Square's preset
    fooled_by_pgd: bool = False
    targets: Targets | None = None


SETTINGS = {
    "robust": Setting("robust", "bundled", 8 / 255, 2000, fooled_by_pgd=True),
    "robust-12": Setting("robust", "bundled", 12 / 255, 2000, fooled_by_pgd=True),
    "robust-targeted": Setting("robust", "bundled", 12 / 255, 2000, fooled_by_pgd=True, targets="next"),
    "standard": Setting("standard", "bundled", 4 / 255, 2000),
    "standard-2": Setting("standard", "bundled", 2 / 255, 2000),
    "standard-targeted": Setting("standard", "bundled", 4 / 255, 2000, targets="next"),
    "efficientnet-lite0": Setting("efficientnet-lite0", "imagenet-samples", 0.05, 1000, "imagenet"),
    "efficientnet-lite0-0.02": Setting("efficientnet-lite0", "imagenet-samples", 0.02, 1000, "imagenet"),
    "resnet-50": Setting("resnet-50", "imagenet-samples", 0.05, 1000, "imagenet"),
}

Table = NDArray[np.float64]  # an image a row, the queries of Thrift and of a rival, infinite for a failure


def rows(setting: Setting) -> dict[str, tuple[Attack, Loss | None]]:
    """The attacks, with the loss that each climbs; None: its own."""
    square = Square.preset("imagenet-targeted" if setting.targets and setting.square == "imagenet" else setting.square)
    loss: Loss = "cross-entropy" if setting.targets else "margin"
    attacks: dict[str, tuple[Attack, Loss | None]] = {
        "Thrift": (Thrift(), None),
        "Square": (square, None),
        "SignHunter": (SignHunter(), loss),
        "Parsimonious": (Parsimonious(), loss),
        "Thrift, start=uniform": (Thrift(start="uniform"), None),
        "Thrift, deduce=false": (Thrift(deduce=False), None),
    }
    if loss == "margin" and setting.square != "imagenet":  # it is the slowest, and there are pictures of 224 x 224
        attacks["Parsimonious, cross-entropy"] = Parsimonious(), "cross-entropy"
    return attacks


def measure(name: str, setting: Setting, images: int, first: int, folder: Path) -> dict[str, Table]:
    """The queries of each attack on each image, infinite for a failure."""
    data = open_data_for(setting.model, setting.data, None)
    settings = Settings(budget=setting.budget, progress=False, targets=setting.targets, at_most=images)
    # Batches are filled up to their shape, and the last images that hold out would pay for rows that nobody asked for.
    settings["batch_size"] = 4 if setting.square == "imagenet" else 16
    pictures, labels = data.images, np.asarray(data.labels)
    if first:
        pictures, labels = pictures[first:], labels[first:]
    if setting.fooled_by_pgd:
        enough = slice(0, 20 * images)
        pictures, labels = pictures[enough], labels[enough]
        seen = Settings(budget=20, progress=False, targets=setting.targets, loss="margin")
        pgd = attack(setting.model, pictures, labels, setting.eps, attack=PGD(), **seen)
        fooled = [outcome.index for outcome in pgd.outcomes if outcome.success][:images]
        pictures, labels = np.stack([pictures[index] for index in fooled]), labels[fooled]
    found: dict[str, Table] = {}
    for row, (rival, loss) in rows(setting).items():
        file = folder / f"{name}-{images}-{first} {row}.json"
        if not file.exists():
            settings["loss"] = loss
            result = attack(setting.model, pictures, labels, setting.eps, attack=rival, **settings)
            queries = [outcome.queries if outcome.success else None for outcome in result.outcomes]
            file.write_text(json.dumps(queries))
        found[row] = np.array([np.inf if each is None else each for each in json.loads(file.read_text())])
        print(f"  {row}: {np.isfinite(found[row]).mean():.1%}", flush=True)
    return found


def show(name: str, setting: Setting, found: dict[str, Table]) -> None:
    """Print a table, in which every attack is set against the rival with the lowest mean."""
    budget = setting.budget
    fooled = np.any([np.isfinite(queries) for queries in found.values()], axis=0)
    capped = {row: np.minimum(queries, budget)[fooled] for row, queries in found.items()}
    best = min((row for row in found if not row.startswith("Thrift")), key=lambda row: capped[row].mean())
    goal = f", targets {setting.targets}" if setting.targets else ""
    print(
        f"\n{name}: eps {setting.eps:.4f}{goal}, a budget of {budget:,}, {len(fooled)} images, {fooled.sum()} fooled\n"
    )
    print("| attack | success | mean | median | mean over best rival's (95 %) |\n|---|--:|--:|--:|--:|")
    for row, queries in found.items():
        pairs = np.stack([capped[row], capped[best]], axis=1)
        low, high = bootstrap_interval(pairs, _ratio_of_means)
        times = float(_ratio_of_means(pairs, axis=0))
        ratio = "best rival" if row == best else f"{times:.2f} ({low:.2f} to {high:.2f})"
        of_all = f"{np.isfinite(queries).mean():.1%}"
        print(f"| {row} | {of_all} | {capped[row].mean():.1f} | {np.median(capped[row]):.1f} | {ratio} |")


def _ratio_of_means(pairs: Table, axis: int) -> Table:
    means = pairs.mean(axis=axis)
    ratio: Table = means[..., 0] / means[..., 1]
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description="Queries to success of Thrift and of its rivals.")
    default = ["robust", "standard", "efficientnet-lite0", "resnet-50"]
    parser.add_argument("networks", nargs="*", default=default, help=f"of {', '.join(SETTINGS)}; or an ONNX file")
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="pass over so many images of the data set")
    parser.add_argument("--results", type=Path, default=Path("queries"), help="where outcomes are kept")
    parser.add_argument("--data", default="bundled", help="for an ONNX file, as are the following")
    parser.add_argument("--eps", type=Fraction, default=Fraction(8, 255))
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--fooled-by-pgd", action="store_true")
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    for name in given.networks:
        own = Setting(name, given.data, float(given.eps), given.budget, fooled_by_pgd=given.fooled_by_pgd)
        setting = SETTINGS.get(name, own)
        label = name if name in SETTINGS else f"{Path(name).stem}-{own.eps:.4f}"
        show(label, setting, measure(label, setting, given.images, given.first, given.results))


if __name__ == "__main__":
    main()

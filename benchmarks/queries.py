"""Compare the queries of Thrift with the best of Square, SignHunter and Parsimonious on several networks.

    python benchmarks/queries.py [robust standard efficientnet-lite0 resnet-50] [--images 60] [--results FOLDER]
    python benchmarks/queries.py robust --eps 12/255 --targets next --seeds 2
    python benchmarks/queries.py mine.onnx --data mine.npz --eps 0.3 --fooled-by-pgd
    python benchmarks/queries.py inception-v3 --images 24 --only Thrift "Square, imagenet"

All attacks run on the same correctly classified images. They maximise the margin loss, with which each needs the fewest
queries here, or cross-entropy for targets. Both presets of Square run where either may be better. On adversarially
trained networks, only images that white-box PGD fools in 20 steps are attacked: on the others every attack would spend
its budget.

Mean and median are over the images that any attack fools; a failure counts as the budget. Both are divided by those of
the rival with the lowest mean. Intervals are bootstrapped over images, with all seeds of an image together. Outcomes
are kept in the folder, so that an interrupted benchmark continues.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from parsimon import PGD, Attack, Parsimonious, SignHunter, Square, Thrift, attack
from parsimon.api import Settings
from parsimon.core.threat import Loss, Targets
from parsimon.results.statistics import bootstrap_interval
from parsimon.runs.inputs import open_data_for


@dataclass(frozen=True)
class Setting:
    """A network and its attack settings."""

    model: str
    data: str = "bundled"
    eps: float = 8 / 255
    budget: int = 1000
    fooled_by_pgd: bool = False  # for adversarially trained networks
    targets: Targets | None = None

    @property
    def large(self) -> bool:
        """Return whether the images are ImageNet's."""
        return self.data.startswith("imagenet")

    def __str__(self) -> str:
        goal = f", targets {self.targets}" if self.targets else ""
        return f"{Path(self.model).stem}, eps {self.eps:.4f}{goal}, budget {self.budget}"


SETTINGS = {
    "robust": Setting("robust", eps=8 / 255, budget=2000, fooled_by_pgd=True),
    "standard": Setting("standard", eps=4 / 255, budget=2000),
    "efficientnet-lite0": Setting("efficientnet-lite0", "imagenet-samples", eps=0.05),
    "resnet-50": Setting("resnet-50", "imagenet-samples", eps=0.05),
    "inception-v3": Setting("inception-v3", "imagenet-samples", eps=0.05),
}

Table = NDArray[np.float64]  # queries by image and seed, infinite for a failure; or by image and attack


def rows(setting: Setting, parts: bool) -> dict[str, tuple[Attack, Loss | None]]:
    """Return the attacks with their loss, None for the attack's default."""
    loss: Loss = "cross-entropy" if setting.targets else "margin"
    attacks: dict[str, tuple[Attack, Loss | None]] = {
        "Thrift": (Thrift(), None),
        "Square": (Square.preset("cifar10"), None),
        "Square, imagenet": (Square.preset("imagenet-targeted" if setting.targets else "imagenet"), None),
        "SignHunter": (SignHunter(), loss),
        "Parsimonious": (Parsimonious(), loss),
    }
    if setting.large:
        del attacks["Square"]
    if setting.fooled_by_pgd:  # the other preset is made for such networks
        del attacks["Square, imagenet"]
    if parts:
        for part in ("contrast", "texture", "deduce", "rank"):
            attacks[f"Thrift, {part}=false"] = replace(Thrift(), **{part: False}), None
        attacks["Parsimonious, cross-entropy"] = Parsimonious(), "cross-entropy"
    return attacks


def measure(
    setting: Setting, images: int, first: int, seeds: int, parts: bool, folder: Path, only: list[str] | None = None
) -> dict[str, Table]:
    """Return the queries of each selected attack by image and seed."""
    attacks = rows(setting, parts)
    if unknown := set(only or ()) - set(attacks):
        raise SystemExit(f"no {', '.join(unknown)} on {setting}: there are {', '.join(attacks)}")
    data = open_data_for(setting.model, setting.data, None)
    settings = Settings(budget=setting.budget, progress=False, targets=setting.targets, at_most=images)
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
    for row, (rival, loss) in attacks.items():
        if only and row not in only:
            continue
        by_seed = []
        for seed in range(seeds):
            file = folder / f"{setting}, {images} from {first}, seed {seed} - {row}.json"
            if not file.exists():
                settings["loss"], settings["seed"] = loss, seed
                result = attack(setting.model, pictures, labels, setting.eps, attack=rival, **settings)
                queries = [outcome.queries if outcome.success else None for outcome in result.outcomes]
                file.write_text(json.dumps(queries))
            by_seed.append([np.inf if each is None else each for each in json.loads(file.read_text())])
        found[row] = np.array(by_seed).T
        print(f"  {row}: {np.isfinite(found[row]).mean():.1%}", flush=True)
    return found


def show(setting: Setting, found: dict[str, Table]) -> None:
    """Print a table, in which every attack is set against the rival with the lowest mean."""
    fooled = np.any([np.isfinite(queries).any(axis=1) for queries in found.values()], axis=0)
    capped = {row: np.minimum(queries, setting.budget)[fooled] for row, queries in found.items()}
    rivals = [row for row in found if not row.startswith("Thrift")] or list(found)
    best = min(rivals, key=lambda row: capped[row].mean())
    seeds = next(iter(found.values())).shape[1]
    print(f"\n{setting}: {len(fooled)} images, {fooled.sum()} fooled, {seeds} seeds\n")
    print("| attack | success | mean | median | mean over best rival's (95 %) |\n|---|--:|--:|--:|--:|")
    for row, queries in found.items():
        pairs = np.stack([capped[row].mean(axis=1), capped[best].mean(axis=1)], axis=1)
        low, high = bootstrap_interval(pairs, _ratio_of_means)
        times = float(_ratio_of_means(pairs[:, 0], pairs[:, 1], axis=0))
        ratio = "best rival" if row == best else f"{times:.2f} ({low:.2f} to {high:.2f})"
        of_all = f"{np.isfinite(queries).mean():.1%}"
        print(f"| {row} | {of_all} | {capped[row].mean():.1f} | {np.median(capped[row]):.1f} | {ratio} |", flush=True)


def _ratio_of_means(a: Table, b: Table, axis: int) -> Table:
    ratio: Table = a.mean(axis=axis) / b.mean(axis=axis)
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the queries of Thrift with its rivals.")
    parser.add_argument("networks", nargs="*", default=list(SETTINGS)[:4], help=f"{', '.join(SETTINGS)}; or any other")
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="number of images to skip")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--parts", action="store_true", help="also run Thrift without each of its parts")
    parser.add_argument("--only", nargs="*", metavar="ATTACK", help="attacks to run, by their names in the table")
    parser.add_argument("--results", type=Path, default=Path("queries"), help="folder for outcomes")
    own = parser.add_argument_group("override the network's settings")
    own.add_argument("--data", default=argparse.SUPPRESS)
    own.add_argument("--eps", type=lambda text: float(Fraction(text)), default=argparse.SUPPRESS)
    own.add_argument("--budget", type=int, default=argparse.SUPPRESS)
    own.add_argument("--targets", choices=get_args(Targets), default=argparse.SUPPRESS)
    own.add_argument("--fooled-by-pgd", action="store_true", default=argparse.SUPPRESS)
    given = vars(parser.parse_args())
    networks, results = given.pop("networks"), given.pop("results")
    amount = {name: given.pop(name) for name in ("images", "first", "seeds", "parts", "only")}
    results.mkdir(parents=True, exist_ok=True)
    for name in networks:
        setting = replace(SETTINGS.get(name, Setting(name)), **given)
        show(setting, measure(setting, **amount, folder=results))


if __name__ == "__main__":
    main()

"""Compare the queries of Thrift, or of Haggle with labels alone, with those of their rivals on several networks.

    python benchmarks/queries.py [robust standard efficientnet-lite0 resnet-50] [--images 60] [--results FOLDER]
    python benchmarks/queries.py robust --eps 12/255 --targets next --seeds 2
    python benchmarks/queries.py mine.onnx --data mine.npz --eps 0.3 --fooled-by-pgd
    python benchmarks/queries.py --networks FOLDER [squeezenet mixer-robust] --first 165 --images 200 --seeds 2
    python benchmarks/queries.py inception-v3 --images 24 --only Thrift "Square, imagenet"
    python benchmarks/queries.py --labels [robust standard efficientnet-lite0]
    python benchmarks/queries.py --labels efficientnet-lite0 --data named:FOLDER

All attacks run on the same correctly classified images. Those that see scores maximise the margin loss, with which each
needs the fewest queries here, or cross-entropy for targets. Both presets of Square run where either may be better. On
adversarially trained networks, only images that white-box PGD fools in 20 steps are attacked: on the others every
attack would spend its budget.

Mean and median are over the images that any attack fools; a failure counts as the budget. The mean is divided by that
of the rival with the lowest mean. Intervals are bootstrapped over images, with all seeds of an image together. Outcomes
are kept in the folder, so that an interrupted benchmark continues.

`--networks` names a folder of `benchmarks/networks.py`; its networks are then known by name. On slow networks, find the
best rival with few images first, and then use `--only`.

With `--labels`, label-only attacks run: Haggle and its rivals. Thrift, which sees scores, is the last row. The price of
labels is Haggle's mean over Thrift's, on the images that any label-only attack fools. The budget is 5,000, and
1,000 on ImageNet. Success and the median radius are over all images. The radius of an image is the distance of its
closest adversarial image after 1,000 queries (or the budget, if that is smaller). A radius below eps counts as eps: an
attack ends at its success, and some rivals bisect below eps while others never ask there.
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

from parsimon import (
    ADBA,
    PGD,
    Attack,
    Haggle,
    HopSkipJump,
    Parsimonious,
    RayS,
    SignFlip,
    SignHunter,
    Square,
    Thrift,
    attack,
)
from parsimon.api import Settings
from parsimon.core.threat import Loss, Targets
from parsimon.core.types import Radii
from parsimon.results.statistics import interval_of
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
    labels: bool = False  # for label-only attacks
    pictures: bool = False  # whether a file of images holds ImageNet's

    @property
    def large(self) -> bool:
        """Return whether the images are ImageNet's."""
        return self.pictures or self.data.startswith(("imagenet", "named:"))

    @property
    def own(self) -> str:
        """Return the attack that is set against its rivals."""
        return "Haggle" if self.labels else "Thrift"

    def __str__(self) -> str:
        only = ", fooled by PGD" if self.fooled_by_pgd else ""
        goal = f", targets {self.targets}" if self.targets else ""
        data = Path(self.data)
        images = f"{data.parent.name if data.name == 'images.npy' else data.name}{only}"
        return f"{Path(self.model).stem}, {images}, eps {self.eps:.4f}{goal}, budget {self.budget}"


SETTINGS = {
    "robust": Setting("robust", eps=8 / 255, budget=2000, fooled_by_pgd=True),
    "standard": Setting("standard", eps=4 / 255, budget=2000),
    "efficientnet-lite0": Setting("efficientnet-lite0", "imagenet-samples", eps=0.05),
    "resnet-50": Setting("resnet-50", "imagenet-samples", eps=0.05),
    "inception-v3": Setting("inception-v3", "imagenet-samples", eps=0.05),
}

DEFAULT_NETWORKS = {False: list(SETTINGS)[:4], True: list(SETTINGS)[:3]}  # by whether attacks see labels alone
LABEL_BUDGET, LARGE_LABEL_BUDGET = 5000, 1000  # the latter on ImageNet
SUCCESS_AT = (50, 100, 500, 1000, 5000)  # queries
RADIUS_AT = 1000
LARGEST_SMALL = 64  # side of an image that is not ImageNet's
PARTS = ("contrast", "texture", "deduce", "rank", "combine")  # of Thrift, which a setting switches off


def made_networks(folder: Path) -> dict[str, Setting]:
    """Return the networks that `benchmarks/networks.py` has made in a folder."""
    made = {}
    for entry in json.loads((folder / "manifest.json").read_text()):
        pictures = np.load(entry["data"], mmap_mode="r").shape[-1] > LARGEST_SMALL
        shown = Setting(entry["model"], entry["data"], entry["eps"], fooled_by_pgd=entry["robust"], pictures=pictures)
        made[entry["name"]] = shown
    return made


Table = NDArray[np.float64]  # by image and seed; or by image and attack


@dataclass(frozen=True)
class Found:
    """The outcomes of one attack, by image and seed."""

    queries: Table  # infinite for a failure
    radius: (
        Table  # after RADIUS_AT queries, at least eps; infinite if no adversarial image was found, or without labels
    )


def label_rows() -> dict[str, tuple[Attack, Loss | None]]:
    """Return the label-only attacks, and Thrift."""
    attacks: tuple[Attack, ...] = Haggle(), RayS(), SignFlip(), HopSkipJump(), ADBA(), Thrift()
    return {type(each).__name__: (each, None) for each in attacks}


def rows(setting: Setting, parts: bool) -> dict[str, tuple[Attack, Loss | None]]:
    """Return the attacks with their loss, None for the attack's default."""
    if setting.labels:
        return label_rows()
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
        for part in PARTS:
            attacks[f"Thrift, {part}=false"] = replace(Thrift(), **{part: False}), None
        attacks["Parsimonious, cross-entropy"] = Parsimonious(), "cross-entropy"
    return attacks


def measure(
    setting: Setting, images: int, first: int, seeds: int, parts: bool, folder: Path, only: list[str] | None = None
) -> dict[str, Found]:
    """Return what each selected attack found."""
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
    found: dict[str, Found] = {}
    for row, (rival, loss) in attacks.items():
        if only and row not in only:
            continue
        queries, radii = [], []
        for seed in range(seeds):
            file = folder / f"{setting}, {images} from {first}, seed {seed} - {row}.json"
            if not file.exists():
                settings["loss"], settings["seed"] = loss, seed
                result = attack(setting.model, pictures, labels, setting.eps, attack=rival, **settings)
                if any(outcome.ended == "interrupted" for outcome in result.outcomes):
                    raise SystemExit(f"interrupted; the same command continues with {row}")
                kept = {
                    "queries": [outcome.queries if outcome.success else None for outcome in result.outcomes],
                    "radii": [outcome.radii for outcome in result.outcomes],
                }
                file.write_text(json.dumps(kept))
            kept = json.loads(file.read_text())
            queries.append([np.inf if each is None else each for each in kept["queries"]])
            radii.append([radius_at(RADIUS_AT, each, setting.eps) for each in kept["radii"]])
        found[row] = Found(np.array(queries).T, np.array(radii).T)
        print(f"  {row}: {np.isfinite(found[row].queries).mean():.1%}", flush=True)
    return found


def radius_at(queries: int, radii: Radii, eps: float) -> float:
    """Return the smallest radius found within that many queries, at least eps; infinite if there is none."""
    return max(eps, min((radius for query, radius in radii if query <= queries), default=np.inf))


def show(setting: Setting, found: dict[str, Found]) -> None:
    """Print a table, in which every attack is set against the rival with the lowest mean."""
    compared = [each for row, each in found.items() if not (setting.labels and row == "Thrift")] or [*found.values()]
    fooled = np.any([np.isfinite(each.queries).any(axis=1) for each in compared], axis=0)
    seeds = next(iter(found.values())).queries.shape[1]
    print(f"\n{setting}: {len(fooled)} images, {fooled.sum()} fooled, {seeds} seeds\n")
    if not fooled.any():
        return
    capped = {row: np.minimum(each.queries, setting.budget)[fooled] for row, each in found.items()}
    rivals = [row for row in found if not row.startswith((setting.own, "Thrift"))] or list(found)
    best = min(rivals, key=lambda row: capped[row].mean())
    table = {row: cells(setting, each, capped[row]) for row, each in found.items()}
    for row, line in table.items():
        line["mean over best rival's (95 %)"] = (
            "best rival" if row == best else ratio_of_means(capped[row], capped[best])
        )
        if setting.labels and row == "Thrift":
            price = ratio_of_means(capped["Haggle"], capped["Thrift"]) if "Haggle" in found else "needs Haggle"
            line["mean over best rival's (95 %)"] = f"price of labels: {price}"
    titles = next(iter(table.values()))
    print(f"| attack | {' | '.join(titles)} |\n|---|{'--:|' * len(titles)}")
    for row, line in table.items():
        print(f"| {row} | {' | '.join(line.values())} |", flush=True)


def cells(setting: Setting, found: Found, capped: Table) -> dict[str, str]:
    """Return the cells of an attack by column; `capped`: the queries on images that any attack fools."""
    mean = f"{capped.mean():.1f}"
    if not setting.labels:
        success = f"{np.isfinite(found.queries).mean():.1%}"
        return {"success": success, "mean": mean, "median": f"{np.median(capped):.1f}"}
    steps = [queries for queries in SUCCESS_AT if queries <= setting.budget]
    success_at = {f"success at {queries:,}": f"{(found.queries <= queries).mean():.1%}" for queries in steps}
    radius = np.median(found.radius)
    closest = f"{radius:.4f}" if np.isfinite(radius) else "-"
    return {"mean": mean, **success_at, f"median radius at {min(RADIUS_AT, setting.budget):,}": closest}


def summary(setting: Setting, found: dict[str, Found]) -> str | None:
    """Return one row of a table: the network, its own attack, the best rival, and the ratio of their means."""
    fooled = np.any([np.isfinite(each.queries).any(axis=1) for each in found.values()], axis=0)
    rivals = [row for row in found if not row.startswith(setting.own)]
    if setting.own not in found or not rivals or not fooled.any():
        return None
    capped = {row: np.minimum(each.queries, setting.budget)[fooled] for row, each in found.items()}
    best = min(rivals, key=lambda row: capped[row].mean())
    lowest = min(float(np.median(capped[row])) for row in rivals)
    most = max(float(np.isfinite(found[row].queries).mean()) for row in rivals)
    own = capped[setting.own]
    success = float(np.isfinite(found[setting.own].queries).mean())
    cells = (
        *(Path(setting.model).stem + (", targeted" if setting.targets else ""), f"{setting.eps:.3f}"),
        *(f"{len(fooled)} ({fooled.sum()})", f"{own.mean():.1f}", best, f"{capped[best].mean():.1f}"),
        *(ratio_of_means(own, capped[best]), f"{np.median(own):g}", f"{lowest:g}", f"{success:.1%}", f"{most:.1%}"),
    )
    return f"| {' | '.join(cells)} |"


SUMMARY_TITLES = (
    *("network", "eps", "images (fooled)", "mean", "best rival", "its mean", "ratio (95 %)", "median"),
    *("lowest median of a rival", "success", "highest success of a rival"),
)


def ratio_of_means(a: Table, b: Table) -> str:
    """Return the mean of one attack over that of another, with a paired interval over images."""
    pairs = np.stack([a.mean(axis=1), b.mean(axis=1)], axis=1)
    interval = interval_of(pairs, _ratio_of_means)
    times = float(_ratio_of_means(pairs[:, 0], pairs[:, 1], axis=0))
    return f"{times:.2f}" if interval is None else f"{times:.2f} ({interval[0]:.2f} to {interval[1]:.2f})"


def _ratio_of_means(a: Table, b: Table, axis: int) -> Table:
    ratio: Table = a.mean(axis=axis) / b.mean(axis=axis)
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the queries of Thrift, or of Haggle, with their rivals.")
    parser.add_argument("networks", nargs="*", help=f"{', '.join(SETTINGS)}; or any other")
    parser.add_argument("--networks", dest="made", type=Path, help="folder of networks made by benchmarks/networks.py")
    parser.add_argument("--labels", action="store_true", help="run attacks that see labels alone")
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
    if given["labels"] and given["parts"]:
        parser.error("--parts is for attacks that see scores")
    folder = given.pop("made")
    known = SETTINGS if folder is None else {**SETTINGS, **made_networks(folder)}
    networks, results = given.pop("networks") or DEFAULT_NETWORKS[given["labels"]], given.pop("results")
    amount = {name: given.pop(name) for name in ("images", "first", "seeds", "parts", "only")}
    results.mkdir(parents=True, exist_ok=True)
    rows_of_all = []
    for name in networks:
        setting = replace(known.get(name, Setting(name)), **given)
        if setting.labels and "budget" not in given:
            setting = replace(setting, budget=LARGE_LABEL_BUDGET if setting.large else LABEL_BUDGET)
        found = measure(setting, **amount, folder=results)
        show(setting, found)
        rows_of_all.append(summary(setting, found))
    if len(networks) > 1:
        print(f"\n| {' | '.join(SUMMARY_TITLES)} |\n|{'---|' * len(SUMMARY_TITLES)}")
        print("\n".join(row for row in rows_of_all if row is not None))


if __name__ == "__main__":
    main()

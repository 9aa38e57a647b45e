"""Write the outcomes of benchmarks/queries.py as CSV, and print the table that follows from them.

    python benchmarks/raw_queries.py [FOLDER] [--csv benchmarks/results/queries-raw.csv]

FOLDER holds the JSON files that `benchmarks/queries.py --results FOLDER` kept. Without FOLDER, the script only reads
the CSV and prints the table. It leaves out label-only and targeted attacks.

The CSV has one row per network, attack, seed and image:

- `image` numbers the attacked images of a network from 0. Equal numbers mean the same image for all attacks and seeds.
- `success` is 1 if the attack fooled the model within the budget, else 0.
- `queries` is the number of queries to success. A failure has the budget there, and counts as that in a mean.

The table is that of `benchmarks/queries.py`: means and medians are over the images that any attack fools in any seed.
For bundled and packaged networks, Thrift and every rival in docs/benchmarks.md have the recorded means. SignHunter ran
on `pp-lcnet` for the CSV alone. `fashion` and `fashion-robust` were trained again, so their rows differ.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from itertools import groupby
from pathlib import Path

import numpy as np

from queries import SUMMARY_TITLES, Found, Setting, rows, summary

CSV = Path(__file__).parent / "results" / "queries-raw.csv"
NAME = re.compile(  # of a file that queries.py keeps
    r"(?P<network>[^,]+), .*eps (?P<eps>[\d.]+)(?P<goal>, targets \S+)?, budget (?P<budget>\d+), "
    r"\d+ from \d+, seed (?P<seed>\d+) - (?P<attack>.+)\.json"
)
ATTACKS = [*rows(Setting("any"), parts=False)]


@dataclass(frozen=True, order=True)
class Row:
    """The outcome of one attack on one image."""

    network: str
    eps: str
    budget: int
    attack: str
    seed: int
    image: int
    success: int
    queries: int


def read_folder(folder: Path) -> Iterator[Row]:
    """Yield the outcomes in the files of a folder."""
    measured: dict[tuple[str, str, int], str] = {}
    for file in sorted(folder.glob("*.json")):
        name = NAME.fullmatch(file.name)
        if name is None:
            raise SystemExit(f"{file} is not named as queries.py names its files")
        if name["attack"] not in ATTACKS or name["goal"]:
            continue
        network, attack, seed, budget = name["network"], name["attack"], int(name["seed"]), int(name["budget"])
        other = measured.setdefault((network, attack, seed), file.name)
        if other != file.name:
            raise SystemExit(f"{other!r} and {file.name!r} are of one network, attack and seed: keep one of them")
        eps = radius(name["eps"])
        for image, queries in enumerate(json.loads(file.read_text())["queries"]):
            spent = budget if queries is None else queries
            yield Row(network, eps, budget, attack, seed, image, int(queries is not None), spent)


def radius(eps: str) -> str:
    """Return the radius of a file name, which has four decimals, as n/255 if it is one."""
    steps = round(255 * float(eps))
    return f"{steps}/255" if f"{steps / 255:.4f}" == eps else f"{float(eps):g}"


def read_csv(path: Path) -> list[Row]:
    """Return the rows of a CSV."""
    with path.open(newline="") as file:
        _, *lines = csv.reader(file)
    return [
        Row(network, eps, int(budget), attack, int(seed), int(image), int(success), int(queries))
        for network, eps, budget, attack, seed, image, success, queries in lines
    ]


def write_csv(path: Path, outcomes: list[Row]) -> None:
    """Write rows as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in outcomes)


def found(outcomes: list[Row]) -> dict[str, Found]:
    """Return the outcomes of one network by attack, each by image and seed."""
    seeds: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in outcomes:
        seeds[row.attack][row.seed].append(row.queries if row.success else np.inf)
    tables = {attack: np.array([*each.values()]).T for attack, each in seeds.items()}
    return {attack: Found(tables[attack], tables[attack]) for attack in ATTACKS if attack in tables}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the outcomes of benchmarks/queries.py as CSV.")
    parser.add_argument("folder", type=Path, nargs="?", help="folder of outcomes; without it, only read the CSV")
    parser.add_argument("--csv", type=Path, default=CSV)
    given = parser.parse_args()
    if given.folder is not None:
        write_csv(given.csv, sorted(read_folder(given.folder)))
    print(f"| {' | '.join(SUMMARY_TITLES)} |\n|{'---|' * len(SUMMARY_TITLES)}")
    for network, group in groupby(read_csv(given.csv), lambda row: row.network):
        outcomes = [*group]
        setting = Setting(network, eps=float(Fraction(outcomes[0].eps)), budget=outcomes[0].budget)
        line = summary(setting, found(outcomes))
        if line is not None:
            print(line, flush=True)


if __name__ == "__main__":
    main()

"""Simulate how often attacks on random models decide wrongly, where the true loss is known.

    python benchmarks/random_search.py [--csv benchmarks/results/random-search.csv]

The simulations are those of `tests/core/test_random_search.py`, with an error rate of 0.05 and more trials. It takes
about a minute.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from parsimon.attacks.registry import parse_attack

sys.path.append(str(Path(__file__).parents[1] / "tests" / "core"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from test_random_search import NOISES, SIMULATED, Draw, Proposals, context_of, converse, erring, noisy

ERROR_RATE = 0.05
TRIALS = 10_000
STEP = 0.05  # by which a proposal changes its pixel
BUDGET = 80  # of the attacks that may end early

Row = dict[str, object]


def kept(draw: Draw, repeats: int = 1, **settings: float) -> float:
    """Return the share of trials in which a search keeps its only change."""
    attack = Proposals(1, **settings)  # type: ignore[arg-type]  # a pixel is a whole number
    for seed in range(TRIALS):
        converse(attack, context_of(ERROR_RATE, repeats=repeats), draw, seed)
    return float(sum(attack.accepted)) / TRIALS


def ended_early(name: str, probability: float) -> float:
    """Return the share of trials in which an attack ends before its budget; the model errs with this probability."""
    draw = partial(erring, probability=probability)
    ends = [
        converse(parse_attack(name), context_of(ERROR_RATE, budget=BUDGET), draw, seed)[0] for seed in range(TRIALS)
    ]
    return ends.count("exhausted") / TRIALS


def measured() -> Iterator[Row]:
    """Yield the rows of the file."""
    for name, draw in SIMULATED.items():
        yield {"event": "useless change kept", "case": name, "repeats": 1, "share": kept(draw)}
    for name in ("square", "random"):
        yield {"event": "early end", "case": name, "repeats": 1, "share": ended_early(name, 0.5)}
    for deviations, names, repeats in ((5, NOISES, 1), (1, ["gaussian"], 1), (1, ["gaussian"], 16)):
        for name in names:
            draw = partial(noisy, noise=NOISES[name], slope=deviations / STEP)
            share = kept(draw, repeats, pixel=0, step=STEP)
            yield {"event": f"improvement of {deviations} kept", "case": name, "repeats": repeats, "share": share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    rows: list[Row] = []
    for row in measured():
        rows.append({**row, "error_rate": ERROR_RATE, "trials": TRIALS})
        print(" | ".join(map(str, rows[-1].values())), flush=True)
    if given.csv is not None:
        with given.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()

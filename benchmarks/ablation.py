"""Measure what each part of Thrift is worth, and write benchmarks/results/thrift-ablation.csv.

    python benchmarks/ablation.py [--images 150] [--seeds 2] [--results FOLDER]

Every row is Thrift with one part switched off, on the same images and with the same seeds as Thrift. A mean is over the
images that any row fools, and a failure counts as the budget. The ratio is the mean over Thrift's, with a paired
bootstrap interval over images. Outcomes are kept in the folder, so that an interrupted measurement continues.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from parsimon.results.statistics import interval_of
from queries import PARTS, SETTINGS, Found, Setting, _ratio_of_means, measure

CSV = Path(__file__).parent / "results" / "thrift-ablation.csv"
NETWORKS = ("robust", "standard")
EPS = {"robust": "8/255", "standard": "4/255"}
BUDGET = 1000
WHOLE = "Thrift"
COLUMNS = (
    *("network", "eps", "budget", "images", "fooled", "seeds", "without"),
    *("mean", "ratio", "ratio_low", "ratio_high", "median", "success"),
)


def measured(setting: Setting, found: dict[str, Found]) -> Iterator[dict[str, str]]:
    """Yield a row of the file for Thrift, and one per part that is switched off."""
    fooled = np.any([np.isfinite(each.queries).any(axis=1) for each in found.values()], axis=0)
    capped = {row: np.minimum(each.queries, setting.budget)[fooled] for row, each in found.items()}
    for row, each in found.items():
        numbers = {"mean": f"{capped[row].mean():.1f}", "median": f"{np.median(capped[row]):g}"}
        if row != WHOLE:
            pairs = np.stack([capped[row].mean(axis=1), capped[WHOLE].mean(axis=1)], axis=1)
            low, high = interval_of(pairs, _ratio_of_means) or (np.nan, np.nan)
            ratio = capped[row].mean() / capped[WHOLE].mean()
            numbers |= {"ratio": f"{ratio:.2f}", "ratio_low": f"{low:.2f}", "ratio_high": f"{high:.2f}"}
        yield {
            "network": setting.model,
            "eps": EPS[setting.model],
            "budget": str(setting.budget),
            "images": str(len(fooled)),
            "fooled": str(fooled.sum()),
            "seeds": str(each.queries.shape[1]),
            "without": row.removeprefix(f"{WHOLE}, ").removesuffix("=false") if row != WHOLE else "",
            "success": f"{100 * np.isfinite(each.queries).mean():.1f}",
            **numbers,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what each part of Thrift is worth.")
    parser.add_argument("--images", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds")
    parser.add_argument("--results", type=Path, default=Path("ablation"), help="folder for outcomes")
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    only = [WHOLE, *(f"{WHOLE}, {part}=false" for part in PARTS)]
    rows: list[dict[str, str]] = []
    for network in NETWORKS:
        setting = replace(SETTINGS[network], budget=BUDGET)
        print(setting, flush=True)
        found = measure(setting, given.images, 0, given.seeds, True, given.results, only)
        rows += measured(setting, found)
    CSV.parent.mkdir(exist_ok=True)
    with CSV.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

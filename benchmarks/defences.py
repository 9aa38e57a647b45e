"""Measure what each defence buys on the bundled networks, in robust accuracy and queries.

    python benchmarks/defences.py robust --out results --images 200 --budget 500
    python benchmarks/defences.py standard --out published --budget 2500 --defence aaa:cifar10 \\
        --attack thrift --attack square,p_init=0.05

The second command is for the published claim on AAA. `--attack` replaces the attacks of all attackers who see scores.

Each attacker is a stored run below the folder, so a second call continues or only prints. The undefended runs are
shared by all defences. The output is Markdown. `--csv` appends the same numbers to a file: benchmarks/defences.csv, or
benchmarks/results/defences-published.csv for the second command. In these files, the rows of attack `(all)` have the
accuracy that several attacks together leave: those without the defence, and all attackers behind it.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from statistics import fmean, median

from parsimon import runs
from parsimon.results.defence import ALL, ALL_ATTACKERS, NO_DEFENCE, DefenceReport
from parsimon.results.result import Comparison
from parsimon.results.verdict import Verdict
from parsimon.runs.config import RunConfig
from parsimon.runs.defences import Attacker, assess
from parsimon.runs.evaluation import ENSEMBLE

DEFENCES = (
    "noise:cifar10",
    "resize-pad",
    "jpeg",
    "bit-depth:cifar10",
    "round",
    "aaa:cifar10",
    "aaa:cifar10-sine",
    "blacklight:cifar10",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=("robust", "standard"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--eps", default="8/255")
    parser.add_argument("--defence", action="append", help="only this one; may be given more than once")
    parser.add_argument("--attack", action="append", help="instead of Thrift and Square; may be given more than once")
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    for defence in given.defence or DEFENCES:
        config = RunConfig(
            model=given.network,
            images=given.images,
            budget=given.budget,
            eps=given.eps,
            selection="any",
            defence=(defence,),
        ).replace(progress=False)

        def run(attacker: Attacker, settings: RunConfig, defence: str = defence) -> Comparison:
            place = given.out / ("undefended" if settings.defence is None else defence.replace(":", "-"))
            if given.attack and settings.attacks == ENSEMBLE:
                settings = settings.replace(attacks=tuple(given.attack))
            return runs.run(settings, place / attacker.slug)

        report = assess(config, run)
        for table in report.tables():
            print(table.markdown(), flush=True)
            print()
        if given.csv is not None:
            append(given.csv, config, report)


def append(path: Path, config: RunConfig, report: DefenceReport) -> None:
    """Append one row per attacker and attack, one for all attacks without the defence, and one for all behind it."""
    same = {
        "network": config.model,
        "defence": report.defence,
        "eps": config.eps,
        "images": config.images,
        "budget": config.budget,
    }
    rows: list[dict[str, object]] = []
    for attacker, run in report.attackers.items():
        for name, result in run.results.items():
            verdict, summary = Comparison({name: result}).verdict, result.summary
            row: dict[str, object] = {
                **same,
                "attacker": attacker,
                "attack": name,
                "clean_accuracy": result.clean.accuracy,
                **_accuracy(verdict),
                "mean_queries": summary.mean,
                "mean_of_all": summary.mean_of_all,
                "attacks_flagged": None if summary.flagged is None else len(summary.first_flags) / summary.attacked,
                "median_first_flag": median(summary.first_flags) if summary.first_flags else None,
                "fooled_unflagged": None
                if summary.flagged is None
                else sum(each.success and each.first_flag is None for each in result.outcomes),
                "mean_cost": fmean(report.cost(each) for each in result.outcomes),
            }
            rows.append(row)
    for attacker, verdict in ((NO_DEFENCE, report.undefended.verdict), (ALL_ATTACKERS, report.verdict)):
        rows.append({**same, "attacker": attacker, "attack": ALL, **_accuracy(verdict)})
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        if new:
            writer.writeheader()
        writer.writerows(rows)


def _accuracy(verdict: Verdict) -> dict[str, float]:
    assert verdict.interval is not None, "a benchmark is finished"
    return {"robust_accuracy": verdict.value, "robust_low": verdict.interval[0], "robust_high": verdict.interval[1]}


if __name__ == "__main__":
    main()

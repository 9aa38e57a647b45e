"""Run the experiments of an exhibit of the paper, and show our results beside the paper's.

Runs are stored under a hash of their configuration: repeating the command continues them, and exhibits share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from parsimon import runs
from parsimon.attacks.registry import attack_rows
from parsimon.errors import require
from parsimon.experiments import Exhibit, PlannedRun
from parsimon.experiments.surrogate import OverPixels, climb
from parsimon.experiments.views import FinishedRun, View, view
from parsimon.report.figures import save
from parsimon.results.result import Comparison
from parsimon.results.table import write_tables

_SCALE = (("images", "images"), ("budget", "queries"))


class Reproduced(NamedTuple):
    """An exhibit and its folder."""

    view: View
    folder: Path


def reproduce(exhibit: Exhibit, out: Path, changes: Mapping[str, Any], **execution: Any) -> Reproduced | None:
    """Run an exhibit's missing runs and write its tables and figures; return None after an interruption.

    Args:
        exhibit: The exhibit of the paper.
        out: The folder of all runs and exhibits.
        changes: Settings that differ from the paper's protocol, such as images and budget.
        execution: As for `parsimon.attack`. Figures 1 and 2 always run in this process, since their searches keep their
            best points there.
    """
    if exhibit.shows != "table":
        require("matplotlib", "plot")  # fail before days of work
    all_done = []
    for planned in exhibit.runs:
        scaled = replace(planned, spec=planned.spec.replace(**changes))
        folder = out / "runs" / f"{planned.name}-{scaled.spec.hash}"
        done = _climbed(exhibit, scaled, folder, execution) if exhibit.climbs else _stored(scaled, folder, execution)
        if done is None:
            return None
        all_done.append(done)
    shown = view(exhibit, all_done)
    folder = out / "-".join([exhibit.name, *(f"{changes[name]}-{what}" for name, what in _SCALE if name in changes)])
    folder.mkdir(parents=True, exist_ok=True)
    write_tables(shown.tables, folder)
    for name, figure in shown.figures.items():
        for suffix in ("pdf", "png"):
            save(figure, folder / f"{name}.{suffix}")
    return Reproduced(shown, folder)


def _stored(planned: PlannedRun, folder: Path, execution: Mapping[str, Any]) -> FinishedRun | None:
    comparison = runs.run(planned.spec, folder, **execution)
    if comparison.stopped:
        return None
    return FinishedRun(planned, comparison, {}, runs.classes_of(folder))


def _climbed(exhibit: Exhibit, planned: PlannedRun, folder: Path, execution: Mapping[str, Any]) -> FinishedRun | None:
    attacks = attack_rows(planned.spec.attacks)
    if exhibit.shows == "differences":
        attacks |= {"Local search": OverPixels(local=True), "Greedy insertion": OverPixels(local=False)}
    data = runs.data_of(planned.spec)
    here = {name: value for name, value in execution.items() if name not in ("workers", "ray")}
    climbed = climb(planned.spec, attacks, data, folder, **here)
    comparison = Comparison({name: each.result for name, each in climbed.items()})
    if comparison.stopped:
        return None
    return FinishedRun(planned, comparison, climbed, data.classes)

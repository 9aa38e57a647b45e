"""`parsimon reproduce`: run what an exhibit of the paper needs, and show it with ours beside the paper's.

Every run is stored under its spec: the same command goes on where it was left off, exhibits of one run share it, and a
run of another scale lies beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from parsimon import runs
from parsimon.attacks.registry import attack_rows
from parsimon.errors import require
from parsimon.experiments import Exhibit, Planned
from parsimon.experiments.surrogate import OverPixels, climb
from parsimon.experiments.views import Done, View, view
from parsimon.report.figures import save
from parsimon.results.result import Comparison
from parsimon.results.table import write_tables

_SCALE = (("images", "images"), ("budget", "queries"))


class Reproduced(NamedTuple):
    """An exhibit, and where it was written."""

    view: View
    folder: Path


def reproduce(exhibit: Exhibit, out: Path, changes: Mapping[str, Any], **execution: Any) -> Reproduced | None:
    """Run what is missing of an exhibit, and write its tables and figures; None after an interruption.

    Args:
        exhibit: Of the paper.
        out: Where all runs and exhibits are kept.
        changes: What is to differ from the paper's protocol: settings of `RunConfig`, such as images and budget.
        execution: Execution options, as for `parsimon.attack`. Figures 1 and 2 always run in this process, because
            their searches keep what they find in memory.
    """
    if exhibit.shows != "table":
        require("matplotlib", "plot")  # said now, not after days of work
    if exhibit.climbs:  # and ends by itself
        changes = {name: value for name, value in changes.items() if name != "budget"}
    all_done = []
    for planned in exhibit.runs:
        scaled = replace(planned, spec=planned.spec.replace(**changes))
        done = (
            _climbed(exhibit, scaled, execution.get("in_flight")) if exhibit.climbs else _stored(scaled, out, execution)
        )
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


def _stored(planned: Planned, out: Path, execution: Mapping[str, Any]) -> Done | None:
    folder = out / "runs" / f"{planned.name}-{planned.spec.hash}"
    comparison = runs.run(planned.spec, folder, **execution)
    if comparison.unfinished:
        return None
    return Done(planned, comparison, {}, runs.classes_of(folder))


def _climbed(exhibit: Exhibit, planned: Planned, in_flight: int | None) -> Done | None:
    attacks = attack_rows(planned.spec.attacks)
    if exhibit.shows == "differences":
        attacks |= {"Local search": OverPixels(local=True), "Greedy insertion": OverPixels(local=False)}
    data = runs.data_of(planned.spec)
    climbed = climb(planned.spec, attacks, data, in_flight)
    comparison = Comparison({name: each.result for name, each in climbed.items()})
    if comparison.unfinished:
        return None
    return Done(planned, comparison, climbed, data.classes)

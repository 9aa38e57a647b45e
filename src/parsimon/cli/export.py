"""`parsimon export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from parsimon import runs
from parsimon.cli.options import PathName, choice, options
from parsimon.cli.output import JSON, answer, counted
from parsimon.cli.verify import OWN_MODEL
from parsimon.errors import unknown_name
from parsimon.report.adversarial import Form, Row, export_adversarial
from parsimon.results.result import Comparison, Result
from parsimon.runs.audit import goals_of, stored_runs
from parsimon.runs.inputs import open_model_for


@click.command()
@click.argument("folder", type=PathName(), metavar="RUN")
@click.option(
    "--format",
    "form",
    type=choice(Form),
    default="both",
    show_default=True,
    help="8-bit PNG files, an npz archive of floats, or both; an index.csv comes with each.",
)
@click.option("--attack", metavar="NAME", help="Only this attack, by the name of its row. [default: all]")
@click.option("--out", type=PathName(), help="Folder to write; it must not hold files. [default: adversarial in RUN]")
@options(OWN_MODEL, JSON)
def export(folder: Path, form: Form, attack: str | None, out: Path | None, model: str | None) -> None:
    """Write the adversarial images of a run or an evaluation as files.

    Rounding to the 8 bits of a PNG file may leave the ball or undo a success. So each PNG file is checked again, with
    one query of the model. The index says which are in the ball, and which still fool the model.

    \b
    parsimon export parsimon-results/2026-11-16-024905
    parsimon export results --format png --attack thrift --out pictures
    """
    target = out or folder / "adversarial"
    comparisons, missing = stored_runs(folder)
    written = []
    for each, comparison in comparisons.items():
        chosen = _chosen(comparison, attack)
        place = target if len(comparisons) == 1 else target / each.relative_to(folder)
        config = runs.config_of(each)
        opened = None if form == "npz" else open_model_for(config, comparison.first.images, model)
        rows = export_adversarial(chosen, goals_of(comparison, config), place, form, opened)
        written.append(_described(place, form, rows))
    document = {"run": str(folder), "exports": written, "missing": [*map(str, missing)]}
    answer(lambda: document, lambda: _print(written))
    for each in missing:
        print(f"warning: there is no run in {each}; it was deleted, or has not begun", file=sys.stderr)


def _chosen(comparison: Comparison, attack: str | None) -> dict[str, Result]:
    """Return the results to export."""
    if attack is None:
        return dict(comparison.results)
    chosen = {name: result for name, result in comparison.results.items() if name.lower() == attack.lower()}
    if not chosen:
        raise unknown_name("the run has no attack", attack, "It has", comparison.results)
    return chosen


def _described(folder: Path, form: Form, rows: list[Row]) -> dict[str, Any]:
    """Return what an export wrote, with the number of PNG files that pass each check; null without such files."""
    pictures = form != "npz"
    return {
        "folder": str(folder),
        "images": len(rows),
        "in_ball_as_png": sum(bool(row.in_ball_as_png) for row in rows) if pictures else None,
        "fools_as_png": sum(bool(row.fools_as_png) for row in rows) if pictures else None,
    }


def _print(written: list[dict[str, Any]]) -> None:
    for each in written:
        print(f"{counted(each['images'], 'adversarial image')}: {each['folder']}")
        if each["fools_as_png"] is not None:
            print(f"  As PNG: {each['in_ball_as_png']:,} in the ball, {each['fools_as_png']:,} fooling the model.")

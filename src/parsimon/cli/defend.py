"""`parsimon defend` and `defences`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from parsimon import runs
from parsimon.cli.listing import listed_source, print_description, print_lines, print_listing
from parsimon.cli.options import (
    BATCH_SIZE,
    DATA,
    DATA_IMAGES,
    DOWNLOAD,
    EIGHT_BIT,
    EPS,
    EXECUTION,
    FORMAT,
    MODEL,
    OUT,
    PREPROCESS,
    RANDOM,
    SCORES,
    SEED,
    GroupedCommand,
    options,
    take_execution,
)
from parsimon.cli.output import JSON, QUIET, Exit, answer, note_images
from parsimon.cli.present import RESULTS, print_tables
from parsimon.cli.run import ensure_inputs, results_folder
from parsimon.defences import DEFENCES
from parsimon.defences.registry import describe
from parsimon.report.export import write_results
from parsimon.results.defence import DefenceReport
from parsimon.results.table import Table, write_tables
from parsimon.runs.config import DEFAULTS, RunConfig
from parsimon.runs.defences import FLAG_PRICE, check_assessable, is_begun


@click.command(cls=GroupedCommand)
@options(MODEL, DATA, PREPROCESS, SCORES, *DATA_IMAGES, EPS)
@click.option("--budget", default=DEFAULTS.budget, show_default=True, help="Queries allowed per image and attack.")
@click.option(
    "--flag-price",
    default=FLAG_PRICE,
    show_default=True,
    help="Cost of a query that a detector flags, in queries.",
)
@options(EIGHT_BIT, *RANDOM, SEED, BATCH_SIZE, DOWNLOAD, *EXECUTION, OUT, FORMAT, JSON, QUIET)
@click.argument("defences", nargs=-1, required=True, metavar="DEFENCE...")
def defend(defences: tuple[str, ...], flag_price: float, out: Path | None, **settings: Any) -> None:
    """Measure what a defence buys, against attackers who do not know it and attackers who do.

    A DEFENCE is one of `parsimon defences`, with a preset after a colon and settings after commas. A query passes
    several defences in their order. Each attacker is a stored run: the same command with the same --out continues
    after an interruption. Pass --random only if the model is random without the defence.

    \b
    parsimon defend noise,sigma=0.02
    parsimon defend aaa:cifar10 --model standard --images 200 --budget 500
    parsimon defend blacklight:cifar10 --flag-price 1000
    parsimon defend jpeg,quality=50 bit-depth,bits=5 --model model.onnx --data images.npz
    """
    execution, form = take_execution(settings), settings.pop("form")
    download = settings.pop("download")
    shared = {name: value for name, value in settings.items() if name in RunConfig.__struct_fields__}
    config = RunConfig(defence=defences, selection="any", **shared).replace(**execution)
    check_assessable(config, flag_price)
    folder = out if out is not None and is_begun(out) else results_folder(out)
    ensure_inputs([config], download=download)
    report = runs.assess_stored(config, folder, flag_price)
    note_images(config.images, len(report.undefended.first.labels), DEFAULTS.images)
    written = _write(report, folder)
    answer(lambda: _document(report, folder, written), partial(_print, report, form, written))
    if not report.finished:
        print(f"Unfinished: run the same command with --out {folder}", file=sys.stderr)
        sys.exit(Exit.INTERRUPTED)


@click.command()
@click.argument("name", required=False)
@JSON
def defences(name: str | None) -> None:
    """List all defences, or describe one: what it changes, its paper, presets and settings.

    \b
    parsimon defences
    parsimon defences aaa
    """
    if name is None:
        every = [describe(each) for each in DEFENCES]
        answer(lambda: {"defences": every}, partial(_list, every))
    else:
        one = describe(name)
        random = "random" if one["random"] else "not random"
        answer(lambda: one, partial(print_description, one, f"Changes {one['changes']}; {random}."))


def _list(every: list[dict[str, Any]]) -> None:
    rows = [(each["name"], each["changes"], "yes" if each["random"] else "no", *listed_source(each)) for each in every]
    print_listing(("name", "changes", "random", "paper", "presets"), [rows])
    print_lines("More about one: parsimon defences NAME. What it buys: parsimon defend NAME")


def _write(report: DefenceReport, folder: Path) -> list[Path]:
    results = {
        f"{attacker}: {name}": result
        for attacker, run in report.attackers.items()
        for name, result in run.results.items()
    }
    write_results(results, folder / RESULTS)
    return [folder / RESULTS, *write_tables(report.tables(), folder)]


def _print(report: DefenceReport, form: str, written: list[Path]) -> None:
    if form == "text":
        print(f"{report.headline()}\n")
    print_tables(report.tables(), form)
    if form == "text":
        print(f"Files: {', '.join(map(str, written))}")


def _document(report: DefenceReport, folder: Path, written: list[Path]) -> dict[str, Any]:
    """Return the report as a JSON document."""
    detection = report.detection_table()
    return {
        "folder": str(folder),
        "defence": report.defence,
        "finished": report.finished,
        "robust_accuracy": report.verdict.as_dict(),
        "undefended_robust_accuracy": report.undefended.verdict.as_dict(),
        "undecided": None if report.chance is None else report.chance.undecided,
        "rows": _rows(report.table()),
        "detection": None if detection is None else _rows(detection),
        "warnings": list(report.warnings),
        "files": [*map(str, written)],
    }


def _rows(table: Table) -> list[dict[str, Any]]:
    """Return a table as one mapping per row, with the text and the interval of each cell."""
    return [
        {
            header: {"text": cell.text, "interval": cell.interval}
            for header, cell in zip(table.headers, row, strict=True)
        }
        for group in table.groups
        for row in group
    ]

"""`parsimon reproduce`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from parsimon.cli.completion import DATA_NAMES, EXHIBIT_NAMES, MODEL_NAMES
from parsimon.cli.listing import print_listing
from parsimon.cli.options import (
    BATCH_SIZE,
    DOWNLOAD,
    EXECUTION,
    FORMAT,
    PREPROCESS,
    PathName,
    choice,
    options,
    take_execution,
)
from parsimon.cli.output import JSON, QUIET, Exit, answer, as_json, note
from parsimon.cli.present import print_tables
from parsimon.cli.run import ensure_inputs
from parsimon.core.threat import Scores
from parsimon.errors import require
from parsimon.experiments import Exhibit, exhibit, exhibits
from parsimon.experiments.reproduce import reproduce as reproduce_exhibit
from parsimon.experiments.views import CannotDrawError


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=EXHIBIT_NAMES)
@click.option("--images", type=click.IntRange(1), help="Number of images to attack. [default: the paper's]")
@click.option("--budget", type=click.IntRange(1), help="Query budget per image. [default: the paper's]")
@click.option(
    "--model",
    shell_complete=MODEL_NAMES,
    help="As for `parsimon run`. [default: a network of the zoo]",
)
@click.option("--data", shell_complete=DATA_NAMES, help="As for `parsimon run`. [default: images of the zoo]")
@click.option("--scores", type=choice(Scores), help="Kind of scores that the model returns. [default: logits]")
@options(PREPROCESS, BATCH_SIZE, *EXECUTION, DOWNLOAD, FORMAT, JSON, QUIET)
@click.option(
    "--out",
    type=PathName(),
    default=Path("parsimon-results/paper"),
    show_default=True,
    help="Folder for all runs and exhibits.",
)
def reproduce(names: tuple[str, ...], out: Path, download: bool, form: str, **settings: Any) -> None:
    """Reproduce tables and figures of the paper, with our results beside them. Without a name, list them.

    The default is the paper's protocol on the zoo's networks and images. For full scale give --data imagenet:FOLDER,
    and for Table 1 also --model; for a first look, few images and a small budget. Runs are stored: repeat the command
    to continue, and exhibits of the same run share it. An exhibit that cannot be drawn, such as examples without a
    success, does not stop the others. It is reported at the end, with exit code 2.

    \b
    parsimon reproduce
    parsimon reproduce table1 figure5a --images 100 --budget 2000
    parsimon reproduce table2 --images 10 --budget 1000 --download
    parsimon reproduce table4 --data imagenet:/data/ILSVRC2012/val
    """
    if not names:
        answer(lambda: {"exhibits": [_fact(each) for each in exhibits().values()]}, _list)
        return
    execution = take_execution(settings)
    changes = {key: value for key, value in settings.items() if value is not None}
    chosen = [exhibit(name) for name in (exhibits() if names == ("all",) else names)]
    if any(each.shows != "table" for each in chosen):
        require("matplotlib", "plot")
    ensure_inputs([planned.spec.replace(**changes) for each in chosen for planned in each.runs], download=download)
    written: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for each in chosen:
        note(each.title)
        try:
            reproduced = reproduce_exhibit(each, out, changes, **execution)
        except CannotDrawError as error:  # the others can still be made
            failed.append({"name": each.name, "error": str(error)})
            continue
        if reproduced is None:
            unfinished = "Unfinished: repeat the command to continue."
            answer(lambda: {"exhibits": written, "failed": failed, "finished": False}, partial(print, unfinished))
            sys.exit(Exit.INTERRUPTED)
        files = sorted(reproduced.folder.iterdir())
        tables = [asdict(table) for table in reproduced.view.tables]
        written.append({**_fact(each), "tables": tables, "files": [*map(str, files)]})
        if not as_json():
            print_tables(reproduced.view.tables, form)
            listed = ", ".join(file.name for file in files)
            print(f"Written to {reproduced.folder}: {listed}\n", file=sys.stdout if form == "text" else sys.stderr)
    answer(lambda: {"exhibits": written, "failed": failed, "finished": True}, lambda: None)
    for fact in failed:
        print(f"error: {fact['error']}", file=sys.stderr)
    if failed:
        sys.exit(Exit.BAD_INPUT)


def _fact(each: Exhibit) -> dict[str, Any]:
    queries = sum(planned.queries for planned in each.runs)
    return {"name": each.name, "title": each.title, "queries": queries, "model": each.runs[0].spec.model}


def _list() -> None:
    facts = [_fact(each) for each in exhibits().values()]
    rows = [(each["name"], each["title"].partition(": ")[2], f"{each['queries']:,}", each["model"]) for each in facts]
    print_listing(("name", "what it shows", "queries", "model"), [rows], right=["queries"])
    print("Queries: estimated total at the paper's full protocol. Exhibits share runs:")
    print("after table1, figure5a costs nothing. `all` reproduces everything.")
    print("A small run: parsimon reproduce table1 --images 30 --budget 1000")

"""`parsimon init`."""

from __future__ import annotations

from pathlib import Path

import click

from parsimon.cli.options import PathName
from parsimon.cli.output import JSON, answer
from parsimon.errors import InputError
from parsimon.runs.template import evaluation_template, run_template


@click.command()
@click.argument("file", required=False, type=PathName())
@click.option("--evaluation", is_flag=True, help="Write a file for `parsimon evaluate` instead of `parsimon run`.")
@JSON
def init(file: Path | None, evaluation: bool) -> None:
    """Write a commented file with every setting and its default. [default: run.toml, or evaluation.toml]

    \b
    parsimon init
    parsimon init experiment.toml
    parsimon init --evaluation
    """
    command = "evaluate" if evaluation else "run"
    path = file or Path("evaluation.toml" if evaluation else "run.toml")
    try:
        with path.open("x", encoding="utf-8") as opened:
            opened.write(evaluation_template() if evaluation else run_template())
    except FileExistsError:
        raise InputError(f"{path} is there already; choose another name") from None
    answer(lambda: {"file": str(path)}, lambda: print(f"{path}\nEdit it, then: parsimon {command} {path}"))

"""`parsimon resume`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from parsimon import runs
from parsimon.cli import evaluate
from parsimon.cli.options import EXECUTION, PathName, options, take_execution
from parsimon.cli.present import Output
from parsimon.cli.run import OUTPUT, TRACK, tracked_run
from parsimon.cli.show import finish
from parsimon.errors import InputError


@click.command()
@options(*EXECUTION, TRACK, *OUTPUT)
@click.argument("folder", type=PathName())
def resume(folder: Path, track: tuple[str, ...], **settings: Any) -> None:
    """Resume a run or an evaluation where it stopped, in the middle of an image if need be.

    It classifies the clean images again, and repeats only model calls whose responses were not stored. No query is
    charged twice. To read a finished run, use `parsimon show`.
    """
    execution, output = take_execution(settings), Output.of(settings)
    if not runs.is_evaluation(folder):
        start = partial(runs.resume, folder, **execution)
        finish(tracked_run(start, runs.config_of(folder), folder, track), folder, output)
    if track:
        raise InputError("an evaluation is not tracked: leave out track", argument="track")
    evaluate.finish(runs.resume_evaluation(folder, **execution), folder, output)

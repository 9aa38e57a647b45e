"""`parsimon check`."""

from __future__ import annotations

import sys

import click
import numpy as np
from rich.console import Console
from rich.markup import escape

from parsimon import checks
from parsimon.cli.options import DATA, MODEL, PREPROCESS, SCORES, options
from parsimon.data import open_data_for
from parsimon.oracles import as_oracle
from parsimon.threat import Scores, Threat

BAD_INPUT = 2  # as click has it


@click.command()
@options(MODEL, DATA, PREPROCESS, SCORES)
@click.option("--batch-size", default=64, show_default=True, help="Images in a model call.")
def check(model: str, data: str, preprocess: str | None, scores: Scores, batch_size: int) -> None:
    """Check a model and its data before attacking it: ranges, labels, determinism, batches, accuracy."""
    opened = open_data_for(model, data, preprocess)
    oracle = as_oracle(model)
    threat = Threat(1 / 255, scores=scores, eight_bit=getattr(oracle, "eight_bit_only", False))
    marks = {"ok": "[green]ok  [/]", "note": "[yellow]note[/]", "error": "[red]error[/]"}
    failed = False
    for finding in checks.inspect(oracle, opened.images, opened.labels.astype(np.intp), threat, batch_size):
        Console().print(
            f"{marks[finding.verdict]} [bold]{finding.name}[/]: {escape(finding.sentence)}", highlight=False
        )
        failed |= finding.verdict == "error"
    sys.exit(BAD_INPUT if failed else 0)

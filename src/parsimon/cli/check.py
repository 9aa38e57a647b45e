"""`parsimon check`."""

from __future__ import annotations

import sys

import click
import numpy as np
from rich.console import Console
from rich.markup import escape

from parsimon.cli.options import DATA, MODEL, PREPROCESS, SCORES, options
from parsimon.cli.output import JSON, Exit, answer, as_json, in_shell
from parsimon.core.threat import Scores, Threat
from parsimon.models import as_model
from parsimon.runs import preflight
from parsimon.runs.config import RunConfig
from parsimon.runs.inputs import open_data_for

_MARKS = {"ok": "[green]ok  [/]", "note": "[yellow]note[/]", "error": "[red]error[/]"}


@click.command()
@options(MODEL, DATA, PREPROCESS, SCORES)
@click.option("--batch-size", default=64, show_default=True, help="Number of images in a batch.")
@JSON
@click.pass_context
def check(
    context: click.Context, /, model: str, data: str, preprocess: str | None, scores: Scores, batch_size: int
) -> None:
    """Check a model and its data before an attack: ranges, labels, determinism, batches, accuracy.

    \b
    parsimon check --model model.onnx --data images.npz
    parsimon check --model mypackage.models:build --data folder:pictures --scores probabilities
    """
    RunConfig(batch_size=batch_size)  # refuses what no run accepts
    opened = open_data_for(model, data, preprocess)
    oracle = as_model(model)
    threat = Threat(1 / 255, scores=scores, eight_bit=oracle.eight_bit_only)
    found = preflight.inspect(oracle, opened.images, opened.labels.astype(np.intp), threat, batch_size)
    findings: list[dict[str, str]] = []
    for finding in found:  # print each one as soon as it is known
        sentence = in_shell(finding.sentence, finding.argument, context.command)
        findings.append({"name": finding.name, "verdict": finding.verdict, "sentence": sentence})
        if not as_json():
            mark = _MARKS[finding.verdict]
            Console().print(f"{mark} [bold]{finding.name}[/]: {escape(sentence)}", highlight=False)
    failed = any(finding["verdict"] == "error" for finding in findings)
    answer(lambda: {"attackable": not failed, "findings": findings}, lambda: None)
    sys.exit(Exit.BAD_INPUT if failed else Exit.DONE)

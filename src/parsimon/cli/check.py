"""`parsimon check`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from parsimon.cli.completion import MODEL_NAMES
from parsimon.cli.options import ALLOW_RANDOM, DATA, DEFENCE, MODEL, PREPROCESS, SCORES, given_settings, options
from parsimon.cli.output import JSON, Exit, answer, as_json, in_shell
from parsimon.cli.streams import print_rich
from parsimon.errors import InputError
from parsimon.models import as_model
from parsimon.runs.config import RunConfig
from parsimon.runs.findings import BATCH_SIZE, MARKS, Findings, find
from parsimon.runs.inputs import open_data_for

_COLOURS = {"ok": "green", "note": "yellow", "error": "red"}


@click.command()
@click.argument("name", required=False, metavar="[MODEL]", shell_complete=MODEL_NAMES)
@options(MODEL, DATA, PREPROCESS, SCORES, DEFENCE, ALLOW_RANDOM)
@click.option("--batch-size", default=BATCH_SIZE, show_default=True, help="Number of images in a batch.")
@JSON
@click.pass_context
def check(
    context: click.Context, /, name: str | None, model: str, data: str, preprocess: str | None, **settings: Any
) -> None:
    """Check a model and its data before an attack: ranges, labels, determinism, batches, accuracy.

    \b
    parsimon check model.onnx --data images.npz
    parsimon check mypackage:build --data folder:pictures --scores probabilities
    parsimon check --model mypackage:dropout --data images.npz --random
    """
    if name is not None:
        if "model" in given_settings(context, ("model",)):
            raise InputError(f"name one model, with --model or without it; got {model} and {name}")
        model = name
    config = RunConfig(**settings)
    opened = open_data_for(model, data, preprocess)
    findings = Findings()
    for finding in find(as_model(model), opened.images, opened.labels, config):
        findings.append(replace(finding, sentence=in_shell(finding.sentence, finding.argument, context.command)))
        if not as_json():  # print each one as soon as it is known
            mark = f"[{_COLOURS[finding.verdict]}]{MARKS[finding.verdict]}[/]"
            line = f"{mark} [bold]{finding.name}[/]: {escape(findings[-1].sentence)}"
            print_rich(Console(highlight=False), line)
    facts = [{"name": each.name, "verdict": each.verdict, "sentence": each.sentence} for each in findings]
    answer(lambda: {"attackable": findings.attackable, "findings": facts}, lambda: None)
    sys.exit(Exit.DONE if findings.attackable else Exit.BAD_INPUT)

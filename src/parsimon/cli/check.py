"""`parsimon check`."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click
import numpy as np
from rich.console import Console
from rich.markup import escape

from parsimon.cli.options import DATA, MODEL, PREPROCESS, SCORES, options
from parsimon.cli.output import JSON, Exit, answer
from parsimon.core.threat import Scores, Threat
from parsimon.models import as_model
from parsimon.runs import preflight
from parsimon.runs.inputs import open_data_for
from parsimon.runs.settings import check_settings

_MARKS = {"ok": "[green]ok  [/]", "note": "[yellow]note[/]", "error": "[red]error[/]"}


@click.command()
@options(MODEL, DATA, PREPROCESS, SCORES, JSON)
@click.option("--batch-size", default=64, show_default=True, help="Images in a batch.")
def check(model: str, data: str, preprocess: str | None, scores: Scores, batch_size: int) -> None:
    """Check a model and its data before attacking it: ranges, labels, determinism, batches, accuracy."""
    check_settings(batch_size=batch_size)
    opened = open_data_for(model, data, preprocess)
    oracle = as_model(model)
    threat = Threat(1 / 255, scores=scores, eight_bit=oracle.eight_bit_only)
    found = preflight.inspect(oracle, opened.images, opened.labels.astype(np.intp), threat, batch_size)
    findings = []

    def text() -> None:
        for finding in found:  # each as soon as it is there
            findings.append(finding)
            mark, sentence = _MARKS[finding.verdict], escape(finding.sentence)
            Console().print(f"{mark} [bold]{finding.name}[/]: {sentence}", highlight=False)

    def document() -> dict[str, object]:
        findings.extend(found)
        return {"attackable": not _failed(findings), "findings": [asdict(finding) for finding in findings]}

    answer(document, text)
    sys.exit(Exit.BAD_INPUT if _failed(findings) else Exit.DONE)


def _failed(findings: list[preflight.Finding]) -> bool:
    return any(finding.verdict == "error" for finding in findings)

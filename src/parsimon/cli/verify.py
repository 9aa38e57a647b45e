"""`parsimon verify`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from parsimon import runs
from parsimon.cli.completion import MODEL_NAMES
from parsimon.cli.options import FORMAT, PathName, options
from parsimon.cli.output import JSON, Exit, answer
from parsimon.cli.present import print_tables
from parsimon.results.table import Cell, Table
from parsimon.results.text import radius_text
from parsimon.runs.audit import SIGNIFICANCE, RunAudit

OWN_MODEL = click.option(
    "--model",
    shell_complete=MODEL_NAMES,
    help="Your own copy of the model, as for `parsimon run`. [default: the one that the run names]",
)


@click.command()
@click.argument("folder", type=PathName(), metavar="RUN")
@options(OWN_MODEL, FORMAT, JSON)
def verify(folder: Path, model: str | None, form: str) -> None:
    """Check the adversarial images of a run or an evaluation, so that its table need not be trusted.

    Each stored adversarial image is made again and queried once. It must lie in the ball and in [0, 1], and fool the
    model. If one does not, or if a run of an evaluation is missing, the exit code is 3. Without any image to check it
    is 2. On a random model, an image is drawn as often as in the run. It fails only if significantly fewer draws err.

    \b
    parsimon verify parsimon-results/2026-11-16-024905
    parsimon verify theirs --model my-copy.onnx
    """
    audits = runs.verify(folder, model)
    holds = all(audit.holds for audit in audits)
    document = {"run": str(folder), "holds": holds, "runs": [_described(audit) for audit in audits]}
    answer(lambda: document, partial(print_tables, [_table(audits)], form))
    for reason in _reasons(audits):
        Console(stderr=True).print(f"[red]error[/]: {escape(reason)}", highlight=False, soft_wrap=True)
    sys.exit(Exit.DONE if holds else Exit.BELOW_GATE)


def _reasons(audits: list[RunAudit]) -> list[str]:
    """Return why the check is not passed."""
    failed = any(each.failed for audit in audits for each in audit.attacks.values())
    return [
        *(["some successes do not hold"] * failed),
        *(
            f"{audit.model} at eps {radius_text(audit.eps)} is not verified: there is no run in {audit.folder}; it was "
            "deleted, or has not begun"
            for audit in audits
            if audit.missing
        ),
    ]


def _described(audit: RunAudit) -> dict[str, Any]:
    return {
        "run": str(audit.folder),
        "model": audit.model,
        "eps": audit.eps,
        "missing": audit.missing,
        "unfinished": audit.unfinished,
        "attacks": [
            {
                "name": name,
                "successes": each.queried,
                "held": each.held,
                "outside": each.outside,
                "not_fooled": each.not_fooled,
                "undecided": each.undecided,
                "draws": each.draws or None,
            }
            for name, each in audit.attacks.items()
        ],
    }


def _table(audits: list[RunAudit]) -> Table:
    draws = max((each.draws for audit in audits for each in audit.attacks.values()), default=0)
    headers = ["model and eps", "attack", "successes", "hold", *["undecided"] * bool(draws), "outside", "not fooled"]
    groups: list[list[list[Cell]]] = [
        [
            [
                Cell(f"{audit.model}, {radius_text(audit.eps)}"),
                Cell(name),
                *(Cell(f"{count:,}") for count in (each.queried, each.held)),
                *([Cell(f"{len(each.undecided):,}")] if draws else []),
                *(Cell(f"{len(images):,}") for images in (each.outside, each.not_fooled)),
            ]
            for name, each in audit.attacks.items()
        ]
        for audit in audits
        if not audit.missing
    ]
    outside = "Outside: not in the ball, or a pixel not in [0, 1]."
    notes = ["Hold: in the ball, in [0, 1], and the model is fooled.", outside]
    if draws:
        notes = [
            "Hold: in the ball, in [0, 1], and the model errs in more than half of the draws.",
            outside,
            "Not fooled: it errs in at most half, and in significantly fewer draws than in the run.",
            f"Test: Fisher's exact one, at {SIGNIFICANCE:g} over all attacked images of a run.",
            "Undecided: it errs in at most half, as chance may explain. Near one half, that is every second success.",
        ]
    missing = [f"{audit.model}, {radius_text(audit.eps)}" for audit in audits if audit.missing]
    if missing:
        notes.append(f"Not verified, since their runs are missing: {'; '.join(missing)}.")
    if left := sum(audit.unfinished for audit in audits):
        notes.append(f"Unfinished attacks on images, with nothing to verify yet: {left:,}.")
    how = f"made again and drawn {draws:,} times" if draws else "drawn again and queried once"
    return Table(f"Successes, each {how}", headers, groups, notes)

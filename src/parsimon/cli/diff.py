"""`parsimon diff`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from parsimon.cli.baseline import Against
from parsimon.cli.options import FORMAT, PathName, options
from parsimon.cli.output import JSON, Exit, answer
from parsimon.cli.present import GATE, Share, check_gate, print_tables
from parsimon.results.verdict import Gate

NO_WORSE_THAN = click.option(
    "--no-worse-than",
    type=Share(0, 1),
    metavar="DROP",
    help="Exit with code 3 if robust accuracy is lower than the old one by more than this: 0.02 allows two points. "
    "Unfinished runs never pass.",
)


@click.command()
@click.argument("old", type=PathName())
@click.argument("new", type=PathName())
@options(NO_WORSE_THAN, GATE, FORMAT, JSON)
def diff(old: Path, new: Path, no_worse_than: float | None, gate: Gate, form: str) -> None:
    """Compare two models, OLD and NEW, on the same images: which is more robust?

    Both are runs, or evaluations, whose radii are paired. Both must have the same data, attacks and budget. Only images
    with a known result in both count: attacked ones, and misclassified ones among them.

    \b
    parsimon diff before after
    parsimon diff before after --no-worse-than 0.02 --gate lower
    """
    check_gate(gate, no_worse_than=no_worse_than)
    against = Against(old, no_worse_than, gate)
    found = against.compare(new)
    answer(lambda: against.described(found), partial(print_tables, [found.table()], form))
    sys.exit(Exit.DONE if against.passes(found) else Exit.BELOW_GATE)

"""`parsimon diff`, and `--baseline` of other commands."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from parsimon import runs
from parsimon.cli.options import FORMAT, PathName, options
from parsimon.cli.output import JSON, Exit, answer
from parsimon.cli.show import GATE, Share, print_tables
from parsimon.results.diff import Diff
from parsimon.results.verdict import Gate

NO_WORSE_THAN = click.option(
    "--no-worse-than",
    type=Share(0, 1),
    metavar="DROP",
    help="Exit with code 3 if robust accuracy is lower than the old one by more than this: 0.02 allows two points. "
    "Unfinished runs never pass.",
)
BASELINE = click.option(
    "--baseline",
    type=PathName(),
    metavar="RUN",
    help="An earlier run or evaluation on the same images: also print the difference, as `parsimon diff` does.",
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
    against = Against(old, no_worse_than, gate)
    found = against.compare(new)
    answer(lambda: against.described(found), partial(print_tables, [found.table()], form))
    sys.exit(Exit.DONE if against.passes(found) else Exit.BELOW_GATE)


@dataclass(frozen=True)
class Against:
    """A baseline, and how much worse than it a model may be; None: no gate."""

    baseline: Path
    no_worse_than: float | None
    gate: Gate

    def compare(self, folder: Path) -> Diff:
        """Compare a stored run or evaluation with the baseline."""
        return runs.diff(self.baseline, folder)

    def described(self, found: Diff) -> dict[str, Any]:
        """Return the comparison as a JSON document."""
        failures = self._failures(found)
        gate = {"no_worse_than": self.no_worse_than, "gate": self.gate, "passed": not failures, "failures": failures}
        return {**found.as_dict(), "gate": None if self.no_worse_than is None else gate}

    def passes(self, found: Diff) -> bool:
        """Return whether the gate is passed; if not, say why on standard error."""
        failures = self._failures(found)
        for failure in failures:
            print(f"gate not passed: {failure}", file=sys.stderr)
        return not failures

    def _failures(self, found: Diff) -> list[str]:
        return [] if self.no_worse_than is None else found.failures(self.no_worse_than, self.gate)

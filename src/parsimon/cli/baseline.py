"""`--baseline`: compare a run or an evaluation with an earlier one, and fail if it is worse."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from parsimon import runs
from parsimon.cli.options import PathName
from parsimon.errors import InputError
from parsimon.results.diff import Diff
from parsimon.results.verdict import Gate
from parsimon.runs.config import RunConfig
from parsimon.runs.difference import check_baseline

BASELINE = click.option(
    "--baseline",
    type=PathName(),
    metavar="RUN",
    help="An earlier run or evaluation on the same images: also print the difference, as `parsimon diff` does.",
)


@dataclass(frozen=True)
class Against:
    """A baseline, and how much worse than it a model may be; None: no gate."""

    baseline: Path
    no_worse_than: float | None
    gate: Gate

    @classmethod
    def given(
        cls, baseline: Path | None, no_worse_than: float | None, gate: Gate, planned: Iterable[RunConfig]
    ) -> Against | None:
        """Return the baseline that was named, checked against the planned runs; None if there is none."""
        if baseline is None:
            if no_worse_than is not None:
                raise InputError("--no-worse-than needs --baseline, an earlier run or evaluation")
            return None
        if not runs.is_run(baseline) and not runs.is_evaluation(baseline):
            raise InputError(f"--baseline must be the folder of a run or an evaluation; got {baseline}")
        check_baseline(baseline, planned)
        return cls(baseline, no_worse_than, gate)

    def compare(self, folder: Path) -> Diff:
        """Compare a stored run or evaluation with the baseline."""
        return runs.diff(self.baseline, folder)

    def described(self, found: Diff) -> dict[str, Any]:
        """Return the comparison as a JSON document."""
        failures = self._failures(found)
        gate = {"no_worse_than": self.no_worse_than, "by": self.gate, "passed": not failures, "failures": failures}
        return {**found.as_dict(), "gate": None if self.no_worse_than is None else gate}

    def passes(self, found: Diff) -> bool:
        """Return whether the gate is passed; if not, say why on standard error."""
        failures = self._failures(found)
        for failure in failures:
            print(f"gate not passed: {failure}", file=sys.stderr)
        return not failures

    def _failures(self, found: Diff) -> list[str]:
        return [] if self.no_worse_than is None else found.failures(self.no_worse_than, self.gate)

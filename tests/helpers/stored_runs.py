"""Small stored runs: a finished one, and one that Ctrl-C interrupted with unfinished images."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from parsimon import runs
from parsimon.core.engine import Step
from parsimon.results.result import Comparison
from parsimon.runs.config import RunConfig

OLD = Path(__file__).parent / "runs-0.2"  # by version 0.2, with data and model
SPEC = RunConfig(attacks=("square", "bandits"), model="sine_model:build", data="data.npz", eps="0.05", budget=60)


def make(folder: Path) -> None:
    """Store both runs in the working folder, as the README beside those of version 0.2 describes."""

    def interrupt(attack: str, images: int, step: Step) -> None:  # noqa: ARG001
        if attack == "Bandits" and step.counters.ended >= 3:
            os.kill(os.getpid(), signal.SIGINT)

    for name in ("data.npz", "sine_model.py"):
        shutil.copy(OLD / name, folder)
    runs.run(SPEC, folder / "finished")
    runs.run(SPEC, folder / "interrupted", in_flight=4, watch=interrupt)


@contextmanager
def stored() -> Iterator[Path]:
    """Make the runs in a new working folder, beside their data and their model."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        make(folder)
        try:
            yield folder
        finally:
            sys.modules.pop("sine_model", None)


def described(comparison: Comparison) -> dict[str, Any]:
    """Return everything in a run that must be read back exactly."""
    return {
        name: (
            [(outcome, outcome.confidence) for outcome in result.outcomes],
            (result.counters.queries, result.counters.traffic, result.verification, result.budget, result.threat),
            [each.tolist() for each in (result.labels, result.clean.predicted)],
            [result.clean.confidence_of(index) for index in range(len(result.labels))],
            (result.clean.classes, result.clean.backend, result.clean.remarks),
        )
        for name, result in comparison.results.items()
    }

"""Runs in the tools that people track experiments with: one module per tool.

During a run, a tracker receives each attack's success and finished images against charged queries. At the end it
receives the success curves, the tables and a gallery. A tracker that fails is reported once and never harms the run.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parsimon.core.engine import Step
from parsimon.errors import InputError, did_you_mean, first_line, quote
from parsimon.report.picture import as_rgb, caption, triptych
from parsimon.results.result import Comparison
from parsimon.results.statistics import curve
from parsimon.results.table import Table

FORMS = {
    "tensorboard[:FOLDER]": "event files, in the run's folder unless another is named",
    "wandb[:PROJECT]": "Weights & Biases, offline unless WANDB_MODE says otherwise",
}

_INTERVAL = 1.0  # seconds between two points of a live curve
_PICTURES = 24  # per attack


class Tracker(Protocol):
    """One tool."""

    def progress(self, attack: str, queries: int, values: Mapping[str, float]) -> None:
        """Record an attack's progress after that many charged queries."""

    def curve(self, attack: str, queries: Sequence[int], shares: Sequence[float]) -> None:
        """Record the share of images fooled within each number of queries."""

    def table(self, name: str, table: Table) -> None:
        """Record a table of results."""

    def picture(self, attack: str, pixels: NDArray[np.uint8], caption: str) -> None:
        """Record original, perturbation and adversarial image side by side (rows, columns, 3)."""

    def close(self) -> None:
        """Write everything that is not written yet."""


def open_tracker(text: str, folder: Path, spec: Mapping[str, Any]) -> Tracker:
    """Return the tracker named by text like `tensorboard`, `tensorboard:logs` or `wandb:my-project`."""
    name, _, place = text.partition(":")
    if name not in ("tensorboard", "wandb"):
        hint = did_you_mean(name, ("tensorboard", "wandb"))
        raise InputError(f"there is no tracker {quote(name)}{hint or ':'} choose one of {', '.join(FORMS)}")
    opened: Tracker = import_module(f"parsimon.tracking.{name}").open_tracker(place, folder, spec)
    return opened


class Tracking:
    """Several trackers of one run. A tracker that fails is dropped with a warning."""

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._trackers = dict(trackers)
        self._last = -_INTERVAL

    def step(self, attack: str, images: int, step: Step) -> None:
        """Record the progress after a model call."""
        now, counters = time.monotonic(), step.counters
        if now - self._last < _INTERVAL and counters.ended < images:
            return
        self._last = now
        # Over all images, like the progress line: successes end first.
        values = {"success so far": counters.successes / images, "images ended": counters.ended}
        self._send("progress", attack, counters.queries, values)

    def end(self, comparison: Comparison, classes: Sequence[str] | None) -> None:
        """Record the results of a finished or interrupted run."""
        for name, result in comparison.results.items():
            if not result.random:  # a random model has no result at smaller budgets
                found = curve(result.outcomes, result.budget)
                at = np.unique([0, *found.queries[found.queries <= found.known], found.known])
                self._send("curve", name, at.tolist(), found.at(at).tolist())
            for outcome in [each for each in result.outcomes if each.success][:_PICTURES]:
                pixels = np.concatenate([as_rgb(each) for each in triptych(result, outcome)], axis=1)
                before, after, queries = caption(result, outcome, classes)
                self._send("picture", name, pixels, f"image {outcome.index}: {before} {after}, {queries}")
        for heading, table in zip(("results", "paired"), comparison.tables(), strict=False):
            self._send("table", heading, table)

    def close(self) -> None:
        self._send("close")

    def _send(self, method: str, *arguments: Any) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                getattr(tracker, method)(*arguments)
            except Exception as error:  # another library's, of any kind
                del self._trackers[name]
                warnings.warn(f"{name} no longer tracks this run: {first_line(error)}", stacklevel=2)


@contextmanager
def tracking(texts: Sequence[str], folder: Path, spec: Mapping[str, Any]) -> Iterator[Tracking]:
    """Open trackers by name and close them at the end. A missing one is refused before the first query."""
    opened = Tracking({text: open_tracker(text, folder, spec) for text in texts})
    try:
        yield opened
    finally:
        opened.close()

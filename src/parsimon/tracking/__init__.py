"""A run's course and its results, for the tools with which people follow their experiments: one module for each tool.

While the run goes on, each attack's success so far and its images ended, against queries charged; at its end the
success curve, the tables and a gallery. Whatever goes wrong here is warned of once, and never harms the run.
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
from parsimon.core.types import Outcome
from parsimon.errors import InputError, first_line
from parsimon.report.picture import as_rgb, perturbation_of
from parsimon.results.result import Comparison, Result
from parsimon.results.statistics import curve
from parsimon.results.table import Table

FORMS = {
    "tensorboard[:FOLDER]": "event files, in the run's folder unless another is named",
    "wandb[:PROJECT]": "Weights & Biases, offline unless WANDB_MODE says otherwise",
}

_EVERY = 1.0  # seconds between two points of a live curve
_PICTURES = 24  # of an attack


class Tracker(Protocol):
    """One tool."""

    def progress(self, attack: str, queries: int, values: Mapping[str, float]) -> None:
        """How far an attack is, after so many queries charged."""

    def curve(self, attack: str, queries: Sequence[int], shares: Sequence[float]) -> None:
        """The share of images fooled within so many queries."""

    def table(self, name: str, table: Table) -> None:
        """A table of the results."""

    def picture(self, attack: str, pixels: NDArray[np.uint8], caption: str) -> None:
        """An original, its perturbation and the adversarial image, side by side (rows, columns, 3)."""

    def close(self) -> None:
        """Write what is not written yet."""


def open_tracker(text: str, folder: Path, spec: Mapping[str, Any]) -> Tracker:
    """The tool that is named, as typed: `tensorboard`, `tensorboard:logs`, `wandb:my-project`."""
    name, _, place = text.partition(":")
    if name not in ("tensorboard", "wandb"):
        raise InputError(f"there is no tracker {name!r}: choose one of {', '.join(FORMS)}")
    opened: Tracker = import_module(f"parsimon.tracking.{name}").open_tracker(place, folder, spec)
    return opened


class Tracking:
    """A run as several trackers are told of it. One that fails is warned of, and told no more."""

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._trackers = dict(trackers)
        self._told = -_EVERY

    def step(self, attack: str, images: int, step: Step) -> None:
        """After each model call."""
        now = time.monotonic()
        counters = step.counters
        if now - self._told < _EVERY and counters.ended < images:
            return
        self._told = now
        # Of all images, as the progress line has it: successes end first.
        values = {"success so far": counters.successes / images, "images ended": counters.ended}
        self._tell("progress", attack, counters.queries, values)

    def end(self, comparison: Comparison, classes: Sequence[str] | None) -> None:
        """When the run has ended, or was interrupted."""
        for name, result in comparison.results.items():
            found = curve(result.outcomes, result.budget)
            at = np.unique([0, *found.queries, result.budget])
            self._tell("curve", name, at.tolist(), found.at(at).tolist())
            fooled = [outcome for outcome in result.outcomes if outcome.success]
            for outcome in fooled[:_PICTURES]:
                self._tell("picture", name, _triptych(result, outcome), _caption(result, outcome, classes))
        for heading, table in zip(("results", "paired"), comparison.tables(), strict=False):
            self._tell("table", heading, table)

    def close(self) -> None:
        self._tell("close")

    def _tell(self, what: str, *told: Any) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                getattr(tracker, what)(*told)
            except Exception as error:  # another library's, of whatever kind
                del self._trackers[name]
                warnings.warn(f"{name} is not told of this run any more: {first_line(error)}", stacklevel=2)


@contextmanager
def tracking(texts: Sequence[str], folder: Path, spec: Mapping[str, Any]) -> Iterator[Tracking]:
    """Trackers by what a person types. One that cannot be had is refused here, before anything is asked."""
    told = Tracking({text: open_tracker(text, folder, spec) for text in texts})
    try:
        yield told
    finally:
        told.close()


def _triptych(result: Result, outcome: Outcome) -> NDArray[np.uint8]:
    original, adversarial = np.asarray(result.images[outcome.index]), result.draw(outcome)
    perturbation = perturbation_of(original, adversarial, result.threat.eps)
    return np.concatenate([as_rgb(each) for each in (original, perturbation, adversarial)], axis=1)


def _caption(result: Result, outcome: Outcome, classes: Sequence[str] | None) -> str:
    def name(number: int) -> str:
        return classes[number] if classes and number < len(classes) else f"class {number}"

    seen = name(int(result.labels[outcome.index])), name(outcome.predicted or 0)
    return f"image {outcome.index}: {seen[0]} as {seen[1]}, {outcome.queries:,} queries"

"""What `parsimon.evaluate` tells of a model: its accuracy on clean images, and what black-box attacks leave of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsimon.results.evaluation_table import evaluation_table
from parsimon.results.result import Result
from parsimon.results.statistics import Interval, wilson_interval
from parsimon.results.table import Table


@dataclass(frozen=True)
class Evaluation:
    """The images that a model classifies correctly whatever some attacks do, each within its budget.

    Arrays have an entry for each image, in their order. After Ctrl-C, images that not every attack has finished count
    as robust so far: `unfinished` says how many they are.

    Attributes:
        attacks: The names of the attacks, in order.
        results: Each attack's result on the images that those before had not fooled. An attack that met no image is
            not among them.
    """

    attacks: tuple[str, ...]
    results: Mapping[str, Result]

    @property
    def _first(self) -> Result:
        return next(iter(self.results.values()))

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Which images the model classifies correctly when they are clean."""
        return self._first.clean.correct

    @property
    def robust(self) -> NDArray[np.bool_]:
        """Which images it classifies correctly and no attack fools."""
        fooled: NDArray[np.bool_] = np.any([result.success for result in self.results.values()], axis=0)
        return self.correct & ~fooled

    @property
    def clean_accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def robust_accuracy(self) -> float:
        return float(self.robust.mean())

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the robust accuracy, Wilson's: what it may owe to the choice of images."""
        return wilson_interval(int(self.robust.sum()), len(self.robust))

    @property
    def queries(self) -> NDArray[np.int64]:
        """Charged queries, over all attacks."""
        charged: NDArray[np.int64] = np.sum([result.queries for result in self.results.values()], axis=0)
        return charged

    @property
    def unfinished(self) -> int:
        """Robust images that an interruption left to be attacked."""
        return list(self.results.values())[-1].summary.unfinished

    @property
    def adversarial(self) -> NDArray[np.float32]:
        """All images, those that were fooled as their adversarial ones. Drawn anew each time."""
        images = self._first.adversarial
        for result in self.results.values():
            for outcome in result.outcomes:
                if outcome.success:
                    images[outcome.index] = result.draw(outcome)
        return images

    def table(self) -> Table:
        """What each attack left, as a table: as text, as Markdown, as LaTeX."""
        entries = [result.entry(name) for name, result in self.results.items()]
        return evaluation_table(self._first.threat, entries, self.correct, self.unfinished)

    def __str__(self) -> str:
        return str(self.table())

"""The result of `parsimon.evaluate`: the model's accuracy on clean images and under several attacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsimon.results.result import Result
from parsimon.results.statistics import Interval, wilson_interval
from parsimon.results.table import Table
from parsimon.results.tables import evaluation_table


@dataclass(frozen=True)
class Evaluation:
    """The images that a model classifies correctly under several attacks, each within its budget.

    Arrays have one entry per image, in the given order. After an interruption, unfinished images count as robust;
    `unfinished` is their number.

    Attributes:
        attacks: Names of the attacks, in order.
        results: Each attack's result on the images that earlier attacks did not fool. An attack that had no image
            left is missing.
    """

    attacks: tuple[str, ...]
    results: Mapping[str, Result]

    @property
    def _first(self) -> Result:
        return next(iter(self.results.values()))

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the model classifies the clean image correctly."""
        return self._first.clean.correct

    @property
    def robust(self) -> NDArray[np.bool_]:
        """Whether the clean image is classified correctly and no attack fools the model."""
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
        """The 95% Wilson interval of the robust accuracy, over the choice of images."""
        return wilson_interval(int(self.robust.sum()), len(self.robust))

    @property
    def queries(self) -> NDArray[np.int64]:
        """Charged queries, summed over the attacks."""
        charged: NDArray[np.int64] = np.sum([result.queries for result in self.results.values()], axis=0)
        return charged

    @property
    def unfinished(self) -> int:
        """Number of robust images that an interruption left with attacks to come."""
        return list(self.results.values())[-1].summary.unfinished

    @property
    def adversarial(self) -> NDArray[np.float32]:
        """All images, with the adversarial image in place of each fooled one. Rendered on each access."""
        images = self._first.adversarial
        for result in self.results.values():
            for outcome in result.outcomes:
                if outcome.success:
                    images[outcome.index] = result.draw(outcome)
        return images

    def table(self) -> Table:
        """Return the accuracy left after each attack as a table, for text, Markdown and LaTeX."""
        return evaluation_table(self)

    def __str__(self) -> str:
        return str(self.table())

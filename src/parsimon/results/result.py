"""What attacks did to the given images: of one attack, and of several side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import render
from parsimon.core.engine import Counters
from parsimon.core.model import Traffic
from parsimon.core.threat import Threat
from parsimon.core.types import Attack, Image, ImageSource, Outcome
from parsimon.errors import InputError
from parsimon.results.clean import CleanPredictions
from parsimon.results.comparison_table import Entry, comparison_table, paired_table
from parsimon.results.statistics import Paired, paired
from parsimon.results.summary import Summary, summarise, withstood
from parsimon.results.table import Table
from parsimon.results.verification import Verification


@dataclass(frozen=True)
class Result:
    """What an attack did to the given images. Arrays have an entry for each of them, in their order.

    An image that the model misclassifies to begin with is not attacked; `attacked` tells which were.
    """

    attack: Attack
    threat: Threat
    budget: int
    images: ImageSource
    labels: NDArray[np.intp]
    clean: CleanPredictions
    outcomes: tuple[Outcome, ...]  # of the attacked images, in order
    counters: Counters
    verification: Verification | None = None  # None: the successes were not queried again

    @property
    def traffic(self) -> Traffic | None:
        """What went to a model behind a network for this attack; None of other models."""
        return self.counters.traffic

    @property
    def attacked(self) -> NDArray[np.bool_]:
        return self._spread(np.zeros(len(self.labels), np.bool_), [True] * len(self.outcomes))

    @property
    def success(self) -> NDArray[np.bool_]:
        """Where the model was fooled within the budget."""
        return self._spread(np.zeros(len(self.labels), np.bool_), [each.success for each in self.outcomes])

    @property
    def queries(self) -> NDArray[np.int64]:
        """Charged queries; 0 where an image was not attacked."""
        return self._spread(np.zeros(len(self.labels), np.int64), [each.queries for each in self.outcomes])

    @property
    def adversarial(self) -> NDArray[np.float32]:
        """All images, those that were fooled as their adversarial ones. Drawn anew each time."""
        images = np.stack([np.asarray(self.images[index]) for index in range(len(self.labels))])
        for outcome in self.outcomes:
            if outcome.point is not None:
                images[outcome.index] = self.draw(outcome)
        return images

    def draw(self, outcome: Outcome) -> Image:
        """The adversarial image of a success."""
        if outcome.point is None:
            raise InputError(f"image {outcome.index} was not fooled, so it has no adversarial image")
        return render(np.asarray(self.images[outcome.index]), self.threat, outcome.point)

    def verified(self, outcome: Outcome) -> bool | None:
        """Return whether a success held when it was queried again; None where it was not."""
        if not outcome.success or self.verification is None:
            return None
        return outcome.index not in self.verification.failed

    @property
    def summary(self) -> Summary:
        return summarise(self.outcomes, self.budget)

    def entry(self, name: str) -> Entry:
        """What a table says of it in a row of that name."""
        return Entry(
            name,
            self.outcomes,
            self.budget,
            self.threat.loss,
            self.attack.white_box,
            self.traffic,
            self.verification,
            self.threat.rounding,
        )

    def table(self) -> Table:
        """The results as a table: as text, as Markdown, as LaTeX."""
        return Comparison({type(self.attack).__name__: self}).table()

    def __str__(self) -> str:
        return str(self.table())

    def _spread(self, array: NDArray[Any], values: list[Any]) -> NDArray[Any]:
        array[[outcome.index for outcome in self.outcomes]] = values
        return array


@dataclass(frozen=True)
class Comparison:
    """Several attacks on the same images of the same model.

    Attributes:
        results: Each attack's result, by the name of its row.
        relative_to: The attack over whose successes the queries of all are averaged once more.
    """

    results: Mapping[str, Result]
    relative_to: str | None = None

    @property
    def unfinished(self) -> int:
        """Images that an interruption left, over all attacks."""
        return sum(result.summary.unfinished for result in self.results.values())

    @property
    def robust_accuracy(self) -> float:
        """The share of all given images that the model classifies correctly and that no attack fooled.

        Where only some of the correctly classified images were attacked, the others are taken to fare as these did:
        it is then the clean accuracy times the share of the attacked that none fooled. Unfinished images are not fooled
        so far, so until they are finished it is an upper bound.
        """
        first = next(iter(self.results.values()))
        images, correct, attacked = len(first.labels), int(first.clean.correct.sum()), len(first.outcomes)
        # Whole numbers until the one division: 3 of 10 images are exactly what 0.3 is.
        return correct * withstood(result.outcomes for result in self.results.values()) / (images * attacked)

    def table(self) -> Table:
        """The comparison as a table: as text, as Markdown, as LaTeX."""
        first = next(iter(self.results.values()))
        entries = [result.entry(name) for name, result in self.results.items()]
        seen = first.clean
        backend = () if seen.backend is None else (f"Model run by {seen.backend}.",)
        return comparison_table(first.threat, entries, self.relative_to, seen.accuracy, (*backend, *seen.remarks))

    def paired(self) -> dict[str, Paired]:
        """The first attack, a, against each of the others, b, on the same images.

        Those that see gradients are left out. Every image must be finished: resume an interrupted run first.
        """
        seen = list(self._black_box.items())
        return {name: paired(seen[0][1].outcomes, other.outcomes, other.budget) for name, other in seen[1:]}

    def tables(self) -> list[Table]:
        """The comparison, and its attacks paired where there are several and all have finished."""
        if len(self._black_box) < 2 or self.unfinished:
            return [self.table()]
        return [self.table(), paired_table(next(iter(self._black_box)), self.paired())]

    @property
    def _black_box(self) -> dict[str, Result]:
        return {name: result for name, result in self.results.items() if not result.attack.white_box}

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

"""The part of chance in results on random models: undecided images, and the expected accuracy of a single query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Outcome
from parsimon.results.statistics import Interval, agresti_coull_interval, bootstrap_interval, wilson_interval
from parsimon.results.text import percent_range

if TYPE_CHECKING:
    from parsimon.results.result import CleanPredictions

NO_CHANCE = {"undecided": None, "expected_accuracy": None}  # for JSON, of a model that is not random
SEVERAL_CHANCES = (
    "Each attack returns a point of its own, so an undecided image gets several chances to count as fooled."
)


class Drawn(NamedTuple):
    """The fresh draws of a point, and those in which the model erred."""

    errors: int
    draws: int

    @property
    def rate(self) -> float:
        return self.errors / self.draws

    @property
    def undecided(self) -> bool:
        """Whether the 95% Wilson interval of the error rate contains one half."""
        low, high = wilson_interval(self.errors, self.draws)
        return low <= 0.5 <= high


@dataclass(frozen=True)
class Chance:
    """The uncertainty that random responses add to the results of attacks.

    Attributes:
        attacks: Number of attacks.
        worst: The draws with the largest error rate of each attacked image, by its number.
        expected: The expected accuracy of a single query; None if it is unknown.
    """

    attacks: int
    worst: Mapping[int, Drawn]
    expected: ExpectedAccuracy | None

    @property
    def undecided(self) -> int:
        """Number of attacked images whose error rate does not differ clearly from one half."""
        return sum(each.undecided for each in self.worst.values())

    def notes(self) -> list[str]:
        """Return the number of undecided images and the expected accuracy, as notes below a table."""
        count = self.undecided
        images = "1 image" if count == 1 else f"{count:,} images"
        notes = [f"Undecided: {images}, whose 95% interval of the error rate contains 50%."]
        if count and self.attacks > 1:
            notes.append(SEVERAL_CHANCES)
        if self.expected is not None:
            notes.append(f"Expected accuracy of a single query: {self.expected}.")
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Return the number of undecided images and the expected accuracy, for JSON."""
        expected = None if self.expected is None else self.expected.as_dict()
        return {"undecided": self.undecided, "expected_accuracy": expected}


@dataclass(frozen=True)
class ExpectedAccuracy:
    """The probability that a single query of an image gives the right class, on average over all images.

    Attributes:
        value: The mean over all images of one minus the error rate. That is the rate of the clean image if it is
            misclassified, and otherwise the largest that an attack found.
        interval: Its 95% interval over the choice of images; None for one image.
        estimate: Whether only some of the correctly classified images were attacked. The others are assumed to behave
            like them.
    """

    value: float
    interval: Interval | None
    estimate: bool

    def __str__(self) -> str:
        ends = "" if self.interval is None else f" ({percent_range(self.interval)})"
        return f"{'about ' * self.estimate}{self.value:.1%}{ends}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        kind = "estimate" if self.estimate else "measured"
        return {"value": self.value, "interval": self.interval, "kind": kind}


def chance_of(clean: CleanPredictions, attacks: Sequence[Sequence[Outcome]], *, complete: bool) -> Chance:
    """Return the uncertainty of chance. `complete`: whether every image that was to be attacked has its draws."""
    worst = worst_draws(attacks)
    return Chance(len(attacks), worst, expected_accuracy(clean, worst) if complete else None)


def worst_draws(attacks: Iterable[Sequence[Outcome]]) -> dict[int, Drawn]:
    """Return the draws with the largest error rate of each image; an unfinished attack has none."""
    worst: dict[int, Drawn] = {}
    for each in (outcome for outcomes in attacks for outcome in outcomes if outcome.draws):
        found = Drawn(each.errors, each.draws)
        worst[each.index] = max(worst.get(each.index, found), found, key=lambda drawn: drawn.rate)
    return worst


def expected_accuracy(clean: CleanPredictions, worst: Mapping[int, Drawn]) -> ExpectedAccuracy | None:
    """Return the expected accuracy of a single query; None if nothing was attacked, or no clean image was drawn."""
    if clean.errors is None or not worst:
        return None
    right = 1 - clean.errors / clean.draws
    attacked = np.zeros(len(right), np.bool_)
    for index, drawn in worst.items():
        attacked[index], right[index] = True, 1 - drawn.rate
    left_out = clean.correct & ~attacked
    if not left_out.any():
        return ExpectedAccuracy(float(right.mean()), mean_interval(right), estimate=False)
    table = np.stack([right * ~clean.correct, right * attacked, attacked, clean.correct], axis=1)
    return ExpectedAccuracy(float(_extended(*table.T)), bootstrap_interval(table, _extended), estimate=True)


def _extended(
    wrong: NDArray[Any], reached: NDArray[Any], attacked: NDArray[Any], correct: NDArray[Any], axis: int = -1
) -> NDArray[Any]:
    """Return the mean over all images if the correct ones that were not attacked behave like those that were."""
    rate = reached.sum(axis=axis) / np.maximum(1, attacked.sum(axis=axis))
    found: NDArray[Any] = (wrong.sum(axis=axis) + correct.sum(axis=axis) * rate) / wrong.shape[axis]
    return found


def mean_interval(rates: Sequence[float] | NDArray[np.float64]) -> Interval | None:
    """Return the 95% interval of a mean of rates over the choice of images; None for fewer than two.

    Resampling equal rates would give an interval of no width. Then the interval is that of a share of images: no
    distribution of rates varies more than one of zeros and ones.
    """
    if len(rates) < 2:
        return None
    if len(np.unique(rates)) == 1:
        return agresti_coull_interval(len(rates) * float(rates[0]), len(rates))
    return bootstrap_interval(rates, np.mean)

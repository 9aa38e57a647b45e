"""Results of one attack (`Result`) and of several attacks side by side (`Comparison`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import render
from parsimon.core.engine import Counters
from parsimon.core.model import Traffic
from parsimon.core.threat import Scores, Threat
from parsimon.core.types import Attack, Image, ImageSource, Outcome
from parsimon.errors import InputError
from parsimon.results.chance import Chance, chance_of
from parsimon.results.display import Displayed
from parsimon.results.headline import headline
from parsimon.results.rows import Row, result_rows
from parsimon.results.statistics import Paired, paired
from parsimon.results.summary import Summary, count_robust, summarise
from parsimon.results.table import Table
from parsimon.results.tables import comparison_table, paired_table
from parsimon.results.verdict import Verdict
from parsimon.results.warnings import warnings_of

RANDOM_BUDGETS = "a random model needs one run per budget: fresh draws decide only once, at the end of an attack"


@dataclass(frozen=True)
class CleanPredictions:
    """Predictions of the model on the clean images."""

    predicted: NDArray[np.intp]
    correct: NDArray[np.bool_]
    classes: int  # of a model that returns class numbers: one more than the largest that occurs
    # Probability of the predicted class; of a random model, the share of draws with it; None if it returns labels.
    confidence: NDArray[np.float64] | None
    backend: str | None = None  # how the model is run, if it says
    values: int = 0  # per image; 0 if no image was read
    scores: NDArray[np.float32] | None = None  # of the first clean images
    fingerprint: str | None = None  # of the model's file, if it has one
    runtime: str | None = None  # library that runs the model, with its version
    remarks: tuple[str, ...] = ()  # on how the run was executed, shown below its tables
    warnings: tuple[str, ...] = ()  # reasons to doubt the results, found in the clean images
    kind: Scores = "logits"  # of the scores
    draws: int = 0  # of each clean image, on a random model
    errors: NDArray[np.int64] | None = None  # those in which it erred; an image is correct unless most draws err
    repeatable: bool = False  # whether the draws of a random model come from the seed alone; not read back

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    def confidence_of(self, index: int) -> float | None:
        """Return the probability, or share of draws, of the predicted class of one image, if it is known."""
        return None if self.confidence is None else float(self.confidence[index])

    @property
    def columns(self) -> int | None:
        """Number of columns that the model returns: one for class numbers. None if a stored run does not tell."""
        if self.kind != "labels":
            return self.classes
        return None if self.scores is None else self.scores.shape[1]


@dataclass(frozen=True)
class Verification:
    """The second query of each of an attack's successes.

    Attributes:
        queried: Number of successes queried again, once each.
        failed: Images whose success does not hold.
    """

    queried: int
    failed: tuple[int, ...] = ()

    @property
    def held(self) -> int:
        return self.queried - len(self.failed)


@dataclass(frozen=True, repr=False)
class Result(Displayed):
    """The result of one attack. Its arrays have one entry per given image, in the same order.

    Images that the model misclassifies without an attack are not attacked; see `attacked`.
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
    defence: tuple[str, ...] = ()  # in front of the model, as typed
    stopped: bool = False  # whether Ctrl-C ended the run during this attack or before it; not read back

    @property
    def traffic(self) -> Traffic | None:
        """Images sent over the network for this attack; None for a local model."""
        return self.counters.traffic

    @property
    def random(self) -> bool:
        """Whether the model is random, so that fresh draws decided about each image."""
        return self.threat.sampling is not None

    @property
    def attacked(self) -> NDArray[np.bool_]:
        return self._per_image(np.bool_, [True] * len(self.outcomes))

    @property
    def success(self) -> NDArray[np.bool_]:
        """Whether the model was fooled within the budget."""
        return self._per_image(np.bool_, [each.success for each in self.outcomes])

    @property
    def queries(self) -> NDArray[np.int64]:
        """Charged queries, up to the success if there is one; 0 for an image that was not attacked."""
        return self._per_image(np.int64, [each.queries for each in self.outcomes])

    @property
    def charged(self) -> NDArray[np.int64]:
        """All charged queries: with `until_budget`, those after the success too."""
        return self._per_image(np.int64, [each.charged for each in self.outcomes])

    @property
    def radius(self) -> NDArray[np.float64]:
        """The distance of the closest adversarial image that a label-only attack found; infinite without one."""
        found = np.full(len(self.labels), np.inf)
        for each in self.outcomes:
            found[each.index] = np.inf if each.radius is None else each.radius
        return found

    @property
    def adversarial(self) -> NDArray[np.float32]:
        """All images, with the adversarial image in place of each fooled one. Rendered on each access."""
        images = self.clean_images()
        for outcome in self.outcomes:
            if outcome.point is not None:
                images[outcome.index] = self.draw(outcome)
        return images

    def clean_images(self) -> NDArray[np.float32]:
        """Return all images in one array."""
        return np.stack([np.asarray(self.images[index]) for index in range(len(self.labels))])

    def draw(self, outcome: Outcome) -> Image:
        """Return the adversarial image of a success."""
        if outcome.point is None:
            raise InputError(f"image {outcome.index} was not fooled, so it has no adversarial image")
        return render(np.asarray(self.images[outcome.index]), self.threat, outcome.point)

    def verified(self, outcome: Outcome) -> bool | None:
        """Return whether a success held on its second query; None if it was not queried again."""
        if not outcome.success or self.verification is None:
            return None
        return outcome.index not in self.verification.failed

    @cached_property
    def summary(self) -> Summary:
        return summarise(self.outcomes, self.budget, label_only=self.threat.loss == "label")

    def table(self) -> Table:
        """Return the result as a table, which can be written as text, Markdown and LaTeX."""
        return self._alone.table()

    def tables(self) -> list[Table]:
        """Return the table, as a list."""
        return [self.table()]

    def headline(self) -> str:
        """Return the verdict on the model under this attack, and the attack's success."""
        least = "at least " if self.summary.unfinished else ""
        fooled = f"{least}{self.summary.success_at_least:.1%} of {len(self.outcomes):,} attacked images fooled"
        return f"{self._alone.headline()}, {fooled}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the result, one sentence each."""
        return self._alone.warnings

    def rows(self) -> Iterator[Row]:
        """Yield the rows of `to_frame`, one per given image."""
        return result_rows(self)

    @property
    def _alone(self) -> Comparison:
        return Comparison({type(self.attack).__name__: self})

    def __str__(self) -> str:
        return str(self.table())

    def _per_image(self, dtype: type[np.generic], values: list[Any]) -> NDArray[Any]:
        array = np.zeros(len(self.labels), dtype)
        array[[outcome.index for outcome in self.outcomes]] = values
        return array


@dataclass(frozen=True, repr=False)
class Comparison(Displayed):
    """Several attacks on the same images of the same model.

    Attributes:
        results: Result of each attack, by the name of its row.
        relative_to: An attack. An extra column averages all queries over the images that it fooled.
        fooled_before: Number of images that were not attacked because they are fooled at a smaller radius.
    """

    results: Mapping[str, Result]
    relative_to: str | None = None
    fooled_before: int = 0

    @property
    def first(self) -> Result:
        return next(iter(self.results.values()))

    @property
    def black_box(self) -> dict[str, Result]:
        """Results of the attacks that see no gradients."""
        return {name: result for name, result in self.results.items() if not result.attack.white_box}

    @property
    def white_box(self) -> dict[str, Result]:
        """Results of the attacks that see gradients."""
        return {name: result for name, result in self.results.items() if result.attack.white_box}

    @property
    def reference(self) -> Result | None:
        """Result of the attack named by `relative_to`; None if it fooled no image, so that there is no average."""
        result = None if self.relative_to is None else self.results.get(self.relative_to)
        return None if result is None or not result.summary.successes else result

    @property
    def counted(self) -> dict[str, Result]:
        """Results that the verdict rests on: those of black-box attacks, unless there are none."""
        return self.black_box or self.white_box

    @property
    def unfinished(self) -> int:
        """Number of images left unfinished by an interruption, summed over the attacks."""
        return sum(result.summary.unfinished for result in self.results.values())

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C ended the run, even if every image is finished."""
        return any(result.stopped for result in self.results.values())

    @property
    def finished(self) -> bool:
        """Whether every image is finished, and Ctrl-C did not end the run."""
        return not (self.unfinished or self.stopped)

    @property
    def verdict(self) -> Verdict:
        """The share of all given images that the model classifies correctly and that no black-box attack fooled.

        Without a black-box attack, it counts all attacks. If only some of the correctly classified images were
        attacked, it is an estimate: the clean accuracy times the share of attacked images that no attack fooled.
        """
        return self._verdict_of(self.counted)

    @property
    def white_box_verdict(self) -> Verdict | None:
        """The accuracy that all attacks leave, those that see gradients included; None without such an attack."""
        return self._verdict_of(self.results) if self.white_box else None

    def _verdict_of(self, results: Mapping[str, Result]) -> Verdict:
        correct, images = int(self.first.clean.correct.sum()), len(self.first.labels)
        robust = count_robust(result.outcomes for result in results.values())
        attacked = len(self.first.outcomes) + self.fooled_before
        unfinished = any(result.summary.unfinished for result in results.values())
        return Verdict.of(robust, attacked, correct, images, unfinished=unfinished)

    @property
    def robust_accuracy(self) -> float:
        """The value of the verdict. While images are unfinished it can only fall."""
        return self.verdict.value

    @cached_property
    def chance(self) -> Chance | None:
        """The undecided images and the expected accuracy of a random model; None for any other."""
        if not self.first.random:
            return None
        complete = not (self.unfinished or self.fooled_before or self.first.threat.targeted)
        return chance_of(self.first.clean, [result.outcomes for result in self.counted.values()], complete=complete)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the results, one sentence each."""
        return warnings_of(self.results)

    def table(self) -> Table:
        """Return the comparison as a table, which can be written as text, Markdown and LaTeX."""
        return comparison_table(self)

    @property
    def can_pair(self) -> bool:
        """Whether several black-box attacks have finished, on the same images."""
        attacked = {tuple(each.index for each in result.outcomes) for result in self.black_box.values()}
        return len(self.black_box) > 1 and len(attacked) == 1 and not self.unfinished

    def paired(self) -> dict[str, Paired]:
        """Compare the first black-box attack, a, with each of the others, b, image by image.

        Every image must be finished: resume an interrupted run first.
        """
        results = list(self.black_box.items())
        return {name: paired(results[0][1].outcomes, other.outcomes, other.budget) for name, other in results[1:]}

    def tables(self) -> list[Table]:
        """Return the comparison, and the paired table if several black-box attacks have finished the same images."""
        if not self.can_pair:
            return [self.table()]
        return [self.table(), paired_table(next(iter(self.black_box)), self.paired(), self.first.defence)]

    def headline(self) -> str:
        """Return the verdict in one sentence."""
        return headline(self)

    def rows(self) -> Iterator[Row]:
        """Yield the rows of `to_frame`, one per attack and given image."""
        return ({"attack": name, **row} for name, result in self.results.items() for row in result.rows())

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

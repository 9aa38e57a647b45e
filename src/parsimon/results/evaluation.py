"""The result of `parsimon.evaluate`: the accuracy that attacks leave of one model, or of several at several radii."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from parsimon.core.parsing import parse_number
from parsimon.core.types import Outcome
from parsimon.errors import InputError, quote
from parsimon.results.chance import Chance, chance_of
from parsimon.results.display import Displayed
from parsimon.results.headline import evaluation_basis, evaluation_headline
from parsimon.results.notes import evaluation_with_gradients
from parsimon.results.result import RANDOM_BUDGETS, CleanPredictions, Result
from parsimon.results.rows import Row, evaluation_rows
from parsimon.results.statistics import Interval
from parsimon.results.table import Table
from parsimon.results.tables import evaluation_table, grid_table
from parsimon.results.verdict import Verdict
from parsimon.results.warnings import warnings_of

_SAME_RADIUS = 1e-6  # relative difference of two radii; single precision rounds by 6e-8


@dataclass(frozen=True, repr=False)
class Evaluation(Displayed):
    """The accuracy of a model at one radius under several attacks, each within its budget.

    Arrays have one entry per image, in the given order. After an interruption, unfinished images count as robust;
    `unfinished` is their number.

    Attributes:
        attacks: Names of the attacks, in order. White-box attacks do not count for `robust`.
        results: Each attack's result on the images that earlier attacks did not fool. An attack that had no image
            left is missing.
        eps: The radius.
        budgets: Queries per image and attack, ascending. The attacks had the largest.
        smaller: The evaluation at the next smaller radius. An image fooled there is fooled here, and was not attacked
            again.
    """

    attacks: tuple[str, ...]
    results: Mapping[str, Result]
    eps: float
    budgets: tuple[int, ...]
    smaller: Evaluation | None = None

    @property
    def any_result(self) -> Result:
        """A result, for what all of them share: images, labels and clean predictions."""
        if self.results:
            return next(iter(self.results.values()))
        assert self.smaller is not None, "an evaluation without results has one at a smaller radius"
        return self.smaller.any_result

    @property
    def clean(self) -> CleanPredictions:
        return self.any_result.clean

    @property
    def effective_eps(self) -> float:
        """The radius that images obey: in 8-bit mode, `eps` rounded down to a multiple of 1/255."""
        return replace(self.any_result.threat, eps=self.eps).effective_eps

    @property
    def budget(self) -> int:
        """The largest number of queries per image and attack."""
        return self.budgets[-1]

    @property
    def black_box(self) -> dict[str, Result]:
        return {name: result for name, result in self.results.items() if not result.attack.white_box}

    @property
    def white_box(self) -> dict[str, Result]:
        return {name: result for name, result in self.results.items() if result.attack.white_box}

    @property
    def white_box_attacks(self) -> tuple[str, ...]:
        """Names of the white-box attacks, here or at a smaller radius."""
        smaller = () if self.smaller is None else self.smaller.white_box_attacks
        return tuple(dict.fromkeys((*smaller, *self.white_box)))

    @property
    def correct(self) -> NDArray[np.bool_]:
        """The images that the model classifies correctly without an attack, as a mask."""
        return self.clean.correct

    @property
    def _always_correct(self) -> NDArray[np.bool_]:
        """The images that are correct here and at all smaller radii: a random model may draw them anew in each run."""
        return self.correct if self.smaller is None else self.correct & self.smaller._always_correct

    @property
    def random(self) -> bool:
        """Whether the model is random."""
        return self.any_result.random

    @cached_property
    def fooled_after(self) -> NDArray[np.float64]:
        """The fewest queries in which an attack fooled each image; infinite for a robust image.

        On a random model, the queries at which the attack ended: only its last point was judged.
        """
        found = np.full(len(self.correct), np.inf) if self.smaller is None else self.smaller.fooled_after.copy()
        for result in self.black_box.values():
            for outcome in result.outcomes:
                if outcome.success:
                    found[outcome.index] = min(found[outcome.index], outcome.queries)
        return found

    def robust_within(self, budget: float) -> NDArray[np.bool_]:
        """Return which images are correct and robust to every black-box attack within the given queries.

        Each attack was run with the largest budget, on which the schedule of some depends. At each of `budgets` this is
        what they all leave; below the smallest it is an upper bound, since attacks skip images that an earlier one
        fooled. A random model has no smaller budgets: fresh draws decide only once, at the end of an attack. If it
        draws the clean images anew for each radius, an image must be correct at all smaller ones too.
        """
        if not isinstance(budget, Real) or not 0 <= budget <= self.budget:
            raise InputError(
                f"budget must be from 0 to {self.budget:,}, the queries that each attack had; got {quote(budget)}",
                argument="budget",
            )
        if self.random and budget < self.budget:
            raise InputError(f"{RANDOM_BUDGETS}; this evaluation has {self.budget:,} queries", argument="budget")
        return self._always_correct & (self.fooled_after > budget)

    @property
    def robust(self) -> NDArray[np.bool_]:
        """The images that are classified correctly and that no black-box attack fools, as a mask."""
        return self.robust_within(self.budget)

    @property
    def clean_accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def robust_accuracy(self) -> float:
        return float(self.robust.mean())

    @property
    def interval(self) -> Interval | None:
        """The 95% Wilson interval of the robust accuracy; None while images are unfinished."""
        return self.verdict().interval

    def verdict(self, budget: int | None = None) -> Verdict:
        """Return the robust accuracy within a budget, by default the largest, which no budget may exceed."""
        robust = self.robust_within(self.budget if budget is None else budget)
        return self.verdict_of(robust, unfinished=self.unfinished > 0)

    @property
    def white_box_verdict(self) -> Verdict | None:
        """The accuracy that all attacks leave, those that see gradients included; None without such an attack."""
        if not self.white_box and (self.smaller is None or self.smaller.white_box_verdict is None):
            return None
        unfinished = self.unfinished or any(result.summary.unfinished for result in self.white_box.values())
        return self.verdict_of(self.robust & ~self._fooled_white_box, unfinished=bool(unfinished))

    @cached_property
    def _fooled_white_box(self) -> NDArray[np.bool_]:
        fooled = np.zeros(len(self.correct), np.bool_) if self.smaller is None else self.smaller._fooled_white_box
        return np.any([fooled, *(result.success for result in self.white_box.values())], axis=0)  # type: ignore[no-any-return]

    @property
    def clean_accuracy_verdict(self) -> Verdict:
        """The clean accuracy with its interval."""
        return self.verdict_of(self.correct, unfinished=False)

    def verdict_of(self, robust: NDArray[np.bool_], *, unfinished: bool) -> Verdict:
        """Return the share of robust images with its interval."""
        correct, images = int(self.correct.sum()), len(self.correct)
        return Verdict.of(int(robust.sum()), correct, correct, images, unfinished=unfinished)

    @property
    def settled(self) -> NDArray[np.bool_]:
        """The images fooled within the smallest budget, as a mask. Larger radii do not attack them again."""
        return self.fooled_after <= self.budgets[0]

    @property
    def queries(self) -> NDArray[np.int64]:
        """Charged queries at this radius, summed over the black-box attacks."""
        charged = [result.charged for result in self.black_box.values()]
        total: NDArray[np.int64] = np.sum(charged, axis=0) if charged else np.zeros(len(self.correct), np.int64)
        return total

    @property
    def unfinished(self) -> int:
        """Number of robust images that an interruption left with attacks to come."""
        if self.black_box:
            last = list(self.black_box.values())[-1]
            return last.summary.unfinished
        return int((self.correct & ~self.settled).sum())  # nothing was attacked at this radius yet

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C ended the evaluation at this radius or a smaller one, even if every image is finished."""
        before = self.smaller is not None and self.smaller.stopped
        return before or any(result.stopped for result in self.results.values())

    @cached_property
    def chance(self) -> Chance | None:
        """The undecided images and the expected accuracy of a random model; None for any other."""
        if not self.random:
            return None
        return chance_of(self.clean, self._black_box_outcomes, complete=not self.unfinished)

    @property
    def _black_box_outcomes(self) -> list[Sequence[Outcome]]:
        """The outcomes of each black-box attack, here and at smaller radii, whose points lie in this ball too."""
        before = [] if self.smaller is None else self.smaller._black_box_outcomes
        return [*before, *(result.outcomes for result in self.black_box.values())]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the robust accuracy."""
        return warnings_of(self.results)

    @property
    def adversarial(self) -> NDArray[np.float32]:
        """All images, with the adversarial image in place of each fooled one. Rendered on each access."""
        images = self.any_result.clean_images() if self.smaller is None else self.smaller.adversarial
        for result in self.black_box.values():
            for outcome in result.outcomes:
                if outcome.success:
                    images[outcome.index] = result.draw(outcome)
        return images

    def table(self) -> Table:
        """Return the accuracy left after each attack as a table, for text, Markdown and LaTeX."""
        return evaluation_table(self)

    def tables(self) -> list[Table]:
        """Return the table, as a list."""
        return [self.table()]

    def headline(self) -> str:
        """Return the verdict in one sentence."""
        sentence = f"{evaluation_headline(self, 'model')}: {evaluation_basis(self)}"
        return "; ".join(filter(None, (sentence, evaluation_with_gradients({"": self}))))

    def rows(self) -> Iterator[Row]:
        """Yield the rows of `to_frame`, one per given image."""
        return evaluation_rows(self)

    def __str__(self) -> str:
        return str(self.table())


@dataclass(frozen=True, repr=False)
class EvaluationGrid(Displayed):
    """Several models at several radii, on the same images.

    `grid["robust", "8/255"]` is the evaluation of a model at a radius, and so is `grid["robust", 8 / 255]`. Iteration
    yields these keys, the model and its radius as a number: `for model, eps in grid`.

    Attributes:
        models: Names of the models, in order.
        radii: The radii, ascending.
        evaluations: By model, one for each radius. A model that was not begun is missing.
    """

    models: tuple[str, ...]
    radii: tuple[float, ...]
    evaluations: Mapping[str, tuple[Evaluation, ...]]

    def __getitem__(self, key: tuple[str, float | str]) -> Evaluation:
        """Return the evaluation of a model at a radius, given as a number or a text such as 8/255."""
        model, eps = key if isinstance(key, tuple) and len(key) == 2 else (None, None)
        for evaluation in self.evaluations.get(model, ()) if isinstance(model, str) else ():
            if math.isclose(evaluation.eps, _radius(eps), rel_tol=_SAME_RADIUS):
                return evaluation
        known = ", ".join(f"({name!r}, {radius:.6g})" for name, radius in self)
        raise InputError(f"there is no evaluation of {quote(key)}. A key is a model with a radius; there are {known}")

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Yield the model and the radius of each evaluation."""
        return ((model, evaluation.eps) for model, row in self.evaluations.items() for evaluation in row)

    def __len__(self) -> int:
        """Return the number of evaluations."""
        return sum(map(len, self.evaluations.values()))

    @property
    def effective_radii(self) -> tuple[float, ...]:
        """The radii that images obey: in 8-bit mode, they are multiples of 1/255."""
        threat = self.any_evaluation.any_result.threat
        return tuple(replace(threat, eps=eps).effective_eps for eps in self.radii)

    @property
    def any_evaluation(self) -> Evaluation:
        return next(iter(self.evaluations.values()))[0]

    @property
    def unfinished(self) -> int:
        """Number of evaluations that an interruption left unfinished."""
        begun = sum(each.unfinished > 0 for row in self.evaluations.values() for each in row)
        return begun + len(self.radii) * (len(self.models) - len(self.evaluations))

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C ended the evaluation, even if every image is finished."""
        return any(evaluation.stopped for row in self.evaluations.values() for evaluation in row)

    @property
    def finished(self) -> bool:
        """Whether all evaluations are finished, and Ctrl-C ended none."""
        return not (self.unfinished or self.stopped)

    def table(self) -> Table:
        """Return the robust accuracy by radius and model, for text, Markdown and LaTeX."""
        return grid_table(self)

    def tables(self) -> list[Table]:
        """Return the table, as a list."""
        return [self.table()]

    def headline(self) -> str:
        """Return the verdict on each model at its largest radius, separated by semicolons."""
        rows = self.evaluations.items()
        verdicts = "; ".join(evaluation_headline(evaluations[-1], model) for model, evaluations in rows)
        sentence = f"{verdicts}: {evaluation_basis(self.any_evaluation)}"
        largest = {model: evaluations[-1] for model, evaluations in rows}
        return "; ".join(filter(None, (sentence, evaluation_with_gradients(largest))))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the results, one sentence each."""
        found = (each for row in self.evaluations.values() for evaluation in row for each in evaluation.warnings)
        return tuple(dict.fromkeys(found))

    def rows(self) -> Iterator[Row]:
        """Yield the rows of `to_frame`, one per model, radius and given image."""
        for model, evaluations in self.evaluations.items():
            for evaluation in evaluations:
                yield from ({"model": model, "eps": evaluation.eps, **row} for row in evaluation.rows())

    def __str__(self) -> str:
        return str(self.table())


def _radius(eps: object) -> float:
    """Return a radius as a number; NaN, which equals no radius, if it is none."""
    try:
        return parse_number("".join(eps.split())) if isinstance(eps, str) else float(eps)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan

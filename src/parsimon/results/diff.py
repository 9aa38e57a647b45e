"""The difference between two models, an old and a new one, attacked alike on the same images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError
from parsimon.results.evaluation import Evaluation
from parsimon.results.result import Comparison
from parsimon.results.statistics import Interval, mcnemar, newcombe_interval
from parsimon.results.table import Cell, Table
from parsimon.results.text import behind, p_text, points_text, radius_text
from parsimon.results.verdict import Gate

_RANDOM_NOTE = "Random models: interval and p leave out the chance in the draws; two runs of one model may differ."


@dataclass(frozen=True, eq=False)
class Standing:
    """The images on which a model is robust. The result of an image is known if it was attacked, or misclassified."""

    robust: NDArray[np.bool_]
    known: NDArray[np.bool_]

    @classmethod
    def of(cls, found: Comparison | Evaluation) -> Standing:
        """Return the standing of a finished run or evaluation."""
        if isinstance(found, Evaluation):
            return cls(found.robust, np.ones(len(found.robust), np.bool_))
        if found.fooled_before:
            raise InputError("a run of an evaluation leaves out images: compare the whole evaluation")
        correct, results = found.first.clean.correct, found.counted.values()
        attacked, fooled = (
            np.any(each, axis=0) for each in zip(*((r.attacked, r.success) for r in results), strict=True)
        )
        return cls(correct & attacked & ~fooled, ~correct | attacked)


@dataclass(frozen=True)
class Difference:
    """The change of the robust accuracy from an old model to a new one, on the same images.

    Attributes:
        images: Number of images.
        old: Number of images on which the old model is robust.
        new: Number of images on which the new model is robust.
        worse: Images on which only the old model is robust.
        better: Images on which only the new model is robust.
    """

    images: int
    old: int
    new: int
    worse: tuple[int, ...]
    better: tuple[int, ...]

    @property
    def value(self) -> float:
        """The robust accuracy of the new model minus that of the old one."""
        return (self.new - self.old) / self.images

    @property
    def interval(self) -> Interval:
        """The 95% interval of the difference, by Newcombe's method for paired data."""
        worse, better, both = len(self.worse), len(self.better), self.old - len(self.worse)
        return newcombe_interval(both, better, worse, self.images - both - better - worse)

    @property
    def p(self) -> float:
        """The p-value of McNemar's exact test that both models are equally robust."""
        return mcnemar(len(self.worse), len(self.better))

    def passes(self, no_worse_than: float, gate: Gate = "estimate") -> bool:
        """Return whether the difference, or the lower end of its interval, is no larger a loss than this."""
        return (self.value if gate == "estimate" else self.interval[0]) >= -no_worse_than

    def as_dict(self) -> dict[str, Any]:
        """Return the difference for JSON."""
        return {
            "images": self.images,
            "old": self.old / self.images,
            "new": self.new / self.images,
            "difference": self.value,
            "interval": self.interval,
            "worse": self.worse,
            "better": self.better,
            "p": self.p,
        }


def difference(old: Standing, new: Standing, order: Sequence[int] | NDArray[np.intp]) -> Difference:
    """Compare two models image by image.

    `order` is the order in which images were chosen. Only those before the first unknown one count: further known
    images would be misclassified ones alone.
    """
    unknown = np.flatnonzero(~(old.known & new.known)[order])
    counted = np.asarray(order)[: unknown[0] if len(unknown) else None]
    if not len(counted):
        raise InputError("no image has a known result in both runs: attack the same images in both")
    before, after = old.robust[counted], new.robust[counted]
    worse, better = (tuple(sorted(counted[each].tolist())) for each in (before & ~after, after & ~before))
    return Difference(len(counted), int(before.sum()), int(after.sum()), worse, better)


@dataclass(frozen=True)
class DiffRow:
    """Two models at one radius. `difference` is None while either of them is unfinished."""

    old_model: str
    new_model: str
    eps: float
    difference: Difference | None

    @property
    def name(self) -> str:
        """The models and the radius."""
        models = self.new_model if self.old_model == self.new_model else f"{self.old_model} -> {self.new_model}"
        return f"{models}, {radius_text(self.eps)}"


@dataclass(frozen=True)
class Diff:
    """The differences between two runs or evaluations.

    Attributes:
        old: Name of the old one.
        new: Name of the new one.
        rows: A row for each model and radius that both have.
        unfinished: Names of those that are unfinished.
        old_defence: Defences in front of the old models.
        new_defence: Defences in front of the new models.
        random: Whether the models are random.
    """

    old: str
    new: str
    rows: tuple[DiffRow, ...]
    unfinished: tuple[str, ...] = ()
    old_defence: tuple[str, ...] = ()
    new_defence: tuple[str, ...] = ()
    random: bool = False

    @property
    def title(self) -> str:
        """The names of both models, with their defences."""
        if not self.old_defence and not self.new_defence:
            return f"{self.old} -> {self.new}"
        old, new = (behind(each) or " without a defence" for each in (self.old_defence, self.new_defence))
        return f"{self.old}{old} -> {self.new}{new}"

    def failures(self, no_worse_than: float, gate: Gate = "estimate") -> list[str]:
        """Return a sentence for each reason why the new one does not pass; unfinished runs never pass."""
        reasons = [f"{name} is unfinished" for name in self.unfinished]
        for row in self.rows:
            each = row.difference
            if each is not None and not each.passes(no_worse_than, gate):
                what = f"{row.name}: robust accuracy changed by {points_text(each.value)} points"
                if gate == "lower":
                    what += f", with {points_text(each.interval[0])} as the lower end of the interval"
                reasons.append(f"{what}; a loss of at most {100 * no_worse_than:.4g} points is allowed")
        return reasons

    def as_dict(self) -> dict[str, Any]:
        """Return the differences for JSON."""
        rows = [
            {
                "old_model": row.old_model,
                "new_model": row.new_model,
                "eps": row.eps,
                **({} if row.difference is None else row.difference.as_dict()),
            }
            for row in self.rows
        ]
        return {
            "old": self.old,
            "new": self.new,
            "old_defence": list(self.old_defence) or None,
            "new_defence": list(self.new_defence) or None,
            "random": self.random,
            "unfinished": list(self.unfinished),
            "differences": rows,
        }

    def table(self) -> Table:
        """Return one row per model and radius, for text, Markdown and LaTeX."""
        headers = ["model, eps", "images", "old", "new", "difference", "worse", "better", "McNemar p"]
        notes = [
            "Old, new: robust accuracy on the same images.",
            "Difference: new minus old, in points, with its 95% Newcombe interval.",
            "Worse, better: images on which only the old, only the new model is robust.",
            "McNemar p: exact test that both are equally robust.",
            *([_RANDOM_NOTE] if self.random else []),
            *(f"Unfinished: {name}. Resume it first." for name in self.unfinished),
        ]
        return Table(self.title, headers, [[_cells(row) for row in self.rows]], notes)

    def __str__(self) -> str:
        return str(self.table())


def _cells(row: DiffRow) -> list[Cell]:
    each = row.difference
    if each is None:
        return [Cell(row.name), *[Cell("-")] * 7]
    low, high = map(points_text, each.interval)
    return [
        Cell(row.name),
        Cell(f"{each.images:,}"),
        *(Cell(f"{count / each.images:.1%}") for count in (each.old, each.new)),
        Cell(points_text(each.value), interval=(low, high)),
        *(Cell(f"{len(images):,}") for images in (each.worse, each.better)),
        Cell(p_text(each.p)),
    ]

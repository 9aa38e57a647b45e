"""A small network, and images that are easy and hard to attack, on which the contract is checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model, ScoreGradient
from parsimon.core.threat import Threat
from parsimon.core.types import Attack, Image, Task

BUDGET = 120  # the longest step of the built-in attacks takes a hundred queries
SHAPES = ((3, 8, 8), (1, 8, 8), (3, 9, 7), (1, 7, 12), (1, 1, 5), (1, 1, 1))
LARGE = (3, 56, 50)  # rendered by the canvas for large images
THREATS = (  # every pair of choices occurs in one of them
    Threat(0.02),
    Threat(0.02, loss="margin", eight_bit=True),
    Threat(0.02, targeted=True, eight_bit=True),
    Threat(0.02, targeted=True, loss="margin"),
)
LABEL_THREATS = (
    Threat(0.02, loss="label"),
    Threat(0.02, loss="label", eight_bit=True, until_budget=True),
    Threat(0.02, targeted=True, loss="label", eight_bit=True),
    Threat(0.02, targeted=True, loss="label", until_budget=True),
)


def threats_for(attack: Attack) -> tuple[Threat, ...]:
    """Return the threats under which an attack is checked."""
    return LABEL_THREATS if attack.needs == "label" else THREATS


@dataclass(frozen=True)
class Network(Model):
    """A classifier that is neither linear nor monotone, with its gradient.

    The scores of a row do not depend on other rows, to the last bit: all operations round alike at every position.
    """

    shape: tuple[int, int, int]
    classes: int = 4
    seed: int = 0

    gives = "gradient"

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        weights, offsets = self._weights, self._offsets(images)
        return np.asarray((weights * offsets / (1 + offsets * offsets)).sum(axis=-1))

    def vjp(
        self, images: NDArray[np.float32], score_gradient: ScoreGradient
    ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        scores, squares = self(images), self._offsets(images) ** 2
        derivatives = 6 * self._weights * (1 - squares) / (1 + squares) ** 2
        by_score = score_gradient(scores)
        gradient = sum(by_score[:, number, None] * derivatives[:, number] for number in range(self.classes))
        return scores, np.asarray(gradient, np.float32).reshape(images.shape)

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        return np.random.default_rng(self.seed).normal(size=(self.classes, int(np.prod(self.shape))))

    @cached_property
    def _centres(self) -> NDArray[np.float64]:
        return np.random.default_rng(self.seed + 1).random(self._weights.shape)

    def _offsets(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        return 6 * (images.reshape(len(images), 1, -1).astype(np.float64) - self._centres)


@dataclass(frozen=True)
class Recording(Network):
    """A network that keeps its input rows."""

    rows: list[Image] = field(default_factory=list, compare=False)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        self.rows.extend(images)
        return super().__call__(images)


@dataclass(frozen=True)
class Labels(Network):
    """A network that returns the predicted class alone."""

    gives = "label"  # type: ignore[assignment]  # a network has gradients

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        return np.asarray(super().__call__(images).argmax(axis=1))


@lru_cache(maxsize=64)
def tasks_for(shape: tuple[int, int, int], threat: Threat, count: int = 6) -> tuple[Task, ...]:
    """Return tasks from the border between two classes to as far from it as possible; some pixels are 0 or 1.

    For targeted label-only attacks, every other task has an example of its target class.
    """
    images = np.random.default_rng(2).random((512, *shape), np.float32)
    images = np.clip(images * np.float32(1.2) - np.float32(0.1), 0, 1)
    if threat.eight_bit:
        images = eight_bit(images)
    images.flags.writeable = False  # all clauses share them
    scores = Network(shape)(images)
    order, heights = np.argsort(scores, axis=1), np.sort(scores, axis=1)
    goals = order[:, -2] if threat.targeted else order[:, -1]
    by_margin = np.argsort(heights[:, -1] - heights[:, -2])
    ranks = np.linspace(0, 1, count) ** 3 * (len(images) - 1)  # most are near enough to the border to be fooled
    picked = by_margin[np.maximum(ranks.astype(int), np.arange(count))]
    tasks = [Task(int(index), images[index], int(goals[index])) for index in picked]
    if threat.targeted and threat.loss == "label":
        examples = images[(order[:, -1] == goals[picked, None]).argmax(axis=1)]
        tasks[::2] = [replace(task, example=example) for task, example in zip(tasks[::2], examples[::2], strict=True)]
    return tuple(tasks)


def eight_bit(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round pixels to k / 255."""
    levels = np.clip(np.rint(pixels * np.float32(255)), 0, 255)
    return np.asarray(levels / np.float32(255), np.float32)

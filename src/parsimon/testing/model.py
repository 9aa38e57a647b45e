"""A small network, and images for it that are easy and hard to attack: what the contract is tested on."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model, ScoreGradient
from parsimon.core.threat import Threat
from parsimon.core.types import Image, Task

BUDGET = 120  # the longest step of our own attacks takes a hundred queries
SHAPES = ((3, 8, 8), (1, 8, 8), (3, 9, 7), (1, 7, 12), (1, 1, 5), (1, 1, 1))
LARGE = (3, 56, 50)  # such images are drawn in place
THREATS = (  # any two of the choices meet in one of them
    Threat(0.02),
    Threat(0.02, loss="margin", eight_bit=True),
    Threat(0.02, targeted=True, eight_bit=True),
    Threat(0.02, targeted=True, loss="margin"),
)


@dataclass(frozen=True)
class Network(Model):
    """A classifier of `shape` images that is neither linear nor monotone, with its gradient.

    A row's scores are its own to the last bit, whatever lies beside it: they take only operations that round alike
    wherever a number lies in an array, and a sum along the row.
    """

    shape: tuple[int, int, int]
    classes: int = 4
    seed: int = 0

    only_reads = True
    gives = "gradient"

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        weights, along = self._weights, self._along(images)
        return np.asarray((weights * along / (1 + along * along)).sum(axis=-1))

    def vjp(
        self, images: NDArray[np.float32], score_gradient: ScoreGradient
    ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        scores, squares = self(images), self._along(images) ** 2
        rises = 6 * self._weights * (1 - squares) / (1 + squares) ** 2
        slopes = score_gradient(scores)
        gradient = sum(slopes[:, number, None] * rises[:, number] for number in range(self.classes))
        return scores, np.asarray(gradient, np.float32).reshape(images.shape)

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        return np.random.default_rng(self.seed).normal(size=(self.classes, int(np.prod(self.shape))))

    @cached_property
    def _centres(self) -> NDArray[np.float64]:
        return np.random.default_rng(self.seed + 1).random(self._weights.shape)

    def _along(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        return 6 * (images.reshape(len(images), 1, -1).astype(np.float64) - self._centres)


@dataclass(frozen=True)
class Recording(Network):
    """Keeps the rows that it is shown."""

    only_reads = False
    rows: list[Image] = field(default_factory=list, compare=False)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        self.rows.extend(images)
        return super().__call__(images)


@lru_cache(maxsize=64)
def tasks_for(shape: tuple[int, int, int], threat: Threat, count: int = 6) -> tuple[Task, ...]:
    """From one at the border between two classes to one as far from it as can be; some pixels are 0 or 1."""
    images = np.random.default_rng(2).random((512, *shape), np.float32)
    images = np.clip(images * np.float32(1.2) - np.float32(0.1), 0, 1)
    if threat.eight_bit:
        images = eight_bit(images)
    images.flags.writeable = False  # every clause sees the same
    scores = Network(shape)(images)
    order, heights = np.argsort(scores, axis=1), np.sort(scores, axis=1)
    goals = order[:, -2] if threat.targeted else order[:, -1]
    by_margin = np.argsort(heights[:, -1] - heights[:, -2])
    ranks = np.linspace(0, 1, count) ** 3 * (len(images) - 1)  # most are near enough to be fooled sooner or later
    picked = by_margin[np.maximum(ranks.astype(int), np.arange(count))]
    return tuple(Task(int(index), images[index], int(goals[index])) for index in picked)


def eight_bit(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    levels = np.clip(np.rint(pixels * np.float32(255)), 0, 255)
    return np.asarray(levels / np.float32(255), np.float32)

"""An attack with a fixed list of asks, and a model whose scores are easy to compute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Ask, Attack, ImageContext, Images, Outcome, Reply, Search

SHAPE = (3, 8, 8)


def results(outcomes: Iterator[Outcome]) -> dict[int, Outcome]:
    return {outcome.index: outcome for outcome in outcomes}


@dataclass(frozen=True)
class Scripted(Attack):
    """Yields a fixed list of asks and keeps the replies."""

    asks: tuple[Ask, ...]
    heard: list[Reply] = field(default_factory=list)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        for ask in self.asks:
            self.heard.append((yield ask))


def grey(*levels: float, charged: bool = True, eligible_from: float = -math.inf, gradient: bool = False) -> Ask:
    """Return an ask for 2 x 2 images of one level each."""
    return Ask(
        Images(np.stack([np.full((1, 2, 2), level, np.float32) for level in levels])), charged, eligible_from, gradient
    )


def brightness(images: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return scores for class 1 above a mean of 0.5; the untargeted margin loss of class 0 is the mean minus 0.5."""
    mean = images.mean(axis=(1, 2, 3), dtype=np.float64)
    return np.stack([np.full(len(images), 0.5), mean], axis=1)

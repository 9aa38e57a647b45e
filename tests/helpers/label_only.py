"""A label-only attack that is easy to follow, and the same network reduced to its labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Ask, Attack, ImageContext, Images, Search
from parsimon.models import FunctionModel
from parsimon.testing import Network


@dataclass(frozen=True)
class Shrinking(Attack):
    """Random directions of signs at a radius that shrinks after each adversarial point, several per ask.

    Some points lie far outside the ball, and some inside it.
    """

    needs: ClassVar = "label"

    together: int = 3
    asks: int | None = None  # None: without end

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        radius, asked = 10 * context.threat.eps, 0
        while self.asks is None or asked < self.asks:
            signs = rng.choice([-1.0, 1.0], (self.together, *context.shape))
            radii = radius * rng.uniform(0.5, 1, (self.together, 1, 1, 1))
            pixels = np.clip(context.image + radii * signs, 0, 1).astype(np.float32)
            reply = yield Ask(Images(pixels))
            asked += 1
            if np.isfinite(reply.loss).any():
                radius = 0.9 * float(-reply.loss.max())


def labels_of(network: Network) -> FunctionModel:
    """Return the network as a function to class numbers."""

    def classify(images: NDArray[np.float32]) -> NDArray[np.intp]:
        labels: NDArray[np.intp] = network(images).argmax(axis=1)
        return labels

    return FunctionModel(classify)

"""Three classes by a sine of each pixel: small, and not fooled at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def build() -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
    weights = np.random.default_rng(0).normal(size=(3, 48))

    def model(images: NDArray[np.float32]) -> NDArray[np.float64]:
        rows = images.reshape(len(images), 1, -1).astype(np.float64)
        scores: NDArray[np.float64] = (np.sin(5 * rows) * weights).sum(axis=-1)
        return scores

    return model

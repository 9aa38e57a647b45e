"""A plain function as the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model

ScoreFunction = Callable[[NDArray[np.float32]], NDArray[Any]]


class FunctionModel(Model):
    """A function from numpy images (k, channels, rows, columns), float32 in [0, 1], to scores (k, classes).

    It may return class numbers (k,) instead.

    It is never called with padding, since a service behind it may count its queries.
    """

    def __init__(self, function: ScoreFunction) -> None:
        self._function = function

    def __call__(self, images: NDArray[Any]) -> NDArray[Any]:
        return self._function(images)

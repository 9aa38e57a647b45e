"""A plain function as the model."""

from __future__ import annotations

from typing import Any

import array_api_compat.numpy as numpy_namespace
from numpy.typing import NDArray

from parsimon.core.types import ScoreFunction


class FunctionModel:
    """A function from numpy images (k, channels, rows, columns), float32 in [0, 1], to scores (k, classes).

    It is called with just the images that are asked, never with padding: behind it may be a service that counts.
    """

    namespace = numpy_namespace
    device = "cpu"
    fixed_batch = False

    def __init__(self, function: ScoreFunction) -> None:
        self._function = function

    def __call__(self, images: NDArray[Any]) -> NDArray[Any]:
        return self._function(images)

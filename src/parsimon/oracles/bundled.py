"""A bundled network as the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon import zoo
from parsimon.oracles.onnx import OnnxOracle


class BundledOracle(OnnxOracle):
    """Runs on ONNX Runtime; gradients come from the same weights as a torch module, which is opened when needed."""

    def __init__(self, name: str) -> None:
        super().__init__(zoo.path(name))
        self._name = name

    def pull_back(
        self, images: NDArray[np.float32], slope: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        twin = self._twin
        return twin.pull_back(twin.namespace.asarray(images), slope)

    @cached_property
    def _twin(self) -> Any:
        module = zoo.module(self._name)
        from parsimon.oracles.torch import TorchOracle

        return TorchOracle(module)

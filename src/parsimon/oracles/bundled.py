"""A bundled network as the model."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon import zoo
from parsimon.oracles.onnx import OnnxOracle
from parsimon.oracles.torch import TorchOracle
from parsimon.protocol import Slope


class BundledOracle(OnnxOracle):
    """Runs on ONNX Runtime; gradients come from the same weights as a torch module, which is opened when needed."""

    def __init__(self, name: str) -> None:
        super().__init__(zoo.path(name))
        self._name = name

    def pull_back(self, images: NDArray[np.float32], slope: Slope) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._twin.pull_back(self._twin.namespace.asarray(images), slope)

    @cached_property
    def _twin(self) -> TorchOracle:
        return TorchOracle(zoo.module(self._name))

"""A torch module as the model, on whatever device it lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import ModelError, require


class TorchOracle:
    """Shows images to a torch module in evaluation mode, without gradients, and leaves the module as it was found."""

    # Kernels are picked by the shape of the batch, and round differently.
    fixed_batch = True

    def __init__(self, module: Any) -> None:
        self._torch = require("torch", "torch")
        self.namespace = require("array_api_compat.torch", "torch")
        self._module = module
        weight = next((each for each in module.parameters() if each.is_floating_point()), None)
        self.device = self._torch.device("cpu") if weight is None else weight.device
        self._dtype = self._torch.float32 if weight is None else weight.dtype

    def __call__(self, images: Any) -> NDArray[Any]:
        with self._torch.no_grad(), _evaluating(self._module):
            scores = self._module(images.to(self._dtype))
        if not isinstance(scores, self._torch.Tensor):
            raise ModelError(
                f"the module must return one tensor of scores (images, classes); got {type(scores).__name__}. "
                "Wrap it in a module or a function that returns the scores alone."
            )
        return np.asarray(scores.detach().to("cpu", self._torch.float32))


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True

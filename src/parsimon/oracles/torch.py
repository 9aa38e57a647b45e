"""A torch module as the model, on whatever device it lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import ModelError, require
from parsimon.protocol import Slope


class TorchOracle:
    """Shows images to a torch module in evaluation mode, and leaves the module as it was found."""

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
            return self._numpy(self._scores(images.to(self._dtype)))

    def pull_back(self, images: Any, slope: Slope) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scores, and gradients with respect to the images; those of the weights are left alone."""
        with self._torch.enable_grad(), _evaluating(self._module):
            leaves = images.to(self._dtype).detach().requires_grad_()
            scores = self._scores(leaves)
            told = self._numpy(scores)
            weights = self._torch.as_tensor(slope(told), dtype=scores.dtype, device=scores.device)
            (gradients,) = self._torch.autograd.grad(scores, leaves, weights)
        return told, self._numpy(gradients)

    def _scores(self, images: Any) -> Any:
        scores = self._module(images)
        if not isinstance(scores, self._torch.Tensor):
            raise ModelError(
                f"the module must return one tensor of scores (images, classes); got {type(scores).__name__}. "
                "Wrap it in a module or a function that returns the scores alone."
            )
        return scores

    def _numpy(self, tensor: Any) -> NDArray[Any]:
        return np.asarray(tensor.detach().to("cpu", self._torch.float32))


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

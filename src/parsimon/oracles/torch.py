"""A torch module as the model, or any function of torch tensors, on whatever device it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import ModelError, require
from parsimon.protocol import Slope


class TensorOracle:
    """Shows images to a function of torch tensors."""

    # Kernels are picked by the shape of the batch, and round differently.
    fixed_batch = True

    def __init__(self, function: Callable[[Any], Any], device: Any, dtype: Any = None) -> None:
        self._torch = require("torch", "torch")
        self.namespace = require("array_api_compat.torch", "torch")
        self._function = function
        self.device = device
        self._dtype = self._torch.float32 if dtype is None else dtype

    def __call__(self, images: Any) -> NDArray[Any]:
        with self._torch.no_grad(), self._evaluating():
            return self._numpy(self._scores(images.to(self._dtype)))

    def pull_back(self, images: Any, slope: Slope) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scores, and gradients with respect to the images; those of the weights are left alone."""
        with self._torch.enable_grad(), self._evaluating():
            leaves = images.to(self._dtype).detach().requires_grad_()
            scores = self._scores(leaves)
            told = self._numpy(scores)
            weights = self._torch.as_tensor(slope(told), dtype=scores.dtype, device=scores.device)
            (gradients,) = self._torch.autograd.grad(scores, leaves, weights)
        return told, self._numpy(gradients)

    def _evaluating(self) -> AbstractContextManager[None]:
        """Around each call."""
        return nullcontext()

    def _scores(self, images: Any) -> Any:
        scores = self._function(images)
        if not isinstance(scores, self._torch.Tensor):
            raise ModelError(
                f"the module must return one tensor of scores (images, classes); got {type(scores).__name__}. "
                "Wrap it in a module or a function that returns the scores alone."
            )
        return scores

    def _numpy(self, tensor: Any) -> NDArray[Any]:
        return np.asarray(tensor.detach().to("cpu", self._torch.float32))


class TorchOracle(TensorOracle):
    """Shows images to a torch module in evaluation mode, and leaves the module as it was found.

    A module may say with an attribute `image_shape` which images it takes.
    """

    def __init__(self, module: Any) -> None:
        weight = next((each for each in module.parameters() if each.is_floating_point()), None)
        device = require("torch", "torch").device("cpu") if weight is None else weight.device
        super().__init__(module, device, None if weight is None else weight.dtype)
        self.image_shape = getattr(module, "image_shape", None)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        training = [part for part in self._function.modules() if part.training]  # type: ignore[attr-defined]
        for part in training:
            part.training = False
        try:
            yield
        finally:
            for part in training:
                part.training = True

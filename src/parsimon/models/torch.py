"""A torch module as the model, or any function of torch tensors, on any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model, ScoreGradient
from parsimon.errors import ModelError, require
from parsimon.models.chunks import call_in_chunks, images_per_call

_MOST_PER_CALL = 64  # images on a CPU: small networks take less time per image in larger calls
_PINNED = ("cuda", "xpu")  # devices that copy to and from pinned memory while they compute
_ROUNDING = 1e-4  # of the largest score: by how much two orders of the same sums may differ in single precision


class TensorModel(Model):
    """A function of torch tensors.

    On a CPU, a convolutional network is faster on images whose channels come last in memory. The images and the
    precision are the same, so only the last digits of the scores can differ. The first images are shown in both memory
    formats. A network that fails on one of them, or returns other scores, is run as it is.

    On a GPU, a call returns before it has finished. `start` queues the forward pass and the copy of the scores, and
    leaves the caller to wait for both.
    """

    gives = "gradient"

    def __init__(
        self, function: Callable[[Any], Any], device: Any, dtype: Any = None, *, try_channels_last: bool = True
    ) -> None:
        self._torch = require("torch", "torch")
        self.namespace = require("array_api_compat.torch", "torch")
        self._function = function
        self.device = self._torch.device(device)
        self._dtype = self._torch.float32 if dtype is None else dtype
        on_cpu = self.device.type == "cpu"
        self.fixed_batch = not on_cpu  # kernels are picked by the shape of the batch, and round differently
        self.asynchronous = self.device.type in _PINNED
        undecided = try_channels_last and on_cpu and self._dtype is self._torch.float32
        self._channels_last: bool | None = None if undecided else False  # None: the first images decide
        self.backend = f"torch on {self.device.type}"
        self.runtime = f"torch {self._torch.__version__}"

    def __call__(self, images: Any) -> NDArray[Any]:
        with self._torch.no_grad(), self._evaluating():
            images = images.to(self._dtype)
            if self._channels_last is None:
                return self._choose_memory_format(images)
            return self._numpy(self._scores(images, channels_last=self._channels_last))

    def start(self, images: Any) -> Callable[[], NDArray[Any]]:
        if not self.asynchronous:
            return partial(self, images)
        with self._torch.no_grad(), self._evaluating():
            scores = self._scores(images.to(self._dtype)).detach()
        if scores.device.type not in _PINNED:  # a function may fetch its scores itself
            return partial(self._numpy, scores)
        fetched = self._torch.empty(scores.shape, dtype=scores.dtype, pin_memory=True)
        fetched.copy_(scores, non_blocking=True)
        copied = self._torch.Event(scores.device)
        copied.record(self._torch.accelerator.current_stream(scores.device))

        def wait() -> NDArray[Any]:
            copied.synchronize()
            return self._numpy(fetched)

        return wait

    def put(self, array: NDArray[Any]) -> Any:
        if not self.asynchronous:
            return super().put(array)
        # A copy from memory that is not pinned would wait for the batch that the device computes.
        return self._torch.from_numpy(array).pin_memory().to(self.device, non_blocking=True)

    def _choose_memory_format(self, images: Any) -> NDArray[Any]:
        """Return the scores of the first images, and choose the memory format of all later ones."""
        expected = self._numpy(self._scores(images))
        self._channels_last = False
        try:
            scores = self._numpy(self._scores(images, channels_last=True))
        except Exception:  # a network may depend on the memory format, and fail in any way
            return expected
        if not _agree(scores, expected):
            return expected
        self._channels_last = True
        self.backend = f"torch on {self.device.type}, channels last"
        return scores

    def vjp(self, images: Any, score_gradient: ScoreGradient) -> tuple[NDArray[Any], NDArray[Any]]:
        with self._torch.enable_grad(), self._evaluating():
            leaves = images.to(self._dtype).detach().requires_grad_()
            outputs = self._scores(leaves)
            scores = self._numpy(outputs)
            weights = self._torch.as_tensor(score_gradient(scores), dtype=outputs.dtype, device=outputs.device)
            (gradients,) = self._torch.autograd.grad(outputs, leaves, weights)
        return scores, self._numpy(gradients)

    def _evaluating(self) -> AbstractContextManager[None]:
        """Enter evaluation mode for one call."""
        return nullcontext()

    def _scores(self, images: Any, *, channels_last: bool = False) -> Any:
        def run(part: Any) -> Any:
            return self._run(part.contiguous(memory_format=self._torch.channels_last) if channels_last else part)

        if self.fixed_batch:
            return run(images)
        return call_in_chunks(run, images, images_per_call(images.shape[1:], _MOST_PER_CALL), self._torch)

    def _run(self, images: Any) -> Any:
        scores = self._function(images)
        if not isinstance(scores, self._torch.Tensor):
            raise ModelError(
                f"the module must return one tensor of scores (images, classes); got {type(scores).__name__}. "
                "Wrap it in a module or a function that returns the scores alone."
            )
        return scores.clone()  # the module may reuse its output buffer in the next call

    def _numpy(self, tensor: Any) -> NDArray[Any]:
        found = tensor.detach().to("cpu")
        return np.asarray(found.to(self._torch.float32) if found.is_floating_point() else found)  # else class numbers


def _agree(scores: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Return whether scores are equal up to rounding, and the predicted classes equal."""
    if expected.dtype.kind != "f":  # class numbers
        return np.array_equal(scores, expected)
    return (
        scores.shape == expected.shape
        and np.allclose(scores, expected, rtol=0, atol=_ROUNDING * float(np.abs(expected).max()))
        and np.array_equal(scores.argmax(axis=-1), expected.argmax(axis=-1))
    )


class TorchModel(TensorModel):
    """A torch module, called in evaluation mode and left in the mode it was in.

    A module may declare the shape of its images with an attribute `image_shape`.
    """

    def __init__(self, module: Any, *, plain: bool = False) -> None:
        """`plain`: never change the memory format."""
        torch = require("torch", "torch")
        weight = next((each for each in module.parameters() if each.is_floating_point()), None)
        convolves = any(isinstance(part, torch.nn.Conv2d) for part in module.modules())
        device, dtype = ("cpu", None) if weight is None else (weight.device, weight.dtype)
        super().__init__(module, device, dtype, try_channels_last=convolves and not plain)
        self.image_shape = getattr(module, "image_shape", None)

    def plain(self) -> TorchModel:
        return TorchModel(self._function, plain=True)

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

"""A torch module as the model, or any function of torch tensors, on whatever device it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model, ScoreGradient
from parsimon.errors import ModelError, require
from parsimon.models.pieces import images_per_call, in_pieces

_AT_MOST = 64  # images in a call on a processor: small networks take less time for each of more
_ROUNDING = 1e-4  # of the largest score: what two orders of the same sums may differ by in single precision


class TensorModel(Model):
    """Shows images to a function of torch tensors.

    On a CPU, a convolutional network is faster on images whose channels come last in memory. They are the same images,
    the network is the user's own and its precision is kept, so only the last digits of the scores can differ. The first
    images are shown both ways, and a network that fails on them, or says anything else, is run plainly.
    """

    gives = "gradient"

    def __init__(self, function: Callable[[Any], Any], device: Any, dtype: Any = None, *, turns: bool = True) -> None:
        """`turns`: whether images may be shown with their channels last."""
        self._torch = require("torch", "torch")
        self.namespace = require("array_api_compat.torch", "torch")
        self._function = function
        self.device = self._torch.device(device)
        self._dtype = self._torch.float32 if dtype is None else dtype
        on_cpu = self.device.type == "cpu"
        self.fixed_batch = not on_cpu  # kernels are picked by the shape of the batch, and round differently
        may_turn = turns and on_cpu and self._dtype is self._torch.float32
        self._channels_last: bool | None = None if may_turn else False  # None: the first images will tell
        self.backend = f"torch on {self.device.type}"
        self.runtime = f"torch {self._torch.__version__}"

    def __call__(self, images: Any) -> NDArray[Any]:
        with self._torch.no_grad(), self._evaluating():
            images = images.to(self._dtype)
            if self._channels_last is None:
                return self._choose(images)
            return self._numpy(self._scores(images, turned=self._channels_last))

    def _choose(self, images: Any) -> NDArray[Any]:
        """The scores of the first images, and with them the way to run the network from now on."""
        plain = self._numpy(self._scores(images))
        try:
            turned = self._numpy(self._scores(images, turned=True))
        except Exception:  # a network may ask for the order in memory that it knows, and fail in its own words
            self._channels_last = False
        else:
            self._channels_last = _agree(turned, plain)
        if not self._channels_last:
            return plain
        self.backend = f"torch on {self.device.type}, channels last"
        return turned

    def vjp(self, images: Any, score_gradient: ScoreGradient) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scores, and gradients with respect to the images; those of the weights are left alone."""
        with self._torch.enable_grad(), self._evaluating():
            leaves = images.to(self._dtype).detach().requires_grad_()
            scores = self._scores(leaves)
            told = self._numpy(scores)
            weights = self._torch.as_tensor(score_gradient(told), dtype=scores.dtype, device=scores.device)
            (gradients,) = self._torch.autograd.grad(scores, leaves, weights)
        return told, self._numpy(gradients)

    def _evaluating(self) -> AbstractContextManager[None]:
        """Around each call."""
        return nullcontext()

    def _scores(self, images: Any, *, turned: bool = False) -> Any:
        run = self._turned if turned else self._plain
        if self.fixed_batch:
            return run(images)
        return in_pieces(run, images, images_per_call(images.shape[1:], _AT_MOST), self._torch)

    def _turned(self, images: Any) -> Any:
        """The scores of images whose channels come last."""
        return self._plain(images.contiguous(memory_format=self._torch.channels_last))

    def _plain(self, images: Any) -> Any:
        scores = self._function(images)
        if not isinstance(scores, self._torch.Tensor):
            raise ModelError(
                f"the module must return one tensor of scores (images, classes); got {type(scores).__name__}. "
                "Wrap it in a module or a function that returns the scores alone."
            )
        return scores.clone()  # the module may reuse its output buffer in the next call

    def _numpy(self, tensor: Any) -> NDArray[Any]:
        return np.asarray(tensor.detach().to("cpu", self._torch.float32))


def _agree(scores: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Whether scores are the same up to rounding, and the seen classes are just the same."""
    return (
        scores.shape == expected.shape
        and np.allclose(scores, expected, rtol=0, atol=_ROUNDING * float(np.abs(expected).max()))
        and np.array_equal(scores.argmax(axis=-1), expected.argmax(axis=-1))
    )


class TorchModel(TensorModel):
    """Shows images to a torch module in evaluation mode, and leaves the module as it was found.

    A module may say with an attribute `image_shape` which images it takes.
    """

    def __init__(self, module: Any, *, plain: bool = False) -> None:
        """`plain`: show the images as they come, whatever is faster."""
        torch = require("torch", "torch")
        weight = next((each for each in module.parameters() if each.is_floating_point()), None)
        convolves = any(isinstance(part, torch.nn.Conv2d) for part in module.modules())
        device, dtype = ("cpu", None) if weight is None else (weight.device, weight.dtype)
        super().__init__(module, device, dtype, turns=convolves and not plain)
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

"""A Foolbox model as the model, of whichever framework: its bounds and its preprocessing stay its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model
from parsimon.errors import require
from parsimon.models.frame import Frame
from parsimon.models.torch import TensorModel


def frame_of(model: Any) -> Frame:
    """The range of its pixels, and where its channels are: first, unless it says otherwise."""
    low, high = model.bounds
    return Frame(float(low), float(high), getattr(_innermost(model), "data_format", None) == "channels_last")


def foolbox_model(model: Any, like: Any = None) -> Model:
    """The model as an oracle, which is shown tensors like the given one; by default those that it was made for."""
    tensors = require("eagerpy", "foolbox")
    like = getattr(_innermost(model), "dummy", None) if like is None else like
    frame = frame_of(model)
    if isinstance(like, tensors.PyTorchTensor):
        return TensorModel(lambda images: model(frame.theirs(images)), like.raw.device)
    return _NumpyModel(model, frame, tensors.astensor(np.zeros(0, np.float32)) if like is None else like)


class _NumpyModel(Model):
    """Shows images to a Foolbox model of another framework, as that framework's tensors."""

    # Kernels are picked by the shape of the batch, and may round differently.
    fixed_batch = True

    def __init__(self, model: Any, frame: Frame, like: Any) -> None:
        self._model, self._frame, self._like = model, frame, like

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        tensors = require("eagerpy", "foolbox")
        shown = tensors.from_numpy(self._like, self._frame.theirs(images))
        scores: NDArray[Any] = tensors.astensor(self._model(shown)).numpy()
        return scores


def _innermost(model: Any) -> Any:
    """The model inside Foolbox's wrappers, which do not all tell what it is."""
    base = require("foolbox", "foolbox").Model
    while isinstance(getattr(model, "_model", None), base):
        model = model._model
    return model

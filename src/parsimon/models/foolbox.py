"""A Foolbox model of any framework as the model. Its bounds and its preprocessing stay its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model
from parsimon.errors import require
from parsimon.models.image_format import ImageFormat
from parsimon.models.torch import TensorModel


def format_of(model: Any) -> ImageFormat:
    """Return the format of its images. Channels come first unless the model says otherwise."""
    low, high = model.bounds
    return ImageFormat(float(low), float(high), getattr(_innermost(model), "data_format", None) == "channels_last")


def foolbox_model(model: Any, like: Any = None) -> Model:
    """Wrap a Foolbox model. It is given tensors like `like`; by default those that it was made for."""
    tensors = require("eagerpy", "foolbox")
    like = getattr(_innermost(model), "dummy", None) if like is None else like
    form = format_of(model)
    if isinstance(like, tensors.PyTorchTensor):
        return TensorModel(lambda images: model(form.to_framework(images)), like.raw.device)
    return _NumpyModel(model, form, tensors.astensor(np.zeros(0, np.float32)) if like is None else like)


class _NumpyModel(Model):
    """A Foolbox model of another framework than torch."""

    fixed_batch = True  # kernels are picked by the shape of the batch, and may round differently

    def __init__(self, model: Any, form: ImageFormat, like: Any) -> None:
        self._model, self._format, self._like = model, form, like

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        tensors = require("eagerpy", "foolbox")
        inputs = tensors.from_numpy(self._like, self._format.to_framework(images))
        scores: NDArray[Any] = tensors.astensor(self._model(inputs)).numpy()
        return scores


def _innermost(model: Any) -> Any:
    """Return the model inside Foolbox's wrappers, which hide its attributes."""
    base = require("foolbox", "foolbox").Model
    while isinstance(getattr(model, "_model", None), base):
        model = model._model
    return model

"""A classifier of the Adversarial Robustness Toolbox as the model, including its black-box ones.

It is queried by `predict`, with all its preprocessing and its defences. ART does not record whether that returns logits
or probabilities: `scores=None` finds out from the scores of the first images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model, ScoreGradient
from parsimon.errors import InputError, require
from parsimon.models.image_format import ImageFormat

_CHANNELS = (1, 3)


def format_of(classifier: Any) -> ImageFormat:
    """Return the format of its images."""
    if classifier.clip_values is None:
        raise InputError("the classifier must say what range its pixels have: give it clip_values=(0, 1) or the like")
    low, high = (np.unique(np.asarray(end)) for end in classifier.clip_values)
    if len(low) > 1 or len(high) > 1:
        raise InputError("all pixels must have one range; the classifier's clip_values differ from pixel to pixel")
    return ImageFormat(float(low[0]), float(high[0]), not _channels_first(classifier))


def _channels_first(classifier: Any) -> bool:
    declared = getattr(classifier, "channels_first", None)
    if declared is not None:
        return bool(declared)
    shape = classifier.input_shape  # all that a BlackBoxClassifier declares
    if len(shape) != 3 or (shape[0] in _CHANNELS) == (shape[2] in _CHANNELS):
        raise InputError(
            f"the classifier's input_shape, {shape}, does not show which side holds the channels: use ART's "
            "BlackBoxClassifierNeuralNetwork, which takes channels_first"
        )
    return shape[0] in _CHANNELS


class ArtModel(Model):
    """An ART classifier; it gives gradients if its class has `class_gradient`."""

    def __init__(self, classifier: Any) -> None:
        kinds = require("art.estimators.classification.classifier", "art")
        black_box = require("art.estimators.classification.blackbox", "art")
        self._classifier = classifier
        self._format = format_of(classifier)
        self.gives = "gradient" if isinstance(classifier, kinds.ClassGradientsMixin) else "scores"
        # A service behind a function may count its queries, so it gets no padding. A framework picks kernels by the
        # shape of the batch, which may round differently.
        functions = (black_box.BlackBoxClassifier, black_box.BlackBoxClassifierNeuralNetwork)
        self.fixed_batch = not isinstance(classifier, functions)
        shape = tuple(classifier.input_shape)
        self.image_shape = shape[-1:] + shape[:-1] if self._format.channels_last else shape

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        return self._predict(self._format.to_framework(images))

    def _predict(self, inputs: NDArray[np.float32]) -> NDArray[Any]:
        # Copied: computing gradients may reuse the classifier's output buffer.
        return np.array(self._classifier.predict(inputs, batch_size=len(inputs)))

    def vjp(self, images: NDArray[np.float32], score_gradient: ScoreGradient) -> tuple[NDArray[Any], NDArray[Any]]:
        inputs = self._format.to_framework(images)
        scores = self._predict(inputs)
        jacobian = np.asarray(self._classifier.class_gradient(inputs))  # (images, classes, ...)
        weights = score_gradient(scores)
        gradient = np.einsum("nk,nk...->n...", weights, jacobian, dtype=np.float32, casting="same_kind")
        return scores, self._format.gradient_from_framework(gradient)

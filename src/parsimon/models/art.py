"""A classifier of the Adversarial Robustness Toolbox as the model, its black-box ones included.

It is asked by `predict`, with all its preprocessing and its defences. Whether that tells logits or probabilities is the
classifier's own affair and written nowhere: `scores=None` finds out from the scores of the first images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model, ScoreGradient
from parsimon.errors import InputError, require
from parsimon.models.frame import Frame

_CHANNELS = (1, 3)


def art_model(classifier: Any) -> Model:
    """The classifier as an oracle; with gradients, if it tells any."""
    gradients = require("art.estimators.classification.classifier", "art").ClassGradientsMixin
    return _GradientModel(classifier) if isinstance(classifier, gradients) else _PredictModel(classifier)


def frame_of(classifier: Any) -> Frame:
    """The range of its pixels, and where its channels are."""
    if classifier.clip_values is None:
        raise InputError("the classifier must say what range its pixels have: give it clip_values=(0, 1) or the like")
    low, high = (np.unique(np.asarray(end)) for end in classifier.clip_values)
    if len(low) > 1 or len(high) > 1:
        raise InputError("all pixels must have one range; the classifier's clip_values differ from pixel to pixel")
    return Frame(float(low[0]), float(high[0]), not _channels_first(classifier))


def _channels_first(classifier: Any) -> bool:
    told = getattr(classifier, "channels_first", None)
    if told is not None:
        return bool(told)
    shape = classifier.input_shape  # a BlackBoxClassifier says no more
    if len(shape) != 3 or (shape[0] in _CHANNELS) == (shape[2] in _CHANNELS):
        raise InputError(
            f"where the channels are cannot be told from the classifier's input_shape, {shape}: use ART's "
            "BlackBoxClassifierNeuralNetwork, which takes channels_first"
        )
    return shape[0] in _CHANNELS


class _PredictModel(Model):
    """Shows images to a classifier through `predict`, a model call at a time."""

    def __init__(self, classifier: Any) -> None:
        self._classifier = classifier
        self._frame = frame_of(classifier)
        # Behind a function there may be a service that counts, which must not be shown padding; a framework picks
        # kernels by the shape of the batch, which may round differently.
        black_box = require("art.estimators.classification.blackbox", "art")
        functions = (black_box.BlackBoxClassifier, black_box.BlackBoxClassifierNeuralNetwork)
        self.fixed_batch = not isinstance(classifier, functions)
        shape = tuple(classifier.input_shape)
        self.image_shape = shape[-1:] + shape[:-1] if self._frame.channels_last else shape

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        return self._predict(self._frame.theirs(images))

    def _predict(self, shown: NDArray[np.float32]) -> NDArray[Any]:
        # Copied: the classifier may reuse its output buffer when it is asked for gradients.
        return np.array(self._classifier.predict(shown, batch_size=len(shown)))


class _GradientModel(_PredictModel):
    """A classifier that tells the gradient of each class's score."""

    gives = "gradient"

    def vjp(self, images: NDArray[np.float32], score_gradient: ScoreGradient) -> tuple[NDArray[Any], NDArray[Any]]:
        shown = self._frame.theirs(images)
        scores = self._predict(shown)
        by_class = np.asarray(self._classifier.class_gradient(shown))  # (images, classes, ...)
        gradients = np.einsum("nk,nk...->n...", score_gradient(scores), by_class, dtype=np.float32, casting="same_kind")
        return scores, self._frame.gradients(gradients)

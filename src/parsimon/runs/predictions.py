"""Predict the classes of clean images: from one response each, or from many draws of a random model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.draws import Purpose, draw_keys
from parsimon.core.model import Keys, Model
from parsimon.core.threat import Sampling, Threat, predicted_classes
from parsimon.runs.classify import classify, draw_classes
from parsimon.runs.consistency import check_consistency
from parsimon.runs.same_model import agree, largest_difference
from parsimon.runs.score_kind import ScoreKind

_NOT_RANDOM = (
    "The model gave the same scores twice. Is it random? (Torch modules are run in evaluation mode, "
    "where dropout layers do nothing.) If not, leave out stochastic (--random), which takes more queries."
)
_KEYED = "The defence draws from the seed: the same run gives the same results, also with other batches or resumed."
_OWN_RANDOMNESS = (
    "The model has its own randomness: another run, another batch size or a resumed run sees other draws, so results "
    "vary."
)


class Predictions(ABC):
    """Predictions for clean images, which come in batches, in order."""

    def __init__(self, model: Model, kind: ScoreKind, batch_size: int) -> None:
        self._model, self._kind, self._batch_size = model, kind, batch_size
        self._columns: int | None = None
        self._predicted: list[NDArray[np.intp]] = []
        self._confidence: list[NDArray[np.float64]] = []
        self._warnings: tuple[str, ...] = ()

    @property
    def predicted(self) -> NDArray[np.intp]:
        """The classes of all images so far."""
        return np.concatenate(self._predicted)

    @abstractmethod
    def query(self, pixels: NDArray[np.float32], numbers: range) -> NDArray[Any]:
        """Return the scores of a batch, and see their kind. `numbers` are those of its images."""

    @abstractmethod
    def predict(self) -> None:
        """Predict the classes of the images that were queried last."""

    @abstractmethod
    def judge(self, truth: NDArray[np.intp]) -> dict[str, Any]:
        """Compare all predictions with the true classes; return fields of `CleanPredictions`."""

    def _classify(self, pixels: NDArray[np.float32], keys: Keys | None = None) -> NDArray[Any]:
        scores = classify(self._model, pixels, self._batch_size, self._columns, keys)
        self._columns = scores.shape[1]
        return scores


class ExactPredictions(Predictions):
    """Predictions from one response per image, of a model that is checked to respond to the image alone."""

    _scores: NDArray[Any]  # of the last batch

    def __init__(self, model: Model, kind: ScoreKind, batch_size: int, threat: Threat) -> None:
        super().__init__(model, kind, batch_size)
        self._threat = threat

    def query(self, pixels: NDArray[np.float32], numbers: range) -> NDArray[Any]:
        self._scores = scores = self._classify(pixels)
        if self._kind.see(scores):
            self._warnings = check_consistency(self._model, pixels, scores, self._kind.found, self._batch_size)
            self._threat = replace(self._threat, scores=self._kind.found)
            # All rows of earlier batches were one-hot, or the kind would have been known.
            one_hot = self._threat.confidence(np.eye(scores.shape[1])[:1])
            self._confidence = [] if one_hot is None else [np.repeat(one_hot, numbers.start)]
        return scores

    def predict(self) -> None:
        self._predicted.append(predicted_classes(self._scores))
        if (confidence := self._threat.confidence(self._scores)) is not None:
            self._confidence.append(confidence)

    def judge(self, truth: NDArray[np.intp]) -> dict[str, Any]:
        confidence = np.concatenate(self._confidence) if self._confidence else None
        return {"correct": self.predicted == truth, "confidence": confidence, "warnings": self._warnings}


class DrawnPredictions(Predictions):
    """Predictions of a random model: the class of most draws. An image is correct unless most of its draws err."""

    _pixels: NDArray[np.float32]  # of the last batch
    _keys: Callable[[int], Keys]  # of its images, by the number of the draw

    def __init__(self, model: Model, kind: ScoreKind, batch_size: int, sampling: Sampling, seed: int) -> None:
        super().__init__(model, kind, batch_size)
        self._draws, self._seed = sampling.draws, seed
        self._drawn: list[NDArray[np.intp]] = []
        self._varies, self._repeatable = True, False

    def query(self, pixels: NDArray[np.float32], numbers: range) -> NDArray[Any]:
        """Return the scores of the first draw of each image, so that a resumed run can compare them."""
        self._pixels, self._keys = pixels, partial(draw_keys, self._seed, numbers, Purpose.CLEAN)
        keys = self._keys(0)
        scores = self._classify(pixels, keys)
        if numbers.start == 0:
            again = self._classify(pixels, keys)
            self._varies = self._model.random or largest_difference(again, scores) > 0
            # A defence draws from the keys alone, but the model behind it may have its own randomness.
            self._repeatable = self._model.random and agree(again, scores)
        self._kind.see(scores)
        if numbers.start == 0 and agree(again, scores):
            checked = (self._model, pixels, scores, self._kind.found, self._batch_size, keys)
            self._warnings = check_consistency(*checked)
        return scores

    def predict(self) -> None:
        drawn = draw_classes(self._model, self._pixels, self._draws, self._keys, self._batch_size)
        classes = np.array([np.bincount(each).argmax() for each in drawn], np.intp)
        self._drawn.append(drawn)
        self._predicted.append(classes)
        self._confidence.append((drawn == classes[:, None]).mean(axis=1))

    def judge(self, truth: NDArray[np.intp]) -> dict[str, Any]:
        errors = (np.concatenate(self._drawn) != truth[:, None]).sum(axis=1)
        return {
            "correct": 2 * errors <= self._draws,
            "confidence": np.concatenate(self._confidence),
            "errors": errors,
            "draws": self._draws,
            "repeatable": self._repeatable,
            "remarks": (_KEYED if self._repeatable else _OWN_RANDOMNESS,),
            "warnings": (*self._warnings, *(() if self._varies else (_NOT_RANDOM,))),
        }

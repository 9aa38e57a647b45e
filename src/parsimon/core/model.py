"""The model as the attacker sees it: one base class, on which every capability is declared with a default."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from parsimon.core.threat import Scores
from parsimon.errors import ModelError

# What a response holds, from the least to the most; each level includes those before it.
AnswerLevel = Literal["label", "loss", "scores", "gradient"]
ANSWER_LEVELS: tuple[AnswerLevel, ...] = get_args(AnswerLevel)

# numpy follows the array-API standard itself from 2.1 on. The other module takes 0.15 s to import.
numpy_namespace: Any = np if hasattr(np, "__array_namespace_info__") else import_module("array_api_compat.numpy")

ScoreGradient = Callable[[NDArray[Any]], NDArray[Any]]  # from scores to the derivative of a loss by each of them


@dataclass(frozen=True)
class Traffic:
    """Images sent to a remote model for an attack, including those that only fill a batch.

    Attributes:
        attempted: Images sent, counted once per attempt.
        answered: Images whose scores came back, counted once.
    """

    attempted: int = 0
    answered: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.attempted + other.attempted, self.answered + other.answered)

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.attempted - other.attempted, self.answered - other.answered)


Keys = NDArray[np.int64]  # one row per image, from which its random draws come; `core.draws` has the columns


class History(ABC):
    """The queries that a detector has seen from one attacker."""

    @abstractmethod
    def observe(self, images: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Take further queries in their order, and return which of them are flagged."""


class Detector(ABC):
    """Recognises an attack by its queries. It changes no response."""

    @abstractmethod
    def history(self) -> History:
        """Return an empty history."""


def as_columns(response: NDArray[Any]) -> NDArray[Any]:
    """Return class numbers of shape (k,) as one column, and anything else as it is."""
    return response[:, None] if response.ndim == 1 and response.dtype.kind in "iu" else response


class Model(ABC):
    """A classifier: images (k, channels, rows, columns) in [0, 1] to scores (k, classes), or to class numbers (k,).

    A subclass implements `__call__` and overrides the attributes that differ, on the class or in `__init__`.

    Attributes:
        namespace: The array-API namespace of the images that it takes.
        device: The device of those images.
        fixed_batch: Whether all calls must have one shape for a row's scores not to depend on other rows.
        gives: The highest level of response; attacks that need more are refused.
        image_shape: (channels, rows, columns) that it takes, None for a free side; None if all are free.
        eight_bit_only: Whether it takes only pixels k / 255.
        top: The number of classes whose probabilities it returns; None if it returns all.
        random: Whether its responses to one image differ from call to call. Such a model is attacked only on request.
        returns: What it returns, if it knows; None: it is detected from the first scores.
        detector: Watches its queries; None if nothing does.
        asynchronous: Whether `start` returns before the scores are computed, by a device or threads of its own.
        saturating_batch: Images that keep it busy; None if only a full batch does.
        backend: How it is run. A stored run is only continued with the same backend.
        runtime: The framework and its version.
        fingerprint: A hash of its file.
        traffic: Images sent so far, if it is remote.
    """

    namespace: Any = numpy_namespace
    device: Any = "cpu"
    fixed_batch: bool = False
    gives: AnswerLevel = "scores"
    image_shape: tuple[int | None, ...] | None = None
    eight_bit_only: bool = False
    top: int | None = None
    random: bool = False
    returns: Scores | None = None
    detector: Detector | None = None
    asynchronous: bool = False
    saturating_batch: int | None = None
    backend: str | None = None
    runtime: str | None = None
    fingerprint: str | None = None
    traffic: Traffic | None = None

    @abstractmethod
    def __call__(self, images: Any) -> NDArray[Any]:
        """Return the scores of the images, or their class numbers."""

    def draw(self, images: Any, keys: Keys) -> NDArray[Any]:  # noqa: ARG002  (used by subclasses)
        """Return the scores of the images, with all randomness drawn from the keys, if it comes from parsimon.

        The same images and keys give the same scores in any batch. A model with a randomness of its own ignores them.
        """
        return self(images)

    def start(self, images: Any) -> Callable[[], NDArray[Any]]:
        """Begin a call and return a function that waits for its scores and raises what went wrong.

        Another call may begin before that function is called. By default, it makes the whole call.
        """
        return partial(self, images)

    def put(self, array: NDArray[Any]) -> Any:
        """Return a numpy array in the namespace and on the device of the model; do not wait for the copy."""
        return self.namespace.asarray(array, device=self.device)

    def vjp(self, images: Any, score_gradient: ScoreGradient) -> tuple[NDArray[Any], NDArray[Any]]:  # noqa: ARG002
        """Return the scores, and their vector-Jacobian product with `score_gradient(scores)`, per image."""
        raise ModelError(
            "this model gives no gradients, which a white-box attack needs: pass a torch module, or an ONNX file by "
            "its path or its name in the zoo"
        )

    def plain(self) -> Model:
        """Return the same model without any optimisation of its own, for `parsimon check` to compare speeds."""
        return self

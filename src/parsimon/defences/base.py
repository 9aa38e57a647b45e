"""Base classes of defences, and of the models behind them.

A defence is a frozen dataclass of settings. `protect` puts it in front of a model and returns the defended model:

- an `InputDefence` changes the images that the model receives, perhaps at random;
- a `ScoreDefence` changes the scores that it returns;
- a `StatefulDefence` watches the queries and flags an attack. It changes no response.

A random defence draws from keys that the engine passes, one per image. So its results depend neither on the batch size
nor on workers nor on interruptions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Detector, Keys, Model, ScoreGradient, Traffic
from parsimon.core.parsing import Configurable
from parsimon.core.threat import Scores, to_eight_bit
from parsimon.core.types import Paper
from parsimon.errors import InputError, quote

Changes = Literal["images", "scores", "nothing"]

_LEAST_PROBABILITY = 1e-30  # its logarithm is finite


class Defence(Configurable, ABC):
    """A frozen dataclass whose fields are its settings.

    Attributes:
        changes: What it changes. One that changes nothing watches the queries.
        random: Whether it makes any model random.
        paper: The paper that it comes from.
    """

    changes: ClassVar[Changes]
    random: ClassVar[bool] = False
    paper: ClassVar[Paper]

    @abstractmethod
    def protect(self, model: Model) -> Model:
        """Return the model behind this defence."""

    def undone(self) -> Defence | None:
        """Return what is left of the defence for an attacker who undoes it; None if nothing can be undone."""
        return None


class InputDefence(Defence):
    """Changes the images, perhaps at random."""

    changes: ClassVar = "images"

    @abstractmethod
    def transform(self, images: NDArray[np.float32], generators: Sequence[np.random.Generator]) -> NDArray[np.float32]:
        """Return the images that the model receives; a random change of an image draws from its own generator.

        Without randomness, there are no generators. The arguments must not be changed.
        """

    def protect(self, model: Model) -> Model:
        return InputDefendedModel(model, self)


class ScoreDefence(Defence):
    """Changes the scores.

    Attributes:
        returns: What the defended model returns.
    """

    changes: ClassVar = "scores"
    returns: ClassVar[Scores] = "logits"

    @abstractmethod
    def transform(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores to show for these logits. The argument must not be changed."""

    def protect(self, model: Model, returns: Scores | None = None) -> Model:
        """Return the model behind this defence.

        `returns` is what the model returns, unless the model says so itself. If nobody does, a run detects it from all
        clean images before it calls the defended model.
        """
        return ScoreDefendedModel(model, self, returns)


class StatefulDefence(Defence, Detector):
    """Watches the queries."""

    changes: ClassVar = "nothing"

    def protect(self, model: Model) -> Model:
        return WatchedModel(model, self)


class DefendedModel(Model):
    """A model behind a defence, with the capabilities of that model."""

    def __init__(self, model: Model, defence: Defence) -> None:
        if not isinstance(model, Model):
            raise InputError(
                f"{type(defence).__name__} protects an opened model; got {quote(model)}: open it with "
                "parsimon.models.as_model"
            )
        self.model, self.defence = model, defence
        self.namespace, self.device, self.fixed_batch = model.namespace, model.device, model.fixed_batch
        self.gives = "scores" if model.gives == "gradient" else model.gives  # nobody differentiates the defence
        self.image_shape, self.eight_bit_only, self.top = model.image_shape, model.eight_bit_only, model.top
        self.random, self.returns, self.detector = model.random, model.returns, model.detector
        self.saturating_batch, self.runtime, self.fingerprint = model.saturating_batch, model.runtime, model.fingerprint
        self.backend = model.backend

    @property
    def traffic(self) -> Traffic | None:  # type: ignore[override]  # it changes with every call
        return self.model.traffic

    def plain(self) -> Model:
        return self.around(self.model.plain())

    def around(self, model: Model) -> Model:
        """Return another model behind the same defence."""
        return self.defence.protect(model)


class InputDefendedModel(DefendedModel):
    """A model behind an input defence. It takes numpy images."""

    defence: InputDefence

    def __init__(self, model: Model, defence: InputDefence) -> None:
        super().__init__(model, defence)
        self.namespace, self.device = Model.namespace, Model.device
        self.random = defence.random or model.random
        self._entropy = np.random.default_rng()  # for calls without keys
        self._number = _defences_behind(model)  # defences in a row draw different numbers from one key

    def __call__(self, images: NDArray[Any]) -> NDArray[Any]:
        if not self.random:
            return self.model(self._transformed(images, []))
        return self.draw(images, self._entropy.integers(2**63, size=(len(images), 2)))

    def draw(self, images: NDArray[Any], keys: Keys) -> NDArray[Any]:
        generators = (
            [np.random.default_rng([self._number, *key]) for key in keys.tolist()] if self.defence.random else []
        )
        return self.model.draw(self._transformed(images, generators), keys)

    def _transformed(self, images: NDArray[Any], generators: Sequence[np.random.Generator]) -> Any:
        changed = self.defence.transform(images, generators)
        if self.model.eight_bit_only:
            changed = to_eight_bit(changed)
        return self.model.put(np.ascontiguousarray(changed, np.float32))


class ScoreDefendedModel(DefendedModel):
    """A model behind a score defence.

    Attributes:
        received: What the model behind it returns; None: not known yet, so calls are refused.
    """

    defence: ScoreDefence

    def __init__(self, model: Model, defence: ScoreDefence, received: Scores | None = None) -> None:
        super().__init__(model, defence)
        self.returns = defence.returns
        self.received = model.returns or ("probabilities" if model.top is not None else received)
        if model.gives == "label" or self.received == "labels":
            raise self._labels()

    def __call__(self, images: Any) -> NDArray[Any]:
        return self._shown(self.model(images))

    def draw(self, images: Any, keys: Keys) -> NDArray[Any]:
        return self._shown(self.model.draw(images, keys))

    def _shown(self, response: NDArray[Any]) -> NDArray[np.float64]:
        scores = np.asarray(response)
        if scores.ndim != 2 or scores.shape[1] < 2:
            raise self._labels()
        if self.received is None:
            raise InputError(
                f"{type(self.defence).__name__} must know whether the model returns logits or probabilities: pass "
                "returns='logits' or returns='probabilities' to protect"
            )
        logits = scores.astype(np.float64)
        if self.received == "probabilities":
            logits = np.log(np.maximum(logits, _LEAST_PROBABILITY))
        return self.defence.transform(logits)

    def around(self, model: Model) -> Model:
        return self.defence.protect(model, self.received)

    def _labels(self) -> InputError:
        name = type(self.defence).__name__
        return InputError(f"{name} changes scores, and this model returns labels", argument="defence")


class WatchedModel(DefendedModel):
    """A model whose queries are watched. It responds as the model itself does, with gradients too."""

    def __init__(self, model: Model, defence: StatefulDefence) -> None:
        super().__init__(model, defence)
        self.detector = defence
        self.gives, self.asynchronous = model.gives, model.asynchronous

    def __call__(self, images: Any) -> NDArray[Any]:
        return self.model(images)

    def draw(self, images: Any, keys: Keys) -> NDArray[Any]:
        return self.model.draw(images, keys)

    def start(self, images: Any) -> Callable[[], NDArray[Any]]:
        return self.model.start(images)

    def put(self, array: NDArray[Any]) -> Any:
        return self.model.put(array)

    def vjp(self, images: Any, score_gradient: ScoreGradient) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.model.vjp(images, score_gradient)


def undefended(model: Model) -> Model:
    """Return the model behind all defences; the model itself if there are none."""
    return undefended(model.model) if isinstance(model, DefendedModel) else model


def changes_scores(model: Model) -> bool:
    """Return whether a defence changes the scores of the model."""
    if not isinstance(model, DefendedModel):
        return False
    return isinstance(model, ScoreDefendedModel) or changes_scores(model.model)


def needs_score_kind(model: Model) -> bool:
    """Return whether a defence must know what the model behind it returns, before the model can be called."""
    if not isinstance(model, DefendedModel):
        return False
    return (isinstance(model, ScoreDefendedModel) and model.received is None) or needs_score_kind(model.model)


def with_score_kind(model: Model, returns: Scores) -> Model:
    """Return the defended model whose defences know what the model behind all of them returns."""
    if not isinstance(model, DefendedModel):
        return model
    behind = with_score_kind(model.model, returns)
    if isinstance(model, ScoreDefendedModel) and model.received is None:
        return model.defence.protect(behind, returns)
    return model.around(behind)


def _defences_behind(model: Model) -> int:
    """Return the number of defences of a model."""
    return 1 + _defences_behind(model.model) if isinstance(model, DefendedModel) else 0

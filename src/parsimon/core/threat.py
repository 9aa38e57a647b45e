"""The threat model: the L-infinity ball, the goal, and the loss that the attacker raises.

Only this module knows signs: the attacker always raises the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError, check_choice, check_flag, check_number, check_whole, quote

Loss = Literal["cross-entropy", "margin"]
Objective = Literal["cross-entropy", "margin", "label"]
Scores = Literal["logits", "probabilities", "labels"]  # labels: class numbers in one column, or one-hot rows
Rounding = Literal["inward", "nearest"]
Targets = Literal["next", "random"]  # which class a targeted attack must reach

CONTENDERS = 10  # classes whose margins a search may ask for
_TINY = 1e-30  # makes the loss of a probability of 0 finite
_SUM_TOLERANCE = 1e-3  # of probabilities
_TIE_LOSS = float(np.finfo(np.float64).tiny)  # of a draw that errs by a tie: the least loss above 0
MOST_DRAWS = 10_000
LEAST_ERROR_RATE = 1e-5  # below 2e-6, the pairs of one comparison could never give enough evidence
_LEVELS = 255  # the largest value of an 8-bit pixel


@dataclass(frozen=True)
class Sampling:
    """How a random model is sampled.

    Attributes:
        repeats: Queries that are averaged wherever an attack would make one.
        draws: Fresh draws that decide whether the point that an attack returns is a success. They are not charged.
        error_rate: Error rate of the tests by which an attack accepts a change and ends. 1: no tests. Every response
            then counts as exact, as for an attacker who does not know that the model is random.
    """

    repeats: int = 1
    draws: int = 100
    error_rate: float = 0.05

    def __post_init__(self) -> None:
        check_whole("repeats", self.repeats, 1, MOST_DRAWS)
        check_whole("draws", self.draws, 1, MOST_DRAWS)
        check_number("error_rate", self.error_rate, LEAST_ERROR_RATE, 1)


@dataclass(frozen=True)
class Threat:
    """An L-infinity ball of radius `eps` within [0, 1], and the goal of leaving or reaching a class.

    Attributes:
        eps: The radius, for images in [0, 1].
        targeted: Whether the goal is to reach a class instead of leaving the true one.
        loss: With `cross-entropy`, that of the true class, or minus that of the target. With `margin`, by how much the
            best other class exceeds the true one in logits, or the target exceeds the best other class. With `label`,
            minus the distance of an adversarial image, and -inf for any other image. Attacks then see the predicted
            class alone.
        scores: What the model returns.
        eight_bit: Whether all model inputs have pixels k / 255.
        rounding: How the bounds of the ball become float32. With `inward`, no pixel differs from the original by more
            than `eps`. With `nearest`, as in published attacks, a pixel may differ by up to 6e-8 more.
        until_budget: Whether a label-only attack continues after its success, to find a closer adversarial image.
        sampling: How a random model is sampled; None: the model is not random. With it, an attack returns one point
            per image, and succeeds if the model errs there in more than half of the fresh draws.
    """

    eps: float
    targeted: bool = False
    loss: Objective = "cross-entropy"
    scores: Scores = "logits"
    eight_bit: bool = False
    rounding: Rounding = "inward"
    until_budget: bool = False
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        check_radius(self.eps)
        object.__setattr__(self, "eps", float(self.eps))  # from a fraction or another float type
        check_choice("loss", self.loss, get_args(Objective))
        check_choice("scores", self.scores, get_args(Scores))
        check_choice("rounding", self.rounding, get_args(Rounding))
        check_flag("eight_bit", self.eight_bit)
        check_flag("until_budget", self.until_budget)
        if self.until_budget and self.loss != "label":
            raise InputError("until_budget is for label-only attacks, whose loss is 'label'", argument="until_budget")
        if self.sampling is not None and self.loss != "margin":
            raise InputError(
                "a random model is attacked by the margin loss, whose sign shows whether a draw errs: choose "
                f"loss='margin'; got {quote(self.loss)}",
                argument="loss",
            )
        if self.eight_bit and self.eight_bit_steps == 0:
            raise InputError(
                f"eps must be at least 1/255 in 8-bit mode, where pixels are k / 255; got {self.eps:.6f}",
                argument="eps",
            )

    @property
    def eight_bit_steps(self) -> int:
        """The radius in steps of 1/255, rounded down."""
        return math.floor(self.eps * 255 + 1e-6)

    @property
    def effective_eps(self) -> float:
        """The radius that images obey: in 8-bit mode, `eps` rounded down to a multiple of 1/255."""
        return self.eight_bit_steps / _LEVELS if self.eight_bit else self.eps

    def bounds(self, image: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the lowest and the highest image of the ball."""
        if self.eight_bit:
            levels = np.rint(image * np.float32(255))
            low, high = levels - self.eight_bit_steps, levels + self.eight_bit_steps
            return from_levels(np.maximum(low, 0)), from_levels(np.minimum(high, 255))
        if self.rounding == "nearest":
            eps = np.float32(self.eps)
            return np.maximum(image - eps, np.float32(0)), np.minimum(image + eps, np.float32(1))
        exact = image.astype(np.float64)
        low, high = (exact - self.eps).astype(np.float32), (exact + self.eps).astype(np.float32)
        low = np.where(exact - low > self.eps, np.nextafter(low, np.float32(1)), low)
        high = np.where(high - exact > self.eps, np.nextafter(high, np.float32(0)), high)
        return np.maximum(low, np.float32(0)), np.minimum(high, np.float32(1))

    def judge(
        self, scores: NDArray[Any], goals: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.intp]]:
        """Return, per row, the loss, whether it is a success, and the predicted class.

        Scores do not tell the distance that the loss `label` needs: it is 0 here for every adversarial image. On a
        random model, the loss is above 0 exactly for a success. So a tie of classes that is a success has the least
        positive loss.
        """
        predicted = predicted_classes(scores)
        if self.loss == "label":
            adversarial = (predicted == goals) == self.targeted
            return np.where(adversarial, 0.0, -np.inf), adversarial, predicted
        rows = np.arange(len(scores))
        logits = self._logits(scores)
        at_goal = logits[rows, goals]
        if self.loss == "margin":
            away = _without(logits, goals).max(axis=1) - at_goal
        else:
            top = logits.max(axis=1)
            away = top + np.log(np.exp(logits - top[:, None]).sum(axis=1)) - at_goal
        wins = (predicted == goals) == self.targeted
        losses = -away if self.targeted else away
        if self.sampling is not None:
            losses = np.where(wins, np.maximum(losses, _TIE_LOSS), np.minimum(losses, 0.0))
        return losses, wins, predicted

    def errs(self, losses: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether draws of a random model err, from the losses that `judge` returned."""
        return losses > 0

    @property
    def has_margins(self) -> bool:
        """Whether the loss is the highest margin of any other class over the true one."""
        return self.loss == "margin" and not self.targeted

    def contenders(self, scores: NDArray[Any], goal: int) -> NDArray[np.int32]:
        """Return the classes other than the goal with the highest scores in one row, the highest first."""
        ranked: NDArray[np.intp] = np.argsort(-np.asarray(scores, np.float64), kind="stable")
        others: NDArray[np.int32] = ranked[ranked != goal][:CONTENDERS].astype(np.int32)
        return others

    def margins(
        self, scores: NDArray[Any], goals: NDArray[np.intp], contenders: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """Return, per row, by how much the score of each of its contenders exceeds that of the goal, in logits."""
        rows = np.arange(len(scores))[:, None]
        logits = self._logits(scores[rows, np.concatenate([goals[:, None], contenders], axis=1)])
        with np.errstate(invalid="ignore", over="ignore"):  # infinite scores, which a margin allows
            return np.nan_to_num((logits[:, 1:] - logits[:, :1]).astype(np.float32))

    def confidence(self, scores: NDArray[Any]) -> NDArray[np.float64] | None:
        """Return, per row, the probability of the predicted class, to the 6 decimals that single precision holds.

        Labels have none.
        """
        if self.scores == "labels":
            return None
        if self.scores == "probabilities":
            highest = np.asarray(scores, np.float64).max(axis=1)
        else:
            logits = self._logits(scores)
            with np.errstate(invalid="ignore"):  # an infinite score, which a margin allows
                below = np.nan_to_num(logits - logits.max(axis=1, keepdims=True), nan=0.0)
            highest = 1 / np.exp(below).sum(axis=1)
        rounded: NDArray[np.float64] = highest.round(6)
        return rounded

    def loss_gradient(self, scores: NDArray[Any], goals: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return, per row, the gradient of the loss with respect to the scores."""
        rows = np.arange(len(scores))
        logits = self._logits(scores)
        if self.loss == "margin":
            gradient = np.zeros_like(logits)
            gradient[rows, _without(logits, goals).argmax(axis=1)] = 1
        else:
            gradient = np.exp(logits - logits.max(axis=1, keepdims=True))
            gradient /= gradient.sum(axis=1, keepdims=True)
        gradient[rows, goals] -= 1
        if self.scores == "probabilities":
            gradient /= np.maximum(scores, _TINY)
        return -gradient if self.targeted else gradient

    def _logits(self, scores: NDArray[Any]) -> NDArray[np.float64]:
        numbers = np.asarray(scores, np.float64)
        return np.log(np.maximum(numbers, _TINY)) if self.scores == "probabilities" else numbers


def predicted_classes(scores: NDArray[Any]) -> NDArray[np.intp]:
    """Return the predicted class of each row: that of the highest score, or the class number in a single column."""
    numbers = np.asarray(scores)  # as they came: a logarithm may make two of them equal
    return numbers[:, 0].astype(np.intp) if numbers.shape[1] == 1 else numbers.argmax(axis=1)


def detect_scores(scores: NDArray[Any]) -> Scores:
    """Return the kind of the model's scores, detected from those of some images."""
    if scores.shape[1] == 1:
        return "labels"
    if (scores < 0).any() or np.abs(scores.sum(axis=1) - 1).max() >= _SUM_TOLERANCE:
        return "logits"
    return "labels" if ((scores == 0) | (scores == 1)).all() else "probabilities"


def check_radius(eps: Any, typed: object = None) -> None:
    """Refuse a radius that no ball in [0, 1] has, with the one that was probably meant; `typed`: how it was given."""
    radius = float(eps) if isinstance(eps, Real) and not isinstance(eps, bool) else math.nan
    if 0 < radius <= 1:
        return
    hint = "a radius of 8 on the scale of 0 to 255 is 8/255"
    if 1 < radius <= _LEVELS:
        hint = f"did you mean {radius:g}/255?"
    elif -1 <= radius < 0:
        hint = f"did you mean {-radius:g}?"
    elif radius == 0:
        hint = "a ball of radius 0 holds only the image itself"
    got = quote(eps if typed is None else typed)
    raise InputError(f"eps must lie above 0 and at most 1, for images in [0, 1]; got {got}: {hint}", argument="eps")


def _without(logits: NDArray[np.float64], goals: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the logits with -inf at the goals."""
    others = logits.copy()
    others[np.arange(len(logits)), goals] = -np.inf
    return others


def from_levels(levels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Map levels 0 .. 255 to [0, 1], as image loaders do."""
    return levels / np.float32(255)


def to_eight_bit(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the nearest images whose pixels are k / 255, from 0 to 1."""
    return from_levels(np.clip(np.rint(images * np.float32(255)), 0, 255))

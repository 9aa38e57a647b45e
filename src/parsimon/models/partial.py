"""Models that tell only the k most probable classes, with their probabilities.

What is unknown is the probability of each class that is not among them; of all of them together it is what is missing
to 1. They get equal shares of it. What that means for an attack that wants to leave the true class:

- while the true class is among those told, its cross-entropy is exact, and so is its margin if at least two are told:
  the best other class is then one of them. The shares play no part.
- once it is not, the model is fooled. Only attacks that go on after a success see a loss that rests on a share.

Everything else would be guesswork and is refused before a run (`checks.check_threat`): to reach a class that is not
told, as there is nothing to climb; a margin if only one class is told; logits, which cannot be completed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from parsimon.core.threat import Threat
from parsimon.errors import InputError, ModelError, quote

_MOST = sys.float_info.max
_ROUNDING = 0.005  # that services may round probabilities by


def completed(answers: Sequence[Mapping[int, float]], classes: int, top: int) -> NDArray[np.float64]:
    """For each image the probabilities of all classes, from those of the ones that are told."""
    return np.stack([_row(answer, classes, top) for answer in answers])


def _row(answer: Mapping[int, float], classes: int, top: int) -> NDArray[np.float64]:
    wrong = [number for number in answer if not _is_class(number, classes)]
    if wrong:
        raise ModelError(f"classes must be told by their numbers, 0..{classes - 1}; got {quote(wrong[0])}")
    if len(answer) < top:
        raise ModelError(f"at least {top} classes must be told of each image, as top={top} says; got {len(answer)}")
    if not all(map(_is_finite, answer.values())):
        raise ModelError(f"probabilities must be finite numbers; got {quote(dict(answer))}")
    told = np.array(list(answer.values()), np.float64)
    unseen = classes - len(told)
    missing = max(0.0, 1 - float(told.sum()))
    rounding = _ROUNDING * len(told)
    most = unseen * (told.min() + _ROUNDING)  # since no class that is not told is more probable than one that is
    if told.min() < 0 or told.sum() > 1 + rounding or missing > most + rounding:
        raise ModelError(
            f"the scores must be the probabilities of the most probable classes; got {told.round(4).tolist()}, which "
            f"those of {classes} classes cannot be"
        )
    row = np.full(classes, min(missing / max(1, unseen), np.nextafter(told.min(), 0)))
    row[list(answer)] = told
    row /= row.sum()
    return row


def _is_class(number: object, classes: int) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and bool(0 <= number < classes)


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and bool(value <= _MOST and not value < -_MOST)


def check_partial(top: int, threat: Threat) -> None:
    """Refuse what cannot be computed from the most probable classes alone."""
    what = f"this model tells only its {top} most probable classes"
    if threat.scores != "probabilities":
        raise InputError(f"{what}, as probabilities: pass scores='probabilities'", argument="scores")
    if threat.targeted:
        raise InputError(f"{what}, so how close it is to a target that is not among them is unknown: leave out targets")
    if threat.loss == "margin" and top < 2:
        raise InputError(f"{what}, and a margin needs two: use the loss cross-entropy")

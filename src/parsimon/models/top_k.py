"""Scores of models that return only the k most probable classes, with their probabilities.

The remaining probability is divided equally among the other classes. For an untargeted attack:

- while the true class is among the k, its cross-entropy is exact; so is its margin if k is at least two.
- once it is not, the model is fooled. Only attacks that continue after a success see an estimated loss.

Everything else would be guesswork and is refused before a run: targets, a margin with k = 1, and logits. A label-only
attack needs the best class alone, which is always known: it may have targets.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.threat import Threat
from parsimon.errors import InputError, ModelError, quote

_LARGEST = sys.float_info.max
_ROUNDING = 0.005  # that services may round probabilities by


def complete_scores(answers: Sequence[Mapping[int, float]], classes: int, top: int) -> NDArray[np.float64]:
    """Return the probabilities of all classes for each image, from those of its most probable classes."""
    return np.stack([_complete_row(answer, classes, top) for answer in answers])


def _complete_row(answer: Mapping[int, float], classes: int, top: int) -> NDArray[np.float64]:
    wrong = [number for number in answer if not _is_class(number, classes)]
    if wrong:
        raise ModelError(f"a class must be a number in 0..{classes - 1}; got {quote(wrong[0])}")
    if len(answer) < top:
        raise ModelError(f"each image needs at least {top} classes, as top={top} says; got {len(answer)}")
    if not all(map(_is_finite, answer.values())):
        raise ModelError(f"probabilities must be finite numbers; got {quote(dict(answer))}")
    known = np.array(list(answer.values()), np.float64)
    unknown = classes - len(known)
    missing = max(0.0, 1 - float(known.sum()))
    rounding = _ROUNDING * len(known)
    most = unknown * (known.min() + _ROUNDING)  # no unknown class is more probable than a known one
    if known.min() < 0 or known.sum() > 1 + rounding or missing > most + rounding:
        raise ModelError(
            f"the scores must be the probabilities of the most probable of {classes} classes; got "
            f"{known.round(4).tolist()}, which is impossible"
        )
    row = np.full(classes, min(missing / max(1, unknown), np.nextafter(known.min(), 0)))
    row[list(answer)] = known
    row /= row.sum()
    return row


def _is_class(number: object, classes: int) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and bool(0 <= number < classes)


def _is_finite(value: Any) -> bool:
    is_real = isinstance(value, Real) and not isinstance(value, bool)
    return is_real and bool(abs(value) <= _LARGEST)


def check_top_k(top: int, threat: Threat) -> None:
    """Refuse what cannot be computed from the most probable classes alone."""
    what = f"this model returns only its {top} most probable classes"
    if threat.scores == "logits":
        raise InputError(f"{what}, as probabilities: pass scores='probabilities'", argument="scores")
    if threat.loss == "label":
        return
    if threat.targeted:
        raise InputError(f"{what}, so the loss of a target that is not among them is unknown: leave out targets")
    if threat.loss == "margin" and top < 2:
        raise InputError(f"{what}, and a margin needs two: use the loss cross-entropy")

"""The gallery of a page, as plain data: the outcome of each attack on each image, with pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Outcome
from parsimon.report.data import Data
from parsimon.report.picture import png, triptych
from parsimon.results.result import Comparison, Result

_CONFIDENCE_DIGITS = 3  # as many as are shown


def gallery_of(comparison: Comparison, classes: Sequence[str], space: int) -> tuple[Data, int]:
    """Return a card per attack and attacked image, and the characters left for pictures."""
    results = list(comparison.results.values())
    by_image: dict[int, list[tuple[int, Outcome]]] = {}
    for attack, result in enumerate(results):
        for outcome in result.outcomes:
            by_image.setdefault(outcome.index, []).append((attack, outcome))
    originals: dict[int, str] = {}
    cards: list[Data] = []
    for index in sorted(by_image):
        new = [card_of(results[attack], outcome, attack) for attack, outcome in by_image[index]]
        if space:
            original = _text(np.asarray(results[0].images[index]))
            pictures = [_pictures(results[attack], outcome) for attack, outcome in by_image[index]]
            size = len(original) + sum(len(text) for each in pictures for text in each.values())
            space = max(0, space - size)  # after the first image without space, no image has pictures
        if space:
            originals[index] = original
            new = [{**card, **each} for card, each in zip(new, pictures, strict=True)]
        cards += new
    gallery = {
        "attacks": list(comparison.results),
        "classes": [str(name) for name in classes],
        "side": max(np.asarray(results[0].images[0]).shape[1:]),
        "random": results[0].random,
        "originals": originals,
        "cards": cards,
    }
    return gallery, space


def card_of(result: Result, outcome: Outcome, attack: int) -> Data:
    """Return a card of the gallery: the outcome of the attack of that number on one image."""
    state = "fooled" if outcome.success else "unfinished" if outcome.ended == "interrupted" else "robust"
    return {
        "attack": attack,
        "number": outcome.index,
        "label": int(result.labels[outcome.index]),
        "before": _rounded(result.clean.confidence_of(outcome.index)),
        "state": state,
        "queries": outcome.queries,
        "predicted": outcome.predicted,
        "after": _rounded(outcome.confidence),
        "radius": None if outcome.radius is None else f"{outcome.radius:.4f}",
    }


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(float(confidence), _CONFIDENCE_DIGITS)


def _pictures(result: Result, outcome: Outcome) -> dict[str, str]:
    if outcome.point is None:
        return {}
    pictures = triptych(result, outcome)
    return {"perturbation": _text(pictures.perturbation), "adversarial": _text(pictures.adversarial)}


def _text(image: NDArray[np.floating]) -> str:
    return base64.b64encode(png(image)).decode()

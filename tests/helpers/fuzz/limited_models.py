"""Models that are named as `fuzz.limited_models:build`. They fail after some calls, so that every run has an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[[Any], Any]

_CALLS = 80


class Limited:
    """A model that fails after some calls, so that a search without end has one."""

    def __init__(self, model: Function, calls: int) -> None:
        self._model, self._left = model, calls

    def __call__(self, images: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise TimeoutError("the model is tired")
        return self._model(images)


def build() -> Function:
    """Three classes of images (3, 4, 4)."""
    weights = np.random.default_rng(0).normal(size=(3, 48))
    return Limited(lambda images: (np.sin(5.0 * images.reshape(len(images), 1, -1)) * weights).sum(axis=-1), _CALLS)


def probabilities() -> Function:
    """The same in probabilities."""
    model = build()

    def softmax(images: Any) -> Any:
        powers = np.exp(model(images))
        return powers / powers.sum(axis=1, keepdims=True)

    return softmax


def broken() -> Function:
    """A model that fails in words that harm a terminal."""

    def model(_: Any) -> Any:
        raise RuntimeError("\x1b[31m[bold]no[/] layer\n" + "x" * 5000)

    return model


def nothing() -> None:
    """No model."""

"""Models that are named as `fuzz.limited_models:build`. They fail after some calls, so that every run has an end."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.models import Function, Limited

_CALLS = 80


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

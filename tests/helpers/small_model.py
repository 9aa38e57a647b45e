"""A linear classifier of a few small images: good input, from which the tests make bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import parsimon

Pixels = NDArray[np.float32]

RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(size=(192, 10)).astype(np.float32)
IMAGES = (RANDOM.integers(0, 256, (6, 3, 8, 8)) / 255).astype(np.float32)  # that 8-bit mode takes too


def linear(images: Pixels) -> Pixels:
    return images.reshape(len(images), -1) @ WEIGHTS


LABELS = linear(IMAGES).argmax(axis=1)


def attack(model: Any = linear, images: Any = IMAGES, labels: Any = LABELS, eps: Any = 0.02, **settings: Any) -> Any:
    return parsimon.attack(model, images, labels, eps, **{"budget": 20, **settings})


def softmax(images: Pixels) -> Pixels:
    powers = np.exp(linear(images) - linear(images).max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def changed(array: NDArray[Any], index: int, value: float) -> NDArray[Any]:
    """A copy with something bad at one image."""
    copy = array.copy()
    copy[index] = value
    return copy


def raising(_: Pixels) -> Pixels:
    raise KeyError("weights/7")

"""A linear classifier of corners with whole-numbered margins, so that effects add up exactly, and a driver for it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Ask, Corners, Reply

Signs = NDArray[np.bool_]
T = TypeVar("T")


class LinearMargins:
    """The margin of each contender is the sum of its weights where the corner is at +eps, minus the others."""

    def __init__(self, shape: tuple[int, int, int], contenders: int = 3, seed: int = 0) -> None:
        """Draw weights for corners of `shape` (rows, columns, channels)."""
        self.weights = np.random.default_rng([seed, 7]).integers(-9, 10, (contenders, *shape)).astype(np.float64)
        self.asked: list[Signs] = []

    def margins(self, signs: Signs) -> NDArray[np.float64]:
        return np.array([float((weights * np.where(signs, 1, -1)).sum()) for weights in self.weights])

    def effects(self, signs: Signs, pixels: Signs) -> NDArray[np.float64]:
        """Return the change in each margin when these pixels of a corner are flipped."""
        return self.margins(signs ^ pixels) - self.margins(signs)

    def reply(self, ask: Ask) -> Reply:
        assert isinstance(ask.points, Corners)
        self.asked.append(ask.points.base.reshape(self.weights.shape[1:]).copy())
        margins = self.margins(self.asked[-1])
        return Reply(np.array([margins.max()]), None, margins.astype(np.float32)[None] if ask.margins else None)


def drive(search: Generator[Ask, Reply, T], model: LinearMargins) -> T:
    """Answer all asks of a search, and return its result."""
    try:
        ask = next(search)
        while True:
            ask = search.send(model.reply(ask))
    except StopIteration as stop:
        result: T = stop.value
        return result

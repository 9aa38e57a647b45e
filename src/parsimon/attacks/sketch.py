"""A corner of the ball in the making, for searches that change it window by window and keep what raises its loss."""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from parsimon.core.grid import Grid, Window
from parsimon.core.types import Ask, Corners, Reply
from parsimon.setsearch import Mask


class MutableCorner:
    """A sign for each pixel, by row, column and channel, and their loss once it was asked for.

    It is changed in place, and its question says where, so that neither it nor the canvas handles more than that.
    """

    def __init__(self, signs: Mask) -> None:
        height, width, channels = signs.shape
        grid = Grid((channels, height, width), (height, width), 1)
        self._signs = np.array(signs, order="C")
        self.signs = self._signs.view()
        self.signs.flags.writeable = False
        self.loss = -math.inf
        self._changed: list[Window] = []  # since it was asked for
        self._question = Ask(Corners(grid, self._signs.reshape(-1), changed=self._changed))

    def ask(self) -> Generator[Ask, Reply, None]:
        """Ask for its loss."""
        reply = yield self._question
        self._changed.clear()
        self.loss = reply.loss.item()

    def flip(self, window: Window, pixels: NDArray[np.bool_]) -> Generator[Ask, Reply, float]:
        """Flip these pixels of a window, and keep that if the loss has risen; by how much it has."""
        signs = self._signs[window]
        signs ^= pixels
        self._changed.append(window)
        reply = yield self._question
        self._changed.clear()
        loss = reply.loss.item()
        gain = loss - self.loss
        if gain > 0:
            self.loss = loss
        else:
            signs ^= pixels
            self._changed.append(window)
        return gain

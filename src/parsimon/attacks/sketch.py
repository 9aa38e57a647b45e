"""A corner of the ball in the making, for searches that change it window by window and keep what raises its loss."""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from parsimon.blocks import Grid, Window
from parsimon.protocol import Ask, Corners, Reply
from parsimon.setsearch import Mask


class Sketch:
    """A sign for each pixel, by row, column and channel, and their loss once it was asked for.

    It is changed in place, and its questions say where, so that neither it nor the canvas handles more than that.
    """

    def __init__(self, signs: Mask) -> None:
        height, width, channels = signs.shape
        self._grid = Grid((channels, height, width), (height, width), 1)
        self._flat = np.array(signs, order="C").reshape(-1)
        self._signs = self._flat.reshape(signs.shape)
        self.signs = self._signs.view()
        self.signs.flags.writeable = False
        self.loss = -math.inf
        self._changed: list[Window] = []  # since it was asked for

    def ask(self) -> Generator[Ask, Reply, None]:
        """Ask for its loss."""
        self.loss = yield from self._asked()

    def flip(self, window: Window, pixels: NDArray[np.bool_]) -> Generator[Ask, Reply, float]:
        """Flip these pixels of a window, and keep that if the loss has risen; by how much it has."""
        before = self._signs[window].copy()
        self._signs[window] = before ^ pixels
        self._changed.append(window)
        loss = yield from self._asked()
        gain = loss - self.loss
        if gain > 0:
            self.loss = loss
        else:
            self._signs[window] = before
            self._changed.append(window)
        return gain

    def _asked(self) -> Generator[Ask, Reply, float]:
        reply = yield Ask(Corners(self._grid, self._flat, changed=self._changed))
        self._changed = []
        return reply.loss.item()

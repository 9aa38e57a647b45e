"""A corner of the ball that a search changes in place, window by window; Thrift and Square share it."""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from parsimon.core.grid import Grid, Window
from parsimon.core.types import Ask, Corners, Reply
from parsimon.setsearch import Mask


class MutableCorner:
    """One sign per pixel (rows, columns, channels), and the loss of the corner once the model was asked.

    Each query names the windows that changed since the query before, so that only those are rendered again.

    Attributes:
        signs: Where the corner is at +eps; read-only.
        loss: The loss of the corner; -inf before the first query.
    """

    def __init__(self, signs: Mask) -> None:
        """Start at +eps where `signs` is true, and at -eps elsewhere."""
        height, width, channels = signs.shape
        grid = Grid((channels, height, width), (height, width), 1)
        self._signs = np.array(signs, order="C")
        self.signs = self._signs.view()
        self.signs.flags.writeable = False
        self.loss = -math.inf
        self._changed: list[Window] = []  # since the last query
        self._query = Ask(Corners(grid, self._signs.reshape(-1), changed=self._changed))

    def ask(self) -> Generator[Ask, Reply, None]:
        """Ask for the loss of the corner."""
        reply = yield self._query
        self._changed.clear()
        self.loss = reply.loss.item()

    def flip(self, window: Window, pixels: Mask) -> Generator[Ask, Reply, float]:
        """Flip these pixels of a window, undo it unless the loss has risen, and return the gain in loss."""
        signs = self._signs[window]
        signs ^= pixels
        self._changed.append(window)
        reply = yield self._query
        self._changed.clear()
        loss: float = reply.loss.item()
        gain = loss - self.loss
        if gain > 0:
            self.loss = loss
        else:
            signs ^= pixels
            self._changed.append(window)
        return gain

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
        self._signs = self._flat.reshape(self.cells)
        self.signs = self._signs.view()
        self.signs.flags.writeable = False
        self.loss = -math.inf
        self._taken_back: list[Window] = []  # since it was asked for

    @property
    def cells(self) -> tuple[int, int, int]:
        """Rows, columns and channels."""
        return self._grid.cells

    def ask(self) -> Generator[Ask, Reply, None]:
        """Ask for its loss."""
        self.loss = yield from self._asked()

    def repaint(self, window: Window, signs: NDArray[np.bool_]) -> Generator[Ask, Reply, float]:
        """Give the pixels of a window other signs, and keep them if the loss has risen; by how much it has."""
        before = self._signs[window].copy()
        self._signs[window] = signs
        loss = yield from self._asked(window)
        gain = loss - self.loss
        if gain > 0:
            self.loss = loss
        else:
            self._signs[window] = before
            self._taken_back.append(window)
        return gain

    def _asked(self, *repainted: Window) -> Generator[Ask, Reply, float]:
        changed = [*self._taken_back, *repainted]
        self._taken_back.clear()
        reply = yield Ask(Corners(self._grid, self._flat, changed=changed))
        return float(reply.loss[0])

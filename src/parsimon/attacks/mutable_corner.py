"""A corner of the ball that a search changes in place, window by window; Thrift and Square share it."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from parsimon.core.grid import Grid, Window
from parsimon.core.types import Ask, Corners, Reply
from parsimon.setsearch import Mask


class MutableCorner:
    """One sign per pixel (rows, columns, channels), and the loss of the corner once the model was asked.

    Each query names the windows that changed since the query before, so that only those are rendered again.

    Attributes:
        signs: Where the corner is at +eps; read-only.
        loss: The loss of the corner; -inf before the first query.
        margins: The margins of the contenders, if they were asked for and the loss has any.
        margin_change: The change in margins by the last flip, kept or not.
    """

    def __init__(self, signs: Mask, *, margins: bool = False) -> None:
        """Start at +eps where `signs` is true, and at -eps elsewhere; `margins`: ask for margins too."""
        height, width, channels = signs.shape
        grid = Grid((channels, height, width), (height, width), 1)
        self._signs = np.array(signs, order="C")
        self.signs = self._signs.view()
        self.signs.flags.writeable = False
        self.loss = -math.inf
        self.margins: NDArray[np.float64] | None = None
        self.margin_change: NDArray[np.float64] | None = None
        self._changed: list[Window] = []  # since the last query
        self._query = Ask(Corners(grid, self._signs.reshape(-1), changed=self._changed), margins=margins)

    def ask(self) -> Generator[Ask, Reply, None]:
        """Ask for the loss of the corner."""
        reply = yield self._query
        self._changed.clear()
        self.loss = reply.loss.item()
        if reply.margins is not None:
            self.margins = reply.margins[0].astype(np.float64)

    def flip(self, window: Window, pixels: Mask) -> Generator[Ask, Reply, float]:
        """Flip these pixels of a window, undo it unless the loss has risen, and return the gain in loss."""
        signs = self._signs[window]
        signs ^= pixels
        self._changed.append(window)
        reply = yield self._query
        gain = self._receive(reply)
        if gain <= 0:
            signs ^= pixels
            self._changed.append(window)
        return gain

    def flip_all(self, flips: Sequence[tuple[Window, Mask]]) -> Generator[Ask, Reply, float]:
        """Flip the pixels of several windows by one query, as `flip` does."""
        self._flip(flips)
        reply = yield self._query
        gain = self._receive(reply)
        if gain <= 0:
            self._flip(flips)
        return gain

    def _flip(self, flips: Sequence[tuple[Window, Mask]]) -> None:
        for window, pixels in flips:
            signs = self._signs[window]
            signs ^= pixels
            self._changed.append(window)

    def _receive(self, reply: Reply) -> float:
        """Return the gain in loss, and take the loss and the margins of the changed corner if it is one."""
        self._changed.clear()
        loss: float = reply.loss.item()
        gain = loss - self.loss
        margins = reply.margins
        if margins is not None and self.margins is not None:
            self.margin_change = margins[0] - self.margins
            if gain > 0:
                self.margins = margins[0].astype(np.float64)
        if gain > 0:
            self.loss = loss
        return gain

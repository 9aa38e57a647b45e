"""Points to model inputs for large images on a CPU, where the cost is the memory that is touched.

The base of every search stays rendered. For its next ask, only the windows that differ are painted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import (
    Part,
    RenderedBatch,
    as_input,
    check_points,
    differing_blocks,
    render_corner,
    settle_distance,
)
from parsimon.core.grid import Grid
from parsimon.core.model import Model
from parsimon.core.threat import Threat
from parsimon.core.types import Corners, Image, Images
from parsimon.errors import InputError


class LargeCanvas:
    """A slot per active image, rendered in place, and the batches copied from them."""

    def __init__(self, shape: tuple[int, int, int], slots: int, threat: Threat, model: Model) -> None:
        self._shape, self._threat = shape, threat
        self._low, self._high, self._rendered = (np.empty((slots, *shape), np.float32) for _ in range(3))
        self._bases: list[Corners | None] = [None] * slots  # whose base is rendered
        self._clean = np.empty((slots, *shape), np.float32) if threat.loss == "label" else None
        self._put = model.put

    def load(self, slot: int, image: Image) -> None:
        """Put another image in a slot."""
        if image.shape != self._shape:
            raise InputError(f"all images must have one shape; got one of {image.shape} beside one of {self._shape}")
        if self._clean is not None:
            self._clean[slot] = image
        self._low[slot], self._high[slot] = self._threat.bounds(image)
        self._bases[slot] = None

    def draw(self, parts: Sequence[Part]) -> RenderedBatch:
        """Render the points of the parts, one part after another."""
        count = sum(part.stop - part.start for part in parts)
        batch = np.empty((count, *self._shape), np.float32)
        outside, out_of_range = (np.zeros(count, np.bool_) for _ in range(2))
        distance = np.zeros(count)
        row = 0
        for slot, points, start, stop in parts:
            check_points(points, self._shape)
            rows = slice(row, row + stop - start)
            if isinstance(points, Images):
                batch[rows] = pixels = as_input(points.pixels[start:stop], self._threat)
                low, high = self._low[slot], self._high[slot]
                outside[rows] = ~((low <= pixels) & (pixels <= high)).all(axis=(1, 2, 3))
                out_of_range[rows] = ~((pixels >= 0) & (pixels <= 1)).all(axis=(1, 2, 3))
            else:
                self._move_base(slot, points)
                batch[rows] = self._rendered[slot]
                for image, block in zip(batch[rows], points.flips[start:stop], strict=False):
                    self._paint(image, slot, points.grid, block, high=not points.base[block])
            if self._clean is not None:
                distance[rows] = np.abs(batch[rows] - self._clean[slot]).max(axis=(1, 2, 3))
            row = rows.stop
        settled = None if self._clean is None else settle_distance(distance, outside, self._threat)
        return RenderedBatch(self._put(batch), _if_any(outside), _if_any(out_of_range), settled)

    def _move_base(self, slot: int, points: Corners) -> None:
        """Render another base in a slot: the windows that differ, or all of it."""
        rendered, self._bases[slot] = self._bases[slot], points
        image, low, high = self._rendered[slot], self._low[slot], self._high[slot]
        if points.changed is not None and rendered is not None and rendered.base is points.base:
            signs = points.base.reshape(points.grid.cells)
            for rows, columns, channels in points.changed:
                here = channels, rows, columns
                image[here] = np.where(signs[rows, columns, channels].transpose(2, 0, 1), high[here], low[here])
            return
        blocks = differing_blocks(rendered, points) if points.changed is None else None
        if blocks is None:
            image[...] = render_corner(points.grid, points.base, low, high)
            return
        for block in blocks:
            self._paint(image, slot, points.grid, block, high=points.base[block])

    def _paint(self, image: Image, slot: int, grid: Grid, block: int, *, high: bool) -> None:
        rows, columns, channels = grid.window(block)
        side = self._high if high else self._low
        image[channels, rows, columns] = side[slot, channels, rows, columns]


def _if_any(marked: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    return marked if marked.any() else None

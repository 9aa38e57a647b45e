"""Asked points to model inputs, on the oracle's device. Only this module touches pixels.

A search asks mostly for corners that differ from its base in one block. So the canvas keeps every search's base
drawn, copies it into the batch, and repaints only the pixels that differ: a few microseconds where drawing a corner
from its set takes a hundred.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from array_api_compat import to_device
from numpy.typing import NDArray

from parsimon.blocks import Grid
from parsimon.errors import InputError
from parsimon.protocol import Corner, Corners, Image, Images, Oracle, Point
from parsimon.setsearch import Mask
from parsimon.threat import Threat, to_eight_bit

_WORTH_REPAINTING = 16  # a repainted block costs about as much as drawing so many anew

Part = tuple[int, Corners | Images, int, int]  # a place, and the points start .. stop of what its search asks


def render(image: Image, threat: Threat, point: Point) -> Image:
    """One point as an image."""
    if isinstance(point, Corner):
        low, high = threat.bounds(image)
        return np.where(point.grid.stretch(point.members), high, low)
    return to_eight_bit(point.pixels) if threat.eight_bit else point.pixels


class Canvas:
    """A place for each image in flight, and the batches drawn from them."""

    def __init__(self, shape: tuple[int, int, int], places: int, threat: Threat, oracle: Oracle) -> None:
        self._shape = shape
        self._pixels = int(np.prod(shape))
        self._places = places
        self._threat = threat
        self._xp, self._device = oracle.namespace, oracle.device
        kwargs = {"dtype": self._xp.float32, "device": self._device}
        self._extremes = self._xp.empty((2, places, self._pixels), **kwargs)  # the ball's lowest and highest image
        self._drawn = self._xp.empty((places, self._pixels), **kwargs)
        self._base: list[tuple[Grid, Mask] | None] = [None] * places  # what is drawn

    def place(self, place: int, image: Image) -> None:
        """Put another image in a place."""
        low, high = self._threat.bounds(image)
        self._extremes[0, place, :] = self._asarray(low.reshape(-1))
        self._extremes[1, place, :] = self._asarray(high.reshape(-1))
        # A part of a search that asks for images alone is drawn over, but must not be uninitialised memory until then.
        self._drawn[place, :] = self._extremes[0, place, :]
        self._base[place] = None

    def draw(self, parts: Sequence[Part], rows: int) -> tuple[Any, NDArray[np.bool_] | None]:
        """A batch of `rows` images: the parts one after another, then copies of the first place as padding.

        With it, which of the rows lie outside their ball; None where no part could.
        """
        moves, flips = _Strokes(), _Strokes()
        images: list[NDArray[np.float32]] = []
        rows_of_images: list[int] = []
        places: list[int] = []
        for place, points, start, stop in parts:
            if isinstance(points, Images):
                if points.pixels.shape[1:] != self._shape:
                    raise InputError(
                        f"the attack asks for images of shape {points.pixels.shape} about one of {self._shape}: it "
                        "must ask for (number, channels, rows, columns)"
                    )
                images.append(points.pixels[start:stop])
                rows_of_images += range(len(places), len(places) + stop - start)
            else:
                grid, base, blocks, _ = points
                drawn = self._base[place]
                if drawn is None or drawn[1] is not base:
                    self._move_base(place, points, moves)
                if blocks:
                    shown = blocks[start:stop]
                    to = range(len(places) * self._pixels, (len(places) + len(shown)) * self._pixels, self._pixels)
                    flips.add(grid, to, shown, self._other_side(place, base, shown))
            places += [place] * (stop - start)
        padding = rows - len(places)
        places += places[:1] * padding
        if len(rows_of_images) == len(places) - padding:  # nothing to draw
            batch = self._shown([*images, *[images[0][:1]] * padding])
        else:
            self._paint(self._drawn, moves)
            batch = self._xp.take(self._drawn, self._asarray(np.array(places)), axis=0)
            self._paint(batch, flips)
            batch = self._xp.reshape(batch, (rows, *self._shape))
            if images:
                batch[self._asarray(np.array(rows_of_images))] = self._shown(images)
        return batch, self._outside(batch, places) if images else None

    def _shown(self, images: Sequence[NDArray[np.float32]]) -> Any:
        pixels = np.concatenate(images)
        return self._asarray(to_eight_bit(pixels) if self._threat.eight_bit else pixels)

    def _outside(self, batch: Any, places: list[int]) -> NDArray[np.bool_]:
        low, high = (self._xp.take(self._extremes[side], self._asarray(np.array(places)), axis=0) for side in (0, 1))
        flat = self._xp.reshape(batch, (len(places), -1))
        return np.asarray(to_device(~self._xp.all((flat >= low) & (flat <= high), axis=1), "cpu"))

    def _move_base(self, place: int, points: Corners, moves: _Strokes) -> None:
        """Draw another base: the blocks in which it differs from what is drawn, or all of it where most differ."""
        grid, base, _, moved = points
        drawn = self._base[place]
        self._base[place] = grid, base
        if drawn is not None and (drawn[0] is grid or drawn[0] == grid):
            if moved is not None and moved[0] is drawn[1]:
                blocks = [moved[1]]
            else:
                blocks = (drawn[1] != base).nonzero()[0].tolist()
            if len(blocks) * _WORTH_REPAINTING < grid.count:
                moves.add(grid, [place * self._pixels] * len(blocks), blocks, self._other_side(place, drawn[1], blocks))
                return
        inside = self._asarray(grid.stretch(base).reshape(-1))
        low, high = self._extremes[0, place, :], self._extremes[1, place, :]
        self._drawn[place, :] = self._xp.where(inside, high, low)

    def _other_side(self, place: int, before: Mask, blocks: Sequence[int]) -> list[int]:
        """For each block, where the image begins, among the extremes of all places, that it is flipped to."""
        low, high = place * self._pixels, (place + self._places) * self._pixels
        if len(blocks) == 1:  # the usual case, kept quick
            return [low if before[blocks[0]] else high]
        sides: list[int] = np.where(before[np.asarray(blocks, np.intp)], low, high).tolist()
        return sides

    def _paint(self, target: Any, strokes: _Strokes) -> None:
        """Copy blocks from the extremes into the target, by flat pixel numbers."""
        flat, extremes = self._xp.reshape(target, (-1,)), self._xp.reshape(self._extremes, (-1,))
        for grid, (to, blocks, source) in strokes.by_grid():
            pixels, lengths = grid.pixels_of(blocks)
            painted = extremes[self._asarray(np.repeat(source, lengths) + pixels)]
            flat[self._asarray(np.repeat(to, lengths) + pixels)] = painted

    def _asarray(self, array: NDArray[Any]) -> Any:
        return self._xp.asarray(array, device=self._device)


class _Strokes:
    """Blocks to repaint: the flat number of the first pixel of the image to paint in, and of the one to copy from."""

    def __init__(self) -> None:
        self._grids: dict[Grid, tuple[list[int], list[int], list[int]]] = {}

    def add(self, grid: Grid, to: Iterable[int], blocks: Iterable[int], source: Iterable[int]) -> None:
        columns = self._grids.get(grid)
        if columns is None:
            columns = self._grids[grid] = ([], [], [])
        columns[0].extend(to)
        columns[1].extend(blocks)
        columns[2].extend(source)

    def by_grid(self) -> Iterable[tuple[Grid, list[NDArray[np.intp]]]]:
        for grid, columns in self._grids.items():
            yield grid, [np.array(column, np.intp) for column in columns]

"""Asked points to model inputs where images are large, and what counts is how much memory is touched.

Every search has a row, in which its last point stays drawn, and of its next one only the windows that differ are
painted. Rows lie in sheets of the size of a batch. A full batch with one point of each of its searches is a sheet, and
nothing is copied: a row that lies elsewhere changes places with one that is not asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import WORTH_REPAINTING, Part, RenderedBatch, as_shown, check, corner
from parsimon.core.grid import Grid, Window
from parsimon.core.model import Model
from parsimon.core.threat import Threat
from parsimon.core.types import Corners, Image, Images
from parsimon.errors import InputError
from parsimon.setsearch import Mask, flipped

_COPIES_OF_AN_EXCHANGE = 3


class LargeCanvas:
    """A place for each image in flight, and the batches drawn from them, in memory."""

    def __init__(
        self, shape: tuple[int, int, int], places: int, batch_size: int, threat: Threat, oracle: Model
    ) -> None:
        self._shape, self._batch_size, self._threat = shape, batch_size, threat
        self._low, self._high = (np.empty((places, *shape), np.float32) for _ in range(2))
        rows = batch_size * math.ceil(places / batch_size)
        self._rows = np.empty((rows, *shape), np.float32)
        self._row_of = list(range(places))
        self._place_of: list[int | None] = [*range(places), *[None] * (rows - places)]  # by row
        # What the place's row shows: a corner; one that its search changes in place; or nothing to build upon.
        self._drawn: list[_Corner | Mask | None] = [None] * places
        self._as_input = partial(oracle.namespace.asarray, device=oracle.device)
        self.lends = oracle.only_reads

    def place(self, place: int, image: Image) -> None:
        """Put another image in a place."""
        if image.shape != self._shape:
            raise InputError(f"all images must have one shape; got one of {image.shape} beside one of {self._shape}")
        self._low[place], self._high[place] = self._threat.bounds(image)
        self._drawn[place] = None

    def draw(self, parts: Sequence[Part], rows: int) -> RenderedBatch:
        """A batch of `rows` images: those of the parts, and copies of the first of them as padding."""
        for _, asked, _, _ in parts:
            check(asked, self._shape)
        points = [(place, asked, number) for place, asked, start, stop in parts for number in range(start, stop)]
        one_each = self.lends and len(parts) == len(points) == rows == self._batch_size
        sheet = self._gathered([place for place, _, _ in points]) if one_each else None
        if sheet is not None:
            beyond = [self._put(*point) for point in points]
            where = np.array([self._row_of[place] - sheet.start for place, _, _ in points])
            return RenderedBatch(self._as_input(self._rows[sheet]), where, *map(_if_any, zip(*beyond, strict=True)))
        batch = np.empty((rows, *self._shape), np.float32)
        beyond = []
        for row, point in enumerate(points):
            beyond.append(self._put(*point))
            batch[row] = self._rows[self._row_of[point[0]]]
        batch[len(points) :] = batch[0]
        return RenderedBatch(self._as_input(batch), slice(len(points)), *map(_if_any, zip(*beyond, strict=True)))

    def _gathered(self, places: list[int]) -> slice | None:
        """The sheet that has most of the rows of these places, with all of them brought into it.

        None if that would take as long as copying them. If the model is looking at a sheet meanwhile, all rows of that
        belong to searches that wait for its answer, so none of them is asked for or vacant.
        """
        ((sheet, _),) = Counter(self._row_of[place] // self._batch_size for place in places).most_common(1)
        rows = range(sheet * self._batch_size, (sheet + 1) * self._batch_size)
        strangers = [place for place in places if self._row_of[place] not in rows]
        if _COPIES_OF_AN_EXCHANGE * len(strangers) > len(places):
            return None
        if strangers:
            asked = set(places)
            vacant = [row for row in rows if self._place_of[row] not in asked]
            for place, row in zip(strangers, vacant, strict=True):
                self._exchange(self._row_of[place], row)
        return slice(rows.start, rows.stop)

    def _exchange(self, one: int, other: int) -> None:
        spare = self._rows[one].copy()
        self._rows[one], self._rows[other] = self._rows[other], spare
        self._place_of[one], self._place_of[other] = self._place_of[other], self._place_of[one]
        for row in (one, other):
            place = self._place_of[row]
            if place is not None:
                self._row_of[place] = row

    def _put(self, place: int, points: Corners | Images, number: int) -> tuple[bool, bool]:
        """Draw a point in the place's row; whether it lies outside the ball, and whether outside [0, 1]."""
        image, low, high = self._rows[self._row_of[place]], self._low[place], self._high[place]
        if isinstance(points, Images):
            image[...] = as_shown(points.pixels[number], self._threat)
            self._drawn[place] = None
            if ((low <= image) & (image <= high)).all():
                return False, False
            return True, bool(image.min() < 0 or image.max() > 1)
        if points.changed is None:
            self._draw_set(place, image, points, points.flips[number] if points.flips else None)
        else:
            self._draw_sketch(place, image, points.grid, points.base, points.changed)
        return False, False

    def _draw_set(self, place: int, image: Image, points: Corners, flip: int | None) -> None:
        """Paint the blocks in which a corner differs from what is drawn, or all of it where most differ."""
        low, high = self._low[place], self._high[place]
        before, now = self._drawn[place], _Corner(points.grid, points.base, flip)
        self._drawn[place] = now
        blocks = _differing(before, now, points.moved) if isinstance(before, _Corner) else None
        if blocks is None or len(blocks) * WORTH_REPAINTING >= len(now.base):
            image[...] = corner(now.grid, now.members, low, high)
            return
        for block in blocks:
            rows, columns, channels = now.grid.window(block)
            side = high if now.base.item(block) != (block == flip) else low
            image[channels, rows, columns] = side[channels, rows, columns]

    def _draw_sketch(self, place: int, image: Image, grid: Grid, base: Mask, changed: Sequence[Window]) -> None:
        """Paint the windows in which a base was changed in place, if it is what is drawn."""
        low, high = self._low[place], self._high[place]
        if self._drawn[place] is not base:
            self._drawn[place] = base
            image[...] = corner(grid, base, low, high)
            return
        signs = base.reshape(grid.cells)
        for rows, columns, channels in changed:
            here = channels, rows, columns
            image[here] = np.where(signs[rows, columns, channels].transpose(2, 0, 1), high[here], low[here])


class _Corner(NamedTuple):
    """The base, with one block flipped perhaps."""

    grid: Grid
    base: Mask
    flip: int | None

    @property
    def members(self) -> Mask:
        return self.base if self.flip is None else flipped(self.base, self.flip)


def _differing(before: _Corner, now: _Corner, moved: tuple[Mask, int] | None) -> set[int] | None:
    """The blocks in which two corners differ; None where their grids have little to do with each other."""
    grid, base, flip = before
    if grid is not now.grid and grid != now.grid:
        if grid.block % 2 or grid.halved() != now.grid:
            return None
        base, flip = grid.split(before.members), None
    if base is now.base:
        blocks = set()
    elif moved is not None and moved[0] is base:
        blocks = {moved[1]}
    else:
        blocks = set(np.flatnonzero(base != now.base).tolist())
    flips: set[int | None] = {flip} ^ {now.flip}
    return blocks ^ {each for each in flips if each is not None}


def _if_any(marked: Sequence[bool]) -> NDArray[np.bool_] | None:
    return np.array(marked) if any(marked) else None

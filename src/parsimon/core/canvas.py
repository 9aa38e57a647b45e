"""Asked points to model inputs, on the oracle's device. Only this module and `large_canvas` touch pixels.

A search asks mostly for corners that differ from its base in one block. So the canvas keeps every search's base
drawn, copies it into the batch, and repaints only the pixels that differ: a few microseconds where drawing a corner
from its set takes a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import to_device
from numpy.typing import NDArray

from parsimon.core.grid import Grid
from parsimon.core.model import Model
from parsimon.core.threat import Threat, to_eight_bit
from parsimon.core.types import Corner, Corners, Image, Images, Point
from parsimon.errors import InputError
from parsimon.setsearch import Mask

WORTH_REPAINTING = 16  # a repainted block costs about as much as drawing so many anew

Part = tuple[int, Corners | Images, int, int]  # a place, and the points start .. stop of what its search asks


class RenderedBatch(NamedTuple):
    """Images to show to a model."""

    images: Any
    rows: NDArray[np.intp] | slice  # where among them the points lie that were asked for, one after another
    outside: NDArray[np.bool_] | None  # which of those points lie outside their ball; None: none does
    out_of_range: NDArray[np.bool_] | None  # which of them have a pixel outside [0, 1]; None: none has


def render(image: Image, threat: Threat, point: Point) -> Image:
    """One point as an image."""
    if isinstance(point, Corner):
        return corner(point.grid, point.members, *threat.bounds(image))
    return as_shown(point.pixels, threat)


def corner(grid: Grid, members: Mask, low: Image, high: Image) -> Image:
    """The corner of a set of blocks, between the lowest and the highest image of a ball."""
    return np.where(grid.stretch(members), high, low)


def as_shown(pixels: Image, threat: Threat) -> Image:
    """Any images as the model is shown them."""
    return to_eight_bit(pixels) if threat.eight_bit else pixels


def check(points: Corners | Images, shape: tuple[int, int, int]) -> None:
    """Refuse what cannot be drawn for an image of this shape."""
    if isinstance(points, Images):
        if points.pixels.dtype != np.float32:
            raise InputError(f"the attack asks for images of {points.pixels.dtype}: it must ask for float32")
        if points.pixels.shape[1:] != shape:
            raise InputError(
                f"the attack asks for images of shape {points.pixels.shape} about one of {shape}: it must ask for "
                "(number, channels, rows, columns)"
            )
    elif points.grid.shape != shape:
        raise InputError(f"the attack asks for corners of shape {points.grid.shape} about an image of {shape}")
    elif points.changed is not None and (points.flips or not points.grid.of_pixels):
        raise InputError("the attack changes a set in place that is not one of single pixels, or asks for its flips")


class Canvas:
    """A place for each image in flight, and the batches drawn from them."""

    lends = False

    def __init__(self, shape: tuple[int, int, int], places: int, threat: Threat, oracle: Model) -> None:
        self._shape = shape
        self._pixels = int(np.prod(shape))
        self._places = places
        self._threat = threat
        self._xp, self._device = oracle.namespace, oracle.device
        kwargs = {"dtype": self._xp.float32, "device": self._device}
        self._extremes = self._xp.empty((2, places, self._pixels), **kwargs)  # the ball's lowest and highest image
        # Zeros, since a batch may be filled up with a place whose search asks for no flips, so that nothing is drawn.
        self._drawn = self._xp.zeros((places, self._pixels), **kwargs)
        self._base: list[_Base | None] = [None] * places  # what is drawn
        self._atlas = _Atlas()

    def place(self, place: int, image: Image) -> None:
        """Put another image in a place."""
        low, high = self._threat.bounds(image)
        self._extremes[0, place, :] = self._asarray(low.reshape(-1))
        self._extremes[1, place, :] = self._asarray(high.reshape(-1))
        self._base[place] = None

    def draw(self, parts: Sequence[Part], rows: int) -> RenderedBatch:
        """A batch of `rows` images: the parts one after another, then copies of the first place as padding."""
        moves, flips = _Strokes([], [], []), _Strokes([], [], [])
        alone: dict[Grid, tuple[list[int], list[Mask]]] = {}  # bases without flips: where they go
        images: list[NDArray[np.float32]] = []
        rows_of_images: list[int] = []
        places: list[int] = []
        copied = False  # whether a row begins as a drawn base
        for place, points, start, stop in parts:
            check(points, self._shape)
            if isinstance(points, Images):
                images.append(points.pixels[start:stop])
                rows_of_images += range(len(places), len(places) + stop - start)
            elif points.flips:
                drawn = self._base[place]
                if drawn is None or drawn[1] is not points.base:
                    drawn = self._move_base(place, points, moves)
                to = len(places) * self._pixels
                self._flip(flips, place, drawn, points.flips[start:stop], to, self._pixels)
                copied = True
            else:
                where, bases = alone.setdefault(points.grid, ([], []))
                where.append(len(places))
                bases.append(points.base)
            places += [place] * (stop - start)
        asked = len(places)
        places += places[:1] * (rows - asked)
        made = [
            (where, self._corners([places[row] for row in where], grid, bases))
            for grid, (where, bases) in alone.items()
        ]
        if images:
            made.append((rows_of_images, self._shown(images)))
        if not copied and len(made) == 1 and asked == rows:  # the usual case of attacks that do not flip
            ((_, batch),) = made
        else:
            self._paint(self._drawn, moves)
            batch = self._xp.take(self._drawn, self._asarray(np.array(places)), axis=0)
            self._paint(batch, flips)
            for where, pixels in made:
                batch[self._asarray(np.array(where))] = pixels
        batch = self._xp.reshape(batch, (rows, *self._shape))
        if not images:
            return RenderedBatch(batch, slice(asked), None, None)
        return RenderedBatch(batch, slice(asked), *(marked[:asked] for marked in self._beyond(batch, places)))

    def _corners(self, places: list[int], grid: Grid, bases: list[Mask]) -> Any:
        """Corners drawn anew, all of them at once.

        By their bits, as `where` takes up to three times as long: no processor can guess the next of irregular signs.
        """
        numbers, bits = self._asarray(np.array(places)), self._xp.int32
        low, high = (self._xp.take(self._extremes[side], numbers, axis=0).view(bits) for side in (0, 1))
        high ^= low
        high *= self._asarray(grid.stretch(np.array(bases, bool)).reshape(len(places), -1))
        high ^= low
        return high.view(self._xp.float32)

    def _shown(self, images: Sequence[NDArray[np.float32]]) -> Any:
        return self._asarray(as_shown(np.concatenate(images).reshape(-1, self._pixels), self._threat))

    def _beyond(self, batch: Any, places: list[int]) -> Iterator[NDArray[np.bool_]]:
        """Which images lie outside their ball, and which have a pixel outside [0, 1]."""
        low, high = (self._xp.take(self._extremes[side], self._asarray(np.array(places)), axis=0) for side in (0, 1))
        flat = self._xp.reshape(batch, (len(places), -1))
        for within in ((flat >= low) & (flat <= high), (flat >= 0) & (flat <= 1)):
            yield np.asarray(to_device(~self._xp.all(within, axis=1), "cpu"))

    def _move_base(self, place: int, points: Corners, moves: _Strokes) -> _Base:
        """Draw another base: the blocks in which it differs from what is drawn, or all of it where most differ."""
        grid, base, moved = points.grid, points.base, points.moved
        drawn = self._base[place]
        if drawn is not None and (drawn[0] is grid or drawn[0] == grid):
            self._base[place] = now = grid, base, drawn[2]
            if moved is not None and moved[0] is drawn[1]:
                blocks = [moved[1]]
            else:
                blocks = (drawn[1] != base).nonzero()[0].tolist()
            if len(blocks) * WORTH_REPAINTING < grid.count:
                self._flip(moves, place, drawn, blocks, place * self._pixels, 0)
                return now
        else:
            self._base[place] = now = grid, base, self._atlas.first_of(grid)
        self._drawn[place, :] = self._corners([place], grid, [base])[0]
        return now

    def _flip(self, strokes: _Strokes, place: int, drawn: _Base, blocks: Sequence[int], to: int, step: int) -> None:
        """Paint blocks with the side of the ball that they are not drawn with, in the image at `to`, each a step on."""
        _, before, first = drawn
        low, high = place * self._pixels, (place + self._places) * self._pixels
        if len(blocks) == 1:  # the usual case, kept quick
            block = blocks[0]
            strokes.to.append(to)
            strokes.blocks.append(first + block)
            strokes.source.append(low if before[block] else high)
        else:
            numbers = np.asarray(blocks, np.intp)
            strokes.to.extend([to + step * number for number in range(len(blocks))])
            strokes.blocks.extend((first + numbers).tolist())
            strokes.source.extend(np.where(before[numbers], low, high).tolist())

    def _paint(self, target: Any, strokes: _Strokes) -> None:
        """Copy blocks from the extremes into the target, by flat pixel numbers."""
        if not strokes.to:
            return
        to, blocks, source = (np.array(column, np.intp) for column in strokes)
        pixels, lengths = self._atlas.pixels_of(blocks)
        flat, extremes = self._xp.reshape(target, (-1,)), self._xp.reshape(self._extremes, (-1,))
        painted = extremes[self._asarray(np.repeat(source, lengths) + pixels)]
        flat[self._asarray(np.repeat(to, lengths) + pixels)] = painted

    def _asarray(self, array: NDArray[Any]) -> Any:
        return self._xp.asarray(array, device=self._device)


_Base = tuple[Grid, Mask, int]  # with the number of the grid's first block


class _Strokes(NamedTuple):
    """Blocks to repaint: the flat number of the first pixel of the image to paint in, and of the one to copy from."""

    to: list[int]
    blocks: list[int]  # as the atlas numbers them
    source: list[int]


class _Atlas:
    """The blocks of every grid that was met, numbered one grid after another: those of a batch lie on several."""

    def __init__(self) -> None:
        self._first: dict[Grid, int] = {}
        self._pixels, self._starts, self._lengths = (np.empty(0, np.intp) for _ in range(3))

    def first_of(self, grid: Grid) -> int:
        """The number of a grid's first block."""
        if grid not in self._first:
            self._first[grid] = len(self._starts)
            pixels, lengths = grid.pixels_by_block
            starts = len(self._pixels) + np.cumsum(lengths) - lengths
            self._pixels = np.concatenate([self._pixels, pixels])
            self._starts = np.concatenate([self._starts, starts])
            self._lengths = np.concatenate([self._lengths, lengths])
        return self._first[grid]

    def pixels_of(self, blocks: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The flat pixel numbers that these blocks cover, block after block, and how many each block covers."""
        lengths = self._lengths[blocks]
        ends = np.cumsum(lengths)
        skips = self._starts[blocks] - ends + lengths
        return self._pixels[np.repeat(skips, lengths) + np.arange(ends[-1])], lengths

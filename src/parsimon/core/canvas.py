"""Points to model inputs, on the device of the model. Only this module and `large_canvas` touch pixels.

A search asks mostly for corners that differ from its base in one block. So the canvas keeps the base of every search
rendered, copies it into the batch, and repaints only the pixels that differ. It does so for all searches of a batch
together.
"""

from __future__ import annotations

import math
from collections import defaultdict
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

_WORTH_REPAINTING = 16  # repainting one block costs about as much as rendering this many in a whole corner
_PIXELS_RENDERED = 4  # in the time of repainting one


class Part(NamedTuple):
    """Some points of one ask: numbers `start` to `stop`, for the image in a slot."""

    slot: int
    points: Corners | Images
    start: int
    stop: int


class RenderedBatch(NamedTuple):
    """The points of some parts as images."""

    images: Any
    outside: NDArray[np.bool_] | None  # per point, whether it lies outside its ball; None: none does
    out_of_range: NDArray[np.bool_] | None  # per point, whether a pixel lies outside [0, 1]; None: none does
    distance: NDArray[np.float64] | None = None  # per point, to its clean image; None unless the loss needs it


def render(image: Image, threat: Threat, point: Point) -> Image:
    """Return one point as an image."""
    if isinstance(point, Corner):
        return render_corner(point.grid, point.members, *threat.bounds(image))
    return as_input(point.pixels, threat)


def render_corner(grid: Grid, members: Mask, low: Image, high: Image) -> Image:
    """Return the corner of a set of blocks, from the lowest and the highest image of the ball."""
    return np.where(grid.stretch(members), high, low)


def as_input(pixels: Image, threat: Threat) -> Image:
    """Return images as the model receives them: rounded in 8-bit mode."""
    return to_eight_bit(pixels) if threat.eight_bit else pixels


def settle_distance(distance: NDArray[Any], outside: NDArray[np.bool_] | None, threat: Threat) -> NDArray[np.float64]:
    """Return the distances such that a point lies in the ball exactly if its distance is at most eps.

    In 8-bit mode they are multiples of 1/255.
    """
    exact = np.asarray(distance, np.float64)
    if threat.eight_bit:
        exact = np.rint(255 * exact) / 255
    within = np.minimum(exact, threat.eps)
    return within if outside is None else np.where(outside, np.maximum(exact, math.nextafter(threat.eps, 2)), within)


def pad_batch(images: Any, size: int, namespace: Any) -> Any:
    """Return the images, followed by copies of the first one up to `size` images."""
    missing = size - len(images)
    if missing <= 0:
        return images
    return namespace.concat([images, namespace.broadcast_to(images[:1], (missing, *images.shape[1:]))])


def check_points(points: Corners | Images, shape: tuple[int, int, int]) -> None:
    """Refuse points that cannot be rendered for an image of this shape."""
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
        raise InputError("the attack changes a set in place: it must be one of single pixels, without flips")


def differing_blocks(rendered: Corners | None, points: Corners) -> Sequence[int] | None:
    """Return the blocks in which the base of the points differs from the rendered one; None: render all of it."""
    grid, base, moved = points.grid, points.base, points.moved
    if rendered is None or rendered.changed is not None or (rendered.grid is not grid and rendered.grid != grid):
        return None
    if rendered.base is base:
        return ()
    if moved is not None and moved[0] is rendered.base:
        blocks = [moved[1]]
    else:
        blocks = (rendered.base != base).nonzero()[0].tolist()
    return blocks if len(blocks) * _WORTH_REPAINTING < grid.count else None


class Canvas:
    """A slot per active image, and the batches rendered from them: for small images, and for accelerators."""

    def __init__(self, shape: tuple[int, int, int], slots: int, threat: Threat, model: Model) -> None:
        self._shape, self._slots, self._threat = shape, slots, threat
        self._pixels = int(np.prod(shape))
        self._xp, self._put = model.namespace, model.put
        kwargs = {"dtype": self._xp.float32, "device": model.device}
        self._bounds = self._xp.empty((2, slots, self._pixels), **kwargs)  # the lowest and the highest images
        self._rendered = self._xp.empty((slots, self._pixels), **kwargs)
        self._bases: list[Corners | None] = [None] * slots  # whose base is rendered
        self._signs = np.empty((slots, self._pixels), np.bool_)  # the rendered set, if its search changes it in place
        # By its number in such a set, the number of a pixel in the image: the channels of a pixel follow each other.
        self._number_of_pixel = np.moveaxis(np.arange(self._pixels).reshape(shape), 0, -1).reshape(-1)
        self._clean = self._xp.empty((slots, self._pixels), **kwargs) if threat.loss == "label" else None

    def load(self, slot: int, image: Image) -> None:
        """Put another image in a slot."""
        if self._clean is not None:
            self._clean[slot, :] = self._put(np.array(image).reshape(-1))  # a copy: it may be read-only
        for side, bound in enumerate(self._threat.bounds(image)):
            self._bounds[side, slot, :] = self._put(bound.reshape(-1))
        self._bases[slot] = None

    def draw(self, parts: Sequence[Part]) -> RenderedBatch:
        """Render the points of the parts, one part after another."""
        moves, flips = _repaints(), _repaints()
        corners: dict[Grid, tuple[list[int], list[Mask]]] = {}  # without flips: their rows and sets
        mutable: dict[int, Mask] = {}  # by slot, sets that are changed in place
        images: list[NDArray[np.float32]] = []
        image_rows: list[int] = []
        slots: list[int] = []  # by row
        for slot, points, start, stop in parts:
            row = len(slots)
            if points is self._bases[slot] and points.changed is not None:  # as in its last ask, so it needs no check
                slots.append(slot)
                mutable[slot] = points.base
                continue
            check_points(points, self._shape)
            slots += [slot] * (stop - start)
            if isinstance(points, Images):
                images.append(points.pixels[start:stop])
                image_rows += range(row, len(slots))
            elif points.flips:
                self._move_base(slot, points, moves)
                blocks = points.flips[start:stop]
                self._flip(flips[points.grid], slot, points.base, blocks, row * self._pixels, self._pixels)
            elif points.changed is not None:
                self._begin_set(slot, points)
                mutable[slot] = points.base
            else:
                rows, bases = corners.setdefault(points.grid, ([], []))
                rows.append(row)
                bases.append(points.base)
        made = [
            (rows, self._corners(np.array([slots[row] for row in rows]), grid, np.array(bases)))
            for grid, (rows, bases) in corners.items()
        ]
        if images:
            pixels = np.concatenate(images).reshape(-1, self._pixels)
            made.append((image_rows, self._put(as_input(pixels, self._threat))))
        if not flips and not mutable and len(made) == 1:  # the usual case of attacks without bases
            ((_, batch),) = made
        else:
            self._paint(self._rendered, moves)
            if mutable:
                self._repaint_sets(mutable)
            batch = self._xp.take(self._rendered, self._put(np.array(slots)), axis=0)
            self._paint(batch, flips)
            for rows, pixels in made:
                batch[self._put(np.array(rows))] = pixels
        outside, out_of_range = self._beyond(batch, slots) if images else (None, None)
        distance = None if self._clean is None else settle_distance(self._distance(batch, slots), outside, self._threat)
        return RenderedBatch(self._xp.reshape(batch, (len(slots), *self._shape)), outside, out_of_range, distance)

    def _distance(self, batch: Any, slots: list[int]) -> NDArray[Any]:
        """Return the L-infinity distance of each image to its clean one."""
        clean = self._xp.take(self._clean, self._put(np.array(slots)), axis=0)
        return np.asarray(to_device(self._xp.max(self._xp.abs(batch - clean), axis=1), "cpu"))

    def _corners(self, slots: NDArray[np.intp], grid: Grid, bases: Mask) -> Any:
        """Render whole corners.

        They are selected by their bits: `where` takes up to three times as long, since signs cannot be predicted.
        """
        numbers, bits = self._put(slots), self._xp.int32
        low, high = (self._xp.take(self._bounds[side], numbers, axis=0).view(bits) for side in (0, 1))
        high ^= low
        high *= self._put(grid.stretch(bases).reshape(len(slots), -1))
        high ^= low
        return high.view(self._xp.float32)

    def _beyond(self, batch: Any, slots: list[int]) -> Iterator[NDArray[np.bool_]]:
        """Yield which images lie outside their ball, and which have a pixel outside [0, 1]."""
        numbers = self._put(np.array(slots))
        low, high = (self._xp.take(self._bounds[side], numbers, axis=0) for side in (0, 1))
        for within in ((batch >= low) & (batch <= high), (batch >= 0) & (batch <= 1)):
            yield np.asarray(to_device(~self._xp.all(within, axis=1), "cpu"))

    def _move_base(self, slot: int, points: Corners, moves: dict[Grid, _Repaints]) -> None:
        """Render another base in a slot: the blocks that differ, or all of it."""
        rendered, self._bases[slot] = self._bases[slot], points
        blocks = differing_blocks(rendered, points)
        if blocks is None:
            self._rendered[slot, :] = self._corners(np.array([slot]), points.grid, points.base[None])[0]
        elif blocks and rendered is not None:
            self._flip(moves[points.grid], slot, rendered.base, blocks, slot * self._pixels, 0)

    def _begin_set(self, slot: int, points: Corners) -> None:
        """Expect a set that is changed in place: render the empty one, if a slot does not show such a set already."""
        rendered, self._bases[slot] = self._bases[slot], points
        if rendered is None or rendered.changed is None:
            self._rendered[slot, :] = self._bounds[0, slot, :]
            self._signs[slot] = False

    def _repaint_sets(self, sets: dict[int, Mask]) -> None:
        """Render sets that were changed in place: the pixels that differ, or all of them."""
        numbers, signs = np.array(list(sets)), np.array(list(sets.values()))
        differing = np.flatnonzero(signs != self._signs[numbers])
        self._signs[numbers] = signs
        if len(differing) * _PIXELS_RENDERED > signs.size:
            grid = Grid(self._shape, self._shape[1:], 1)
            self._rendered[self._put(numbers)] = self._corners(numbers, grid, signs)
            return
        rows = differing // self._pixels  # `divmod` takes five times as long
        target = self._number_of_pixel.take(differing - rows * self._pixels)
        target += (numbers * self._pixels).take(rows)
        source = target + signs.reshape(-1).take(differing) * (self._slots * self._pixels)
        rendered, bounds = (self._xp.reshape(each, (-1,)) for each in (self._rendered, self._bounds))
        rendered[self._put(target)] = self._xp.take(bounds, self._put(source))

    def _flip(
        self, repaints: _Repaints, slot: int, members: Mask, blocks: Sequence[int], first: int, step: int
    ) -> None:
        """Paint blocks of a set with the other side of the ball: in the image at `first`, then each `step` further."""
        low, high = slot * self._pixels, (slot + self._slots) * self._pixels
        for number, block in enumerate(blocks):
            repaints.target.append(first + step * number)
            repaints.blocks.append(block)
            repaints.source.append(low if members[block] else high)

    def _paint(self, target: Any, repaints: dict[Grid, _Repaints]) -> None:
        """Copy blocks from the bounds into the target, by flat pixel numbers."""
        flat, bounds = self._xp.reshape(target, (-1,)), self._xp.reshape(self._bounds, (-1,))
        for grid, columns in repaints.items():
            to, blocks, source = (np.array(column, np.intp) for column in columns)
            pixels, lengths = grid.pixels_of(blocks)
            painted = bounds[self._put(np.repeat(source, lengths) + pixels)]
            flat[self._put(np.repeat(to, lengths) + pixels)] = painted


class _Repaints(NamedTuple):
    """Blocks of one grid to repaint, by the flat numbers of the first pixels of the target and the source image."""

    target: list[int]
    blocks: list[int]
    source: list[int]


def _repaints() -> dict[Grid, _Repaints]:
    return defaultdict(lambda: _Repaints([], [], []))

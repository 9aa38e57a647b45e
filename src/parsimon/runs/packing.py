"""Pack points and journal entries as bytes, without losing a bit.

Unpacking raises ValueError for any bytes that are not valid.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from parsimon.core.types import Image, JournalEntry, Margins, Radii

_HEADER = 5  # numbers: of images, the shape of a gradient, and of contenders
_COUNTS = 8  # numbers per image


def pack_bits(bits: bytes) -> bytes:
    """Pack the bits of a corner."""
    return zlib.compress(bits)


def unpack_bits(packed: bytes, count: int) -> bytes:
    """Return the bits of a corner with `count` blocks."""
    return _decompress(packed, -(-count // 8))


def pack_difference(pixels: Image, original: Image) -> bytes:
    """Pack the difference between the bit patterns of two images, which is a small integer for close floats.

    The sign becomes the last bit, so that small differences begin with zeros. All first bytes come first, then all
    second bytes, so that zlib compresses them well.
    """
    steps = pixels.reshape(-1).view(np.int32) - np.ascontiguousarray(original).reshape(-1).view(np.int32)
    return zlib.compress(((steps << 1) ^ (steps >> 31)).view(np.uint8).reshape(-1, 4).T.tobytes())


def unpack_difference(packed: bytes, original: Image) -> bytes:
    """Return the bytes of the pixels."""
    content = _decompress(packed, original.nbytes)
    coded = np.frombuffer(content, np.uint8).reshape(4, -1).T.copy().view(np.uint32).reshape(-1)
    steps = (coded >> 1).view(np.int32) ^ -(coded & 1).astype(np.int32)
    return (np.ascontiguousarray(original).reshape(-1).view(np.int32) + steps).tobytes()


def _decompress(packed: bytes, size: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(content) != size or not decompressor.eof:
        raise ValueError(f"a point must have {size} bytes")
    return content


def pack_radii(radii: Radii) -> bytes | None:
    """Pack pairs of query and radius."""
    return np.array(radii, np.float64).tobytes() if radii else None


def unpack_radii(packed: bytes | None) -> Radii:
    """Return the packed pairs."""
    pairs = np.frombuffer(packed or b"", np.float64).reshape(-1, 2)
    return tuple((int(query), radius) for query, radius in pairs.tolist())


def pack_entries(entries: Sequence[JournalEntry]) -> bytes:
    """Pack a header, whole numbers per image, all losses, gradients, contenders and margins, in this order."""
    gradients = [entry.gradient for entry in entries if entry.gradient is not None]
    margins = [entry.margins for entry in entries if entry.margins is not None]
    shape = gradients[0].shape[1:] if gradients else (0, 0, 0)
    contenders = len(margins[0].contenders) if margins else 0
    counts = [
        (
            *(entry.image, len(entry.loss), 0 if entry.gradient is None else len(entry.gradient)),
            *(entry.outside, entry.uncharged, entry.out_of_range),
            0 if entry.margins is None else len(entry.margins.values),
            0 if entry.predicted is None else entry.predicted + 1,
        )
        for entry in entries
    ]
    parts = [
        np.array([len(entries), *shape, contenders], np.int64).tobytes(),
        np.array(counts, np.int64).tobytes(),
        np.concatenate([np.empty(0), *(entry.loss for entry in entries)]).astype(np.float64).tobytes(),
        *(np.ascontiguousarray(gradient, np.float32).tobytes() for gradient in gradients),
        *(np.ascontiguousarray(each.contenders, np.int32).tobytes() for each in margins),
        *(np.ascontiguousarray(each.values, np.float32).tobytes() for each in margins),
    ]
    return b"".join(parts)


def unpack_entries(packed: bytes) -> Iterator[JournalEntry]:
    """Yield the packed entries."""
    return _unpack_entries(packed, _HEADER, _COUNTS)


def unpack_entries_of_format_3(packed: bytes) -> Iterator[JournalEntry]:
    """Yield the entries of format 3, which has no margins, no `out_of_range` and no `predicted`."""
    return _unpack_entries(packed, _HEADER - 1, _COUNTS - 3)


def _unpack_entries(packed: bytes, header: int, counts: int) -> Iterator[JournalEntry]:
    """Yield the entries of a format with this many numbers in its header, and per image."""
    if len(packed) < 8 * header:
        raise ValueError("it is too short")
    number, *sides = np.frombuffer(packed, np.int64, header).tolist()
    shape, contenders = sides[:3], sum(sides[3:])
    if not 0 <= number <= (len(packed) - 8 * header) // (8 * counts) or min(sides) < 0:
        raise ValueError("its header is wrong")
    table = np.frombuffer(packed, np.int64, counts * number, 8 * header).reshape(number, counts)
    rows = [(*row, 0, 0, 0)[:_COUNTS] for row in table.tolist()]
    for row in rows:
        if min(row) < 0 or max(row[2:-1]) > row[1]:
            raise ValueError(f"its counts of image {row[0]} are wrong")
    points, with_gradient, with_margins = (sum(row[column] for row in rows) for column in (1, 2, -2))
    sets = sum(row[-2] > 0 for row in rows)  # entries with margins
    start = 8 * header + table.nbytes
    sizes = (8 * points, 4 * with_gradient * math.prod(shape), 4 * sets * contenders, 4 * with_margins * contenders)
    if start + sum(sizes) != len(packed):
        raise ValueError("its length is wrong")
    starts = [start + sum(sizes[:part]) for part in range(4)]
    losses = np.frombuffer(packed, np.float64, points, starts[0])
    gradients = np.frombuffer(packed, np.float32, sizes[1] // 4, starts[1]).reshape(with_gradient, *shape)
    classes = np.frombuffer(packed, np.int32, sets * contenders, starts[2]).reshape(sets, contenders)
    margins = np.frombuffer(packed, np.float32, sizes[3] // 4, starts[3]).reshape(with_margins, contenders)
    loss_at = gradient_at = set_at = margin_at = 0
    for image, length, slopes, outside, uncharged, out_of_range, own_margins, predicted in rows:
        yield JournalEntry(
            image,
            losses[loss_at : loss_at + length],
            gradients[gradient_at : gradient_at + slopes] if slopes else None,
            outside,
            uncharged,
            out_of_range,
            predicted - 1 if predicted else None,
            Margins(classes[set_at], margins[margin_at : margin_at + own_margins]) if own_margins else None,
        )
        loss_at, gradient_at, margin_at = loss_at + length, gradient_at + slopes, margin_at + own_margins
        set_at += own_margins > 0


def join_entries(entries: Sequence[JournalEntry]) -> JournalEntry:
    """Return the entries of one image as one, in their order."""
    gradients = [entry.gradient for entry in entries if entry.gradient is not None]
    margins = [entry.margins for entry in entries if entry.margins is not None]
    best = max(entries, key=lambda entry: entry.loss.max(initial=-math.inf))  # the first of equals
    return JournalEntry(
        entries[0].image,
        np.concatenate([entry.loss for entry in entries]),
        np.concatenate(gradients) if gradients else None,
        sum(entry.outside for entry in entries),
        sum(entry.uncharged for entry in entries),
        sum(entry.out_of_range for entry in entries),
        best.predicted,
        Margins(margins[0].contenders, np.concatenate([each.values for each in margins])) if margins else None,
    )

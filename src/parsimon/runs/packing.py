"""Pack points and journal entries as bytes, without losing a bit.

Unpacking raises ValueError for any bytes that are not valid.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from parsimon.core.types import Image, JournalEntry, Radii

_HEADER = 32  # bytes: the number of images, and the shape of a gradient
_COUNTS = 7  # numbers per image


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
    """Pack a header, seven whole numbers per image, all losses, and all gradients, in this order."""
    gradients = [entry.gradient for entry in entries if entry.gradient is not None]
    shape = gradients[0].shape[1:] if gradients else (0, 0, 0)
    counts = [
        (
            *(entry.image, len(entry.loss), 0 if entry.gradient is None else len(entry.gradient)),
            *(
                entry.outside,
                entry.uncharged,
                entry.out_of_range,
                0 if entry.predicted is None else entry.predicted + 1,
            ),
        )
        for entry in entries
    ]
    parts = [
        np.array([len(entries), *shape], np.int64).tobytes(),
        np.array(counts, np.int64).tobytes(),
        np.concatenate([np.empty(0), *(entry.loss for entry in entries)]).astype(np.float64).tobytes(),
        *(np.ascontiguousarray(gradient, np.float32).tobytes() for gradient in gradients),
    ]
    return b"".join(parts)


def unpack_entries(packed: bytes, counts: int = _COUNTS) -> Iterator[JournalEntry]:
    """Yield the packed entries. Format 3 has five numbers per image: it lacks `out_of_range` and `predicted`."""
    if len(packed) < _HEADER:
        raise ValueError("it is too short")
    number, *shape = np.frombuffer(packed, np.int64, 4).tolist()
    if not 0 <= number <= (len(packed) - _HEADER) // (8 * counts) or min(shape) < 0:
        raise ValueError("its header is wrong")
    table = np.frombuffer(packed, np.int64, counts * number, _HEADER).reshape(number, counts)
    rows = [(*row, 0, 0)[:_COUNTS] for row in table.tolist()]
    for row in rows:
        if min(row) < 0 or max(row[2:-1]) > row[1]:
            raise ValueError(f"its counts of image {row[0]} are wrong")
    points, with_gradient = (sum(row[column] for row in rows) for column in (1, 2))
    start = _HEADER + table.nbytes
    if start + 8 * points + 4 * with_gradient * math.prod(shape) != len(packed):
        raise ValueError("its length is wrong")
    losses = np.frombuffer(packed, np.float64, points, start)
    gradients = np.frombuffer(packed, np.float32, offset=start + losses.nbytes)
    gradients = gradients.reshape(-1, *shape) if with_gradient else gradients
    first_loss = first_gradient = 0
    for image, length, slopes, outside, uncharged, out_of_range, predicted in rows:
        gradient = gradients[first_gradient : first_gradient + slopes] if slopes else None
        loss = losses[first_loss : first_loss + length]
        yield JournalEntry(
            image, loss, gradient, outside, uncharged, out_of_range, predicted - 1 if predicted else None
        )
        first_loss, first_gradient = first_loss + length, first_gradient + slopes


def join_entries(entries: Sequence[JournalEntry]) -> JournalEntry:
    """Return the entries of one image as one, in their order."""
    gradients = [entry.gradient for entry in entries if entry.gradient is not None]
    best = max(entries, key=lambda entry: entry.loss.max(initial=-math.inf))  # the first of equals
    return JournalEntry(
        entries[0].image,
        np.concatenate([entry.loss for entry in entries]),
        np.concatenate(gradients) if gradients else None,
        sum(entry.outside for entry in entries),
        sum(entry.uncharged for entry in entries),
        sum(entry.out_of_range for entry in entries),
        best.predicted,
    )

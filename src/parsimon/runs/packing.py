"""How points and journal entries are packed as bytes: to the last bit, and small.

What cannot be unpacked raises ValueError, whatever the bytes are.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from parsimon.core.types import Image, JournalEntry

_HEAD = 32  # bytes: how many images, and the shape of a gradient
_COUNTS = 6  # numbers for each image


def pack_bits(bits: bytes) -> bytes:
    """Pack the bits of a corner."""
    return zlib.compress(bits)


def unpack_bits(packed: bytes, count: int) -> bytes:
    """Return the bits of a corner of `count` blocks."""
    return _inflated(packed, -(-count // 8))


def pack_difference(pixels: Image, original: Image) -> bytes:
    """Pack the bits of floats less those of others, which for near floats are small whole numbers.

    The sign goes last, so that what is small begins with zeros, and all first bytes come first, for zlib to see them.
    """
    steps = pixels.reshape(-1).view(np.int32) - np.ascontiguousarray(original).reshape(-1).view(np.int32)
    return zlib.compress(((steps << 1) ^ (steps >> 31)).view(np.uint8).reshape(-1, 4).T.tobytes())


def unpack_difference(packed: bytes, original: Image) -> bytes:
    """Return the bytes of the pixels; no bit is lost."""
    differences = _inflated(packed, original.nbytes)
    coded = np.frombuffer(differences, np.uint8).reshape(4, -1).T.copy().view(np.uint32).reshape(-1)
    steps = (coded >> 1).view(np.int32) ^ -(coded & 1).astype(np.int32)
    return (np.ascontiguousarray(original).reshape(-1).view(np.int32) + steps).tobytes()


def _inflated(packed: bytes, size: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(content) != size or not inflater.eof:
        raise ValueError(f"a point must have {size} bytes")
    return content


def pack_entries(told: Sequence[JournalEntry]) -> bytes:
    """Pack six whole numbers for each image, then all losses, then all gradients.

    The numbers are the image, how many losses and gradients it has, and its three counts.
    """
    lengths = [(each.image, len(each.loss), 0 if each.gradient is None else len(each.gradient)) for each in told]
    heads = [
        (*numbers, each.outside, each.uncharged, each.out_of_range) for numbers, each in zip(lengths, told, strict=True)
    ]
    gradients = [each.gradient for each in told if each.gradient is not None]
    shape = gradients[0].shape[1:] if gradients else (0, 0, 0)
    parts = [
        np.array([len(told), *shape], np.int64).tobytes(),
        np.array(heads, np.int64).tobytes(),
        np.concatenate([np.empty(0), *(each.loss for each in told)]).astype(np.float64).tobytes(),
        *(np.ascontiguousarray(each, np.float32).tobytes() for each in gradients),
    ]
    return b"".join(parts)


def unpack_entries(packed: bytes, counts: int = _COUNTS) -> Iterator[JournalEntry]:
    """Yield what a journal entry holds. Format 3 has five numbers for each image: it lacks `out_of_range`."""
    if len(packed) < _HEAD:
        raise ValueError("it is too short")
    number, *shape = np.frombuffer(packed, np.int64, 4).tolist()
    if not 0 <= number <= (len(packed) - _HEAD) // (8 * counts) or min(shape) < 0:
        raise ValueError("its head is wrong")
    heads = np.frombuffer(packed, np.int64, counts * number, _HEAD).reshape(number, counts)
    rows = [(*row, 0)[:_COUNTS] for row in heads.tolist()]
    for row in rows:
        if min(row) < 0 or max(row[2:]) > row[1]:
            raise ValueError(f"its counts of image {row[0]} are wrong")
    points, with_gradient = (sum(row[column] for row in rows) for column in (1, 2))
    if _HEAD + heads.nbytes + 8 * points + 4 * with_gradient * math.prod(shape) != len(packed):
        raise ValueError("its length is wrong")
    losses = np.frombuffer(packed, np.float64, points, _HEAD + heads.nbytes)
    gradients = np.frombuffer(packed, np.float32, offset=_HEAD + heads.nbytes + losses.nbytes)
    gradients = gradients.reshape(-1, *shape) if with_gradient else gradients
    loss_at = gradient_at = 0
    for image, length, slopes, outside, uncharged, out_of_range in rows:
        gradient = gradients[gradient_at : gradient_at + slopes] if slopes else None
        yield JournalEntry(image, losses[loss_at : loss_at + length], gradient, outside, uncharged, out_of_range)
        loss_at, gradient_at = loss_at + length, gradient_at + slopes

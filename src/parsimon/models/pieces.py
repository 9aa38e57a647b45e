"""Any number of images, shown to a model so many at a time, always.

A framework picks its kernels by the shape of a batch, and they round differently. If every call has the same shape, a
row's scores depend neither on how many images are asked about together nor on which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from parsimon.core.canvas import pad_batch

_VALUES = 2**18  # of a call's images together: more do not run faster on a core
_AT_LEAST = 4


def images_per_call(shape: tuple[int, ...], at_most: int) -> int:
    """How many images (channels, rows, columns) to show at a time on a processor, a power of two.

    Fewer would waste what a call costs in itself, more would be wasted when only few are asked about.
    """
    fitting = max(1, _VALUES // math.prod(shape)).bit_length() - 1
    return max(_AT_LEAST, min(at_most, 1 << fitting))


def in_pieces(run: Callable[[Any], Any], images: Any, size: int, namespace: Any) -> Any:
    """What `run` makes of the images, in calls with `size` images each, the last one filled with copies."""
    return started_in_pieces(run, images, size, namespace, map)()


def started_in_pieces(
    run: Callable[[Any], Any],
    images: Any,
    size: int,
    namespace: Any,
    run_all: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]],
) -> Callable[[], Any]:
    """As `in_pieces`, with what waits for the result.

    `run_all` makes the calls; like `map`, it gives their results in order, and may make them when they are waited for.
    """
    pieces = [images[start : start + size] for start in range(0, len(images), size)]
    pieces[-1] = pad_batch(pieces[-1], size, namespace)
    started = run_all(run, pieces)

    def result() -> Any:
        results = list(started)
        return (namespace.concat(results) if len(results) > 1 else results[0])[: len(images)]

    return result

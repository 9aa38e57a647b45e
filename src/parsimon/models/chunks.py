"""Model calls of one fixed size, for any number of images.

A framework picks its kernels by the shape of a batch, and they round differently. If every call has the same shape, a
row's scores depend neither on the number of images in a batch nor on the other images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from parsimon.core.canvas import pad_batch

_VALUES_PER_CALL = 2**18  # values of all images in a call: more do not run faster on one core
_FEWEST_PER_CALL = 4


def images_per_call(shape: tuple[int, ...], at_most: int) -> int:
    """Return the number of images (channels, rows, columns) per call on a CPU, a power of two.

    With fewer, the fixed cost of a call dominates; with more, a small batch wastes much of its padding.
    """
    fitting = max(1, _VALUES_PER_CALL // math.prod(shape)).bit_length() - 1
    return max(_FEWEST_PER_CALL, min(at_most, 1 << fitting))


def call_in_chunks(run: Callable[[Any], Any], images: Any, size: int, namespace: Any) -> Any:
    """Return the results of `run` for all images, from calls with `size` images each; the last one is padded."""
    return start_in_chunks(run, images, size, namespace, map)()


def start_in_chunks(
    run: Callable[[Any], Any],
    images: Any,
    size: int,
    namespace: Any,
    run_all: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]],
) -> Callable[[], Any]:
    """Begin `call_in_chunks` and return a function that waits for its result.

    `run_all` makes the calls. Like `map`, it yields their results in order, and may make them lazily.
    """
    chunks = [images[start : start + size] for start in range(0, len(images), size)]
    chunks[-1] = pad_batch(chunks[-1], size, namespace)
    started = run_all(run, chunks)

    def result() -> Any:
        results = list(started)
        return (namespace.concat(results) if len(results) > 1 else results[0])[: len(images)]

    return result

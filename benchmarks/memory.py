"""Measure peak memory, which depends on the images in flight and not on their number.

    python benchmarks/memory.py

Images of 299 x 299 are read lazily, with 64 in flight.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import numpy as np
from numpy.typing import NDArray

import parsimon


class Lazy:
    """Images that are generated when they are read, like images from disk."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        levels = np.random.default_rng(int(index)).integers(0, 256, (3, 299, 299), np.uint8)
        return levels.astype(np.float32) / np.float32(255)


def model(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores of a cheap classifier: a random linear layer on block means."""
    pooled = images.reshape(len(images), 3, 23, 13, 23, 13).mean((3, 5)).reshape(len(images), -1)
    weights = np.random.default_rng(0).normal(size=(pooled.shape[1], 10)).astype(np.float32)
    scores: NDArray[np.float32] = (pooled - 0.5) @ weights * np.float32(20)
    return scores


def attack(name: str, count: int) -> None:
    images = Lazy(count)
    labels = np.array([int(model(images[index][None]).argmax()) for index in range(count)])
    began = time.perf_counter()
    result = parsimon.attack(
        model, images, labels, 0.01, attack=name, budget=20, in_flight=64, batch_size=16, progress=False
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(
        f"{name}: {count:,} images, 64 in flight, {result.counters.queries:,} queries, "
        f"{result.summary.success_at_least:.1%} fooled, {time.perf_counter() - began:.0f} s: peak {peak:.2f} GiB",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) > 1:
        attack(sys.argv[1], int(sys.argv[2]))
        return
    for name, count in (("parsimonious", 500), ("parsimonious", 5000), ("nes", 500), ("bandits:imagenet-0.05", 500)):
        # One process per case, since a peak never falls.
        subprocess.run([sys.executable, __file__, name, str(count)], check=True)


if __name__ == "__main__":
    main()

"""Measure the cost of a query outside the model, for more and for larger images.

    python benchmarks/growth.py

The model reads 64 pixels per image, and its time is subtracted. More images: a budget of 200, at most 256 in flight.
Larger images: 64 images and the paper's ImageNet budget of 10,000. For comparison, the time to copy an image into a
batch, and the time to paint the two blocks in which two asks of a search differ. Figures are processor time: the least
of several turns, since other processes can only add to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon import Attack, Parsimonious, Threat, Thrift
from parsimon.core.engine import Engine
from parsimon.core.types import Task
from parsimon.models import FunctionModel

TURNS, BATCH, IN_FLIGHT, COPIES, ROUNDS = 2, 64, 256, 5, 60
COUNTS, SIDES = (64, 256, 1024, 4096), (32, 64, 128, 256, 512)


class Glance(FunctionModel):
    """A model that reads a few pixels and measures its own time."""

    def __init__(self) -> None:
        super().__init__(self._scores)
        self.weights = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)
        self.seconds = 0.0

    def _scores(self, images: NDArray[np.float32]) -> NDArray[Any]:
        began = time.thread_time()  # excludes the searches, which run in another thread
        flat = images.reshape(len(images), -1)
        scores = np.tanh(flat[:, :: flat.shape[1] // 64][:, :64]) @ self.weights
        self.seconds += time.thread_time() - began
        return np.asarray(scores)


def cost(attack: Attack, count: int, side: int, budget: int) -> float:
    """Return microseconds per query outside the model."""
    glance = Glance()
    images = np.random.default_rng(1).random((min(count, 64), 3, side, side), dtype=np.float32)
    goals = glance(images).argmax(axis=1)
    tasks = (Task(index, images[index % 64], int(goals[index % 64])) for index in range(count))
    engine = Engine(attack, glance, Threat(1e-6), budget=budget, batch_size=BATCH, in_flight=IN_FLIGHT)
    glance.seconds = 0.0
    began = time.process_time()
    for _ in engine.run(tasks):
        pass
    return 1e6 * (time.process_time() - began - glance.seconds) / engine.counters.queries


def copying(side: int) -> float:
    """Return microseconds per copied image."""
    images = np.random.default_rng(1).random((256, 3 * side * side), dtype=np.float32)
    rows = np.random.default_rng(2).permutation(256)[:BATCH]
    began = time.process_time()
    for _ in range(COPIES):
        images.take(rows, axis=0)
    return 1e6 * (time.process_time() - began) / (COPIES * BATCH)


def painting(side: int) -> float:
    """Return microseconds per query, with the block sizes of Parsimonious within 10,000 queries."""
    rng = np.random.default_rng(3)
    images, others = (rng.random((64, 3, side, side), dtype=np.float32) for _ in range(2))
    windows = []
    for across in rng.choice([8, 16, 32], p=[0.05, 0.2, 0.75], size=2 * 64 * ROUNDS).tolist():
        (top, left), channel = (rng.integers(0, across, 2) * (side // across)).tolist(), rng.integers(3)
        windows.append((channel, slice(top, top + side // across), slice(left, left + side // across)))
    began = time.process_time()
    for number, window in enumerate(windows):
        slot = number // 2 % 64
        images[slot][window] = others[slot][window]
    return 1e6 * (time.process_time() - began) / (len(windows) // 2)


def main() -> None:
    cases: list[tuple[str, Callable[[], float]]] = [
        *(
            (f"{count:,} images of 32 x 32, Parsimonious", partial(cost, Parsimonious(), count, 32, 200))
            for count in COUNTS
        ),
        *(
            (f"64 images of {side} x {side}, {type(attack).__name__}", partial(cost, attack, 64, side, 10_000))
            for attack in (Parsimonious(), Thrift())
            for side in SIDES
        ),
        *((f"copying an image of {side} x {side}", partial(copying, side)) for side in SIDES),
        *((f"painting two blocks of {side} x {side}", partial(painting, side)) for side in SIDES),
    ]
    turns = []
    for _ in range(TURNS):
        turns.append([measure() for _, measure in cases])
        print([round(each, 1) for each in turns[-1]], flush=True)
    for (name, _), each in zip(cases, zip(*turns, strict=True), strict=True):
        print(f"{name}: {min(each):.1f} microseconds")


if __name__ == "__main__":
    main()

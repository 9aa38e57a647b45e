"""What a query costs beside the model, as images become more and larger.

    python benchmarks/growth.py

`Parsimonious()` on a classifier that looks at 64 pixels of an image, whatever its size; the time within it is
subtracted. Beside it, what it takes to copy an image into a new batch and nothing else, which nobody can go without who
hands a model a batch of its own. Processor time, the least of three turns in which all cases are measured once: what
else runs on the machine can only add to it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon import Parsimonious, Threat
from parsimon.engine import Engine
from parsimon.oracles import CallableOracle
from parsimon.protocol import Task

TURNS, BUDGET, BATCH, IN_FLIGHT, COPIES = 3, 200, 64, 256, 5
CASES = [*((count, 32) for count in (64, 256, 1024, 4096)), *((64, side) for side in (64, 128, 256, 512))]


class Glance:
    """Looks at a few pixels, and knows how long that took."""

    def __init__(self) -> None:
        self.weights = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)
        self.seconds = 0.0

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        began = time.process_time()
        flat = images.reshape(len(images), -1)
        scores = np.tanh(flat[:, :: flat.shape[1] // 64][:, :64]) @ self.weights
        self.seconds += time.process_time() - began
        return np.asarray(scores)


def cost(count: int, side: int) -> float:
    """Microseconds a query beside the model."""
    glance = Glance()
    images = np.random.default_rng(1).random((min(count, 64), 3, side, side), dtype=np.float32)
    goals = glance(images).argmax(axis=1)
    tasks = (Task(index, images[index % 64], int(goals[index % 64])) for index in range(count))
    oracle, threat = CallableOracle(glance), Threat(1e-4)
    engine = Engine(Parsimonious(), oracle, threat, budget=BUDGET, batch_size=BATCH, in_flight=IN_FLIGHT)
    glance.seconds = 0.0
    began = time.process_time()
    for _ in engine.run(tasks):
        pass
    return 1e6 * (time.process_time() - began - glance.seconds) / engine.tally.queries


def copying(side: int) -> float:
    """Microseconds an image."""
    images = np.random.default_rng(1).random((256, 3 * side * side), dtype=np.float32)
    rows = np.random.default_rng(2).permutation(256)[:BATCH]
    began = time.process_time()
    for _ in range(COPIES):
        images.take(rows, axis=0)
    return 1e6 * (time.process_time() - began) / (COPIES * BATCH)


def main() -> None:
    turns = [[(cost(*case), copying(case[1])) for case in CASES] for _ in range(TURNS)]
    for (count, side), costs in zip(CASES, zip(*turns, strict=True), strict=True):
        query, copy = (min(each) for each in zip(*costs, strict=True))
        print(f"{count:,} images of {side} x {side}: {query:.1f} microseconds a query, {copy:.1f} to copy an image")


if __name__ == "__main__":
    main()

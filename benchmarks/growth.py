"""What a query costs beside the model, as images become more and larger.

    python benchmarks/growth.py

On a classifier that looks at 64 pixels of an image, whatever its size; the time within it is subtracted. More images: a
budget of 200, at most 256 in flight. Larger ones: 64 images and the budget of 10,000 that the paper gives to ImageNet;
what an image costs once, to read it and to draw it for the first time, is spread over its queries. Beside that, what it
takes to copy an image into a batch and nothing else; and to paint the two blocks that two questions of a search differ
in, in images that lie side by side, and nothing else. Processor time, the least of the turns in which all cases are
measured once: what else runs on the machine can only add to it.
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
    """Looks at a few pixels, and knows how long that took."""

    only_reads = True

    def __init__(self) -> None:
        super().__init__(self._scores)
        self.weights = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)
        self.seconds = 0.0

    def _scores(self, images: NDArray[np.float32]) -> NDArray[Any]:
        began = time.thread_time()  # not of the searches, which go on meanwhile
        flat = images.reshape(len(images), -1)
        scores = np.tanh(flat[:, :: flat.shape[1] // 64][:, :64]) @ self.weights
        self.seconds += time.thread_time() - began
        return np.asarray(scores)


def cost(attack: Attack, count: int, side: int, budget: int) -> float:
    """Microseconds a query beside the model."""
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
    """Microseconds an image."""
    images = np.random.default_rng(1).random((256, 3 * side * side), dtype=np.float32)
    rows = np.random.default_rng(2).permutation(256)[:BATCH]
    began = time.process_time()
    for _ in range(COPIES):
        images.take(rows, axis=0)
    return 1e6 * (time.process_time() - began) / (COPIES * BATCH)


def painting(side: int) -> float:
    """Microseconds a query, with blocks as large as Parsimonious meets them within 10,000 queries."""
    rng = np.random.default_rng(3)
    images, others = (rng.random((64, 3, side, side), dtype=np.float32) for _ in range(2))
    windows = []
    for across in rng.choice([8, 16, 32], p=[0.05, 0.2, 0.75], size=2 * 64 * ROUNDS).tolist():
        (top, left), channel = (rng.integers(0, across, 2) * (side // across)).tolist(), rng.integers(3)
        windows.append((channel, slice(top, top + side // across), slice(left, left + side // across)))
    began = time.process_time()
    for number, window in enumerate(windows):
        place = number // 2 % 64
        images[place][window] = others[place][window]
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

"""Measure how well the engine keeps an accelerator busy: wall time of an attack over the time the device computes.

    python benchmarks/accelerator.py [attack ...]

There is no accelerator here, so it is simulated: it accepts a batch at once, computes one batch after another, takes a
set time per image, and needs neither a core nor the interpreter lock. 1,024 images are in flight, in batches of 512.
Images are rendered on the CPU, which a real accelerator does itself. The last column is the processor time of one
thread per query, everything included; for a device slower than that, the ratio should be 1.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from numpy.typing import NDArray

from parsimon import Threat, zoo
from parsimon.attacks.registry import parse_attack
from parsimon.core.engine import Engine
from parsimon.core.model import Model
from parsimon.core.types import Task

IMAGES, BATCH, BUDGET, EPS, ROUNDS = 1024, 512, 200, 1 / 255, 3
ATTACKS = ("parsimonious", "square", "thrift")
SECONDS = (100e-6, 30e-6)  # per image
_EVERY = 4  # pixels: the simulated network reads one in so many, so that its scores cost next to nothing


class Accelerator(Model):
    """A simulated device: batches queue, and each is ready a set time per image after the one before it.

    Attributes:
        busy: Seconds for which the device has computed.
    """

    asynchronous = True
    saturating_batch = 32

    def __init__(self, seconds_per_image: float, classes: int = 10) -> None:
        self._seconds = seconds_per_image
        self._weights = np.random.default_rng(0).normal(size=(3072 // _EVERY, classes)).astype(np.float32)
        self._free_at = 0.0  # when the device has finished all batches so far
        self.busy = 0.0

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.start(images)()

    def start(self, images: NDArray[np.float32]) -> Callable[[], NDArray[np.float32]]:
        duration = self._seconds * len(images)
        self.busy += duration
        self._free_at = ready = max(self._free_at, time.perf_counter()) + duration
        scores = self._scores(images)

        def wait() -> NDArray[np.float32]:
            while (remaining := ready - time.perf_counter()) > 0:
                time.sleep(remaining)
            return scores

        return wait

    def _scores(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = images.reshape(len(images), -1)[:, ::_EVERY] @ self._weights
        return scores


def measure(name: str, seconds: float) -> tuple[float, float, int]:
    """Return wall time over device time, microseconds of processor time per query, and the number of queries."""
    model = Accelerator(seconds)
    images = np.resize(zoo.images()[0], (IMAGES, 3, 32, 32))
    goals = model(images).argmax(axis=1)
    tasks = [Task(index, image, int(goal)) for index, (image, goal) in enumerate(zip(images, goals, strict=True))]
    attack = parse_attack(name)
    threat = Threat(EPS, loss=attack.own_loss(targeted=False))
    engine = Engine(attack, model, threat, budget=BUDGET, batch_size=BATCH, in_flight=IMAGES)
    gc.collect()
    model.busy = 0.0
    began, processor_began = time.perf_counter(), time.process_time()
    for _ in engine.run(tasks):
        pass
    processor, wall = time.process_time() - processor_began, time.perf_counter() - began
    return wall / model.busy, 1e6 * processor / engine.counters.queries, engine.counters.queries


def main() -> None:
    print(f"{'attack':14}{'device, us':>11}{'queries':>10}{'wall / device':>15}{'rounds':>24}{'us per query':>14}")
    for name in sys.argv[1:] or ATTACKS:
        for seconds in SECONDS:
            ratios, costs, queries = zip(*(measure(name, seconds) for _ in range(ROUNDS)), strict=True)
            rounds = ", ".join(f"{ratio:.3f}" for ratio in ratios)
            print(
                f"{name:14}{1e6 * seconds:11.0f}{queries[0]:10,}{median(ratios):15.3f}{rounds:>24}{min(costs):14.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Measure how well the engine keeps an accelerator busy: wall time of an attack over the time the device computes.

    python benchmarks/accelerator.py [attack ...]

There is no accelerator here, so it is simulated: it accepts a batch at once, computes one batch after another, takes a
set time per image, and needs neither a core nor the interpreter lock. 1,024 images are in flight, in batches of 512.
Images are rendered on the CPU, which a real accelerator does itself.

Other processes on the machine can only add to the wall time. So there is a second ratio, by a clock that counts the
processor time of the thread and the time that it would have waited for the device if it had a core of its own. The
last column is the processor time per query, everything included. The ratio is 1 if that is less than the device takes.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

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


class Queue:
    """The batches of a device, by one clock: each is ready a set time after the one before it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._free_at = 0.0  # when the device has finished all batches so far

    def add(self, duration: float) -> float:
        """Return when a batch that is begun now is ready."""
        self._free_at = max(self._free_at, self._clock()) + duration
        return self._free_at

    def missing(self, ready: float) -> float:
        """Return the seconds until then."""
        return max(0.0, ready - self._clock())


class Accelerator(Model):
    """A simulated device.

    Attributes:
        busy: Seconds for which the device has computed.
        waited: Seconds for which the thread would have waited for it, with a core of its own.
    """

    asynchronous = True
    saturating_batch = 32

    def __init__(self, seconds_per_image: float, classes: int = 10) -> None:
        self._seconds = seconds_per_image
        self._weights = np.random.default_rng(0).normal(size=(3072 // _EVERY, classes)).astype(np.float32)
        self._queue, self._undisturbed = Queue(time.perf_counter), Queue(self.undisturbed_clock)
        self.busy = self.waited = 0.0

    def undisturbed_clock(self) -> float:
        """Return the processor time of this thread, and what it has waited."""
        return time.thread_time() + self.waited

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.start(images)()

    def start(self, images: NDArray[np.float32]) -> Callable[[], NDArray[np.float32]]:
        duration = self._seconds * len(images)
        self.busy += duration
        ready, undisturbed = self._queue.add(duration), self._undisturbed.add(duration)
        scores: NDArray[np.float32] = images.reshape(len(images), -1)[:, ::_EVERY] @ self._weights

        def wait() -> NDArray[np.float32]:
            while (missing := self._queue.missing(ready)) > 0:
                time.sleep(missing)
            self.waited += self._undisturbed.missing(undisturbed)
            return scores

        return wait


class Measured(NamedTuple):
    """One attack."""

    ratio: float  # wall time over device time
    undisturbed: float  # the same by the clock of a thread with a core of its own
    cost: float  # microseconds of processor time per query
    queries: int


def measure(name: str, seconds: float) -> Measured:
    model = Accelerator(seconds)
    images = np.resize(zoo.images()[0], (IMAGES, 3, 32, 32))
    goals = model(images).argmax(axis=1)
    tasks = [Task(index, image, int(goal)) for index, (image, goal) in enumerate(zip(images, goals, strict=True))]
    attack = parse_attack(name)
    threat = Threat(EPS, loss=attack.own_loss(targeted=False))
    engine = Engine(attack, model, threat, budget=BUDGET, batch_size=BATCH, in_flight=IMAGES)
    gc.collect()
    model.busy = 0.0
    clocks = time.perf_counter, model.undisturbed_clock, time.process_time
    began = [clock() for clock in clocks]
    for _ in engine.run(tasks):
        pass
    wall, undisturbed, processor = (clock() - start for clock, start in zip(clocks, began, strict=True))
    queries = engine.counters.queries
    return Measured(wall / model.busy, undisturbed / model.busy, 1e6 * processor / queries, queries)


def main() -> None:
    print(f"{'attack':14}{'device, us':>10}{'queries':>9}{'wall over device':>39}{'undisturbed':>28}{'us':>6}")
    for name in sys.argv[1:] or ATTACKS:
        for seconds in SECONDS:
            found = [measure(name, seconds) for _ in range(ROUNDS)]
            ratios, undisturbed = [each.ratio for each in found], [each.undisturbed for each in found]
            print(
                f"{name:14}{1e6 * seconds:10.0f}{found[0].queries:9,}{_summary(ratios):>39}{_summary(undisturbed):>28}"
                f"{min(each.cost for each in found):6.1f}",
                flush=True,
            )


def _summary(ratios: list[float]) -> str:
    return f"{median(ratios):.3f} ({', '.join(f'{each:.3f}' for each in ratios)})"


if __name__ == "__main__":
    main()

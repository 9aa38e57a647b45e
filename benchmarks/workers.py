"""Measure workers: the speed of two against one, and the driver's cost per report and per image.

python benchmarks/workers.py          processes; about two minutes
python benchmarks/workers.py --ray    Ray actors on a local cluster
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from parsimon import Parsimonious, Threat, zoo
from parsimon.core.engine import Step
from parsimon.core.types import Task
from parsimon.models import as_model
from parsimon.runs.classify import classify
from parsimon.runs.workers import Driver, EngineConfig, WorkerPool
from parsimon.runs.workers.processes import Processes
from parsimon.runs.workers.worker import Request

IMAGES, BUDGET, BATCH, LARGE_BATCH, REPEATS = 256, 300, 64, 256, 5
CONFIG = EngineConfig(Parsimonious(), Threat(8 / 255), BUDGET, seed=0, batch_size=BATCH, in_flight=256)


def tasks() -> list[Task]:
    images, labels = zoo.images()
    model = as_model("robust")
    starts = range(0, 2 * IMAGES, BATCH)
    seen = np.concatenate([classify(model, images[start : start + BATCH], BATCH).argmax(1) for start in starts])
    correct = np.flatnonzero(seen == labels[: len(seen)])[:IMAGES].tolist()
    return [Task(index, images[index], int(labels[index])) for index in correct]


def timed(pool: WorkerPool, images: list[Task], batch: int = BATCH) -> tuple[float, float, int]:
    """Return queries per second, the driver's processor seconds per report, and the number of queries."""
    reports = 0

    def count(_: Step) -> None:
        nonlocal reports
        reports += 1

    driver = Driver(pool, replace(CONFIG, batch_size=batch, in_flight=CONFIG.in_flight // len(pool.workers)))
    began, used = time.perf_counter(), time.process_time()
    list(driver.run(images, count))
    seconds = time.perf_counter() - began
    return driver.counters.queries / seconds, (time.process_time() - used) / reports, driver.counters.queries


def scaling(make: Callable[[int], Any]) -> None:
    """Time one and two workers in turns and keep the best of each, since other load only slows them down."""
    images = tasks()
    with ExitStack() as stack:
        pools = {}
        for count in (1, 2):
            began = time.perf_counter()
            pools[count] = stack.enter_context(make(count))
            timed(pools[count], images[:8])
            print(f"{count} workers are ready after {time.perf_counter() - began:.1f} s")
        best: dict[int, float] = {1: 0, 2: 0}
        costs, bare = [], []
        for _ in range(REPEATS):
            for count, pool in pools.items():
                speed, cost, queries = timed(pool, images)
                best[count] = max(best[count], speed)
                costs.append(cost)
                print(f"  {count} workers: {speed:,.0f} queries/s ({queries:,} queries)", flush=True)
            bare.append(bare_ratio())
        of_large = [timed(pools[2], images, LARGE_BATCH)[1] for _ in range(2)]
    print(f"two workers are {best[2] / best[1]:.2f} times as fast as one (best of {REPEATS} each)")
    print(f"bare model calls in two processes are {max(bare):.2f} times as fast as in one (best of {REPEATS})")
    for batch, driver in ((BATCH, costs), (LARGE_BATCH, of_large)):
        print(f"driver: {1e3 * statistics.median(driver):.2f} ms of processor time per report of {batch} queries")


def bare_ratio() -> float:
    """Return the speed of model calls in two processes relative to one: the machine's limit at this moment."""
    speeds = []
    for count in (1, 2):
        with get_context("spawn").Pool(count) as pool:
            pool.map(_calls, [0.1] * count, chunksize=1)
            speeds.append(sum(pool.map(_calls, [4.0] * count, chunksize=1)))
    return speeds[1] / speeds[0]


def _calls(seconds: float) -> float:
    model, batch = as_model("robust"), zoo.images()[0][:BATCH]
    calls, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        model(batch)
        calls += 1
    return calls / (time.perf_counter() - began)


def costs(pool: WorkerPool) -> None:
    """Measure an empty request, and the extra cost of one image."""
    (worker,) = pool.workers

    def cost(request: Request, repeats: int = 200) -> tuple[float, float]:
        """Return the milliseconds per request and response, and the driver's processor time."""
        walls, used = [], time.process_time()
        for _ in range(repeats):
            began = time.perf_counter()
            pool.send(worker, request)
            list(pool.receive(60))
            walls.append(time.perf_counter() - began)
        return 1e3 * statistics.median(walls), 1e3 * (time.process_time() - used) / repeats

    # An attack that stops at once: its images are sent but not attacked.
    idle = Request(config=replace(CONFIG, in_flight=1), stop=True)
    cost(idle, 1)
    wall, used = cost(idle)
    print(f"request and response: {wall:.2f} ms, including {used:.2f} ms of the driver's processor time")
    for side in (32, 299):
        image = Task(0, np.zeros((3, side, side), np.float32), 0)
        more_wall, more_used = cost(idle._replace(tasks=(image,)))
        more = f"{more_wall - wall:.2f} ms more, including {more_used - used:.2f} ms of the driver's processor time"
        print(f"with an image of {side} x {side}: {more}")


def main() -> None:
    make: Callable[[int], Any] = lambda count: Processes("robust", count)  # noqa: E731
    if "--ray" in sys.argv:
        import ray

        from parsimon.runs.workers.cluster import Cluster

        began = time.perf_counter()
        ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        print(f"a Ray cluster started in {time.perf_counter() - began:.1f} s")
        make = lambda count: Cluster("robust", count, "local")  # noqa: E731
    with make(1) as pool:
        costs(pool)
    scaling(make)


if __name__ == "__main__":
    main()

"""The engine beside the plain loop over images that the authors' code is: same network, images, queries, results.

python benchmarks/loop.py
"""

from __future__ import annotations

import time

import numpy as np

from parsimon import Parsimonious, Threat, zoo
from parsimon.engine import Engine
from parsimon.oracles import as_oracle
from parsimon.protocol import Task
from published_loop import Loop

IMAGES, BUDGET = 64, 1000


def main() -> None:
    images, labels = zoo.images()
    oracle = as_oracle(zoo.path("robust"))
    correct = np.flatnonzero(np.asarray(oracle(images[:256])).argmax(1) == labels[:256])[:IMAGES]
    threat = Threat(8 / 255)

    began = time.perf_counter()
    engine = Engine(Parsimonious("published", block=4), oracle, threat, budget=BUDGET, batch_size=32)
    tasks = [Task(int(index), images[index], int(labels[index])) for index in correct]
    outcomes = {outcome.index: outcome for outcome in engine.run(tasks)}
    engine_seconds = time.perf_counter() - began

    began = time.perf_counter()
    queries = differences = 0
    for task in tasks:
        loop = Loop(oracle, threat, task.image, task.goal, task.index, BUDGET, noise_side=32, block=4)
        success = loop.run()
        queries += loop.queries
        outcome = outcomes[task.index]
        differences += (success, loop.queries) != (outcome.success, outcome.queries)
    loop_seconds = time.perf_counter() - began
    print(
        f"{len(tasks)} images, {queries:,} queries, {differences} different results; plain loop {loop_seconds:.1f} s, "
        f"engine {engine_seconds:.1f} s: {loop_seconds / engine_seconds:.2f} times as fast"
    )


if __name__ == "__main__":
    main()

"""Compare the engine with the plain loop over images of the authors' code: same network, images and budget.

python benchmarks/loop.py
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from parsimon import Parsimonious, Threat, zoo
from parsimon.core.engine import Engine
from parsimon.core.types import Task
from parsimon.models import as_model
from parsimon.runs.classify import classify
from published_loop import Loop

IMAGES, BUDGET, BATCH = 128, 500, 64


def compare(name: str, network: Any) -> None:
    images, labels = zoo.images()
    model = as_model(network)
    seen = np.concatenate([classify(model, images[at : at + BATCH], BATCH).argmax(1) for at in range(0, 256, BATCH)])
    correct = np.flatnonzero(seen == labels[:256])[:IMAGES].tolist()
    tasks = [Task(index, images[index], int(labels[index])) for index in correct]
    threat = Threat(8 / 255)

    began = time.perf_counter()
    engine = Engine(Parsimonious("published", block=4), model, threat, budget=BUDGET, batch_size=BATCH)
    outcomes = {outcome.index: outcome for outcome in engine.run(tasks)}
    engine_seconds = time.perf_counter() - began

    began = time.perf_counter()
    queries = same = 0
    for task in tasks:
        loop = Loop(
            lambda pixels: model(model.namespace.asarray(pixels)),
            threat,
            task.image,
            task.goal,
            task.index,
            BUDGET,
            noise_side=32,
            block=4,
        )
        success = loop.run()
        queries += loop.queries
        outcome = outcomes[task.index]
        same += (success, loop.queries) == (outcome.success, outcome.queries)
    loop_seconds = time.perf_counter() - began
    ratio = (loop_seconds / queries) / (engine_seconds / engine.counters.queries)
    print(
        f"{name}: {len(tasks)} images, {queries:,} queries, {same} with the same result; "
        f"plain loop {loop_seconds:.1f} s, engine {engine_seconds:.1f} s: {ratio:.2f} times as fast per query",
        flush=True,
    )


def main() -> None:
    compare("ONNX Runtime", zoo.path("robust"))
    compare("torch", zoo.module("robust"))


if __name__ == "__main__":
    main()

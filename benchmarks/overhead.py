"""Measure the overhead of the engine: wall time of an attack divided by that of bare forward passes of as many rows.

    python benchmarks/overhead.py [attack ...]

1,024 images are attacked at once, in the default batch size for that number. Before and after each attack the model
evaluates full batches, asynchronously if it can; the mean of both is the reference. The speed of a machine varies by
more than the overhead, so all rounds are printed with their median. OMP_NUM_THREADS is the number of cores that the
model uses; `make bench` sets it to one.
"""

from __future__ import annotations

import sys
import time
from statistics import median

import numpy as np
from numpy.typing import NDArray

from parsimon import Threat, zoo
from parsimon.attacks import ATTACKS
from parsimon.attacks.registry import parse_attack
from parsimon.core.engine import Engine
from parsimon.core.model import Model
from parsimon.core.types import Task
from parsimon.models import FunctionModel, as_model
from parsimon.runs.classify import classify

IMAGES, BATCH, ROUNDS, BARE_ROWS = 1024, 512, 7, 2**14
SMALL_SECONDS = 30e-6  # per image, for a network that is much faster than the bundled one


def bare(model: Model, images: NDArray[np.float32]) -> float:
    """Return the seconds per image of the model alone."""
    batches = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
    batches *= BARE_ROWS // len(images)
    began = time.perf_counter()
    if model.saturating_batch is not None:
        for scores in [model.start(batch) for batch in batches]:
            scores()
    else:
        for batch in batches:
            model(batch)
    return (time.perf_counter() - began) / BARE_ROWS


def perceptron(hidden: int, classes: int = 10) -> FunctionModel:
    """Return a network of two layers with `hidden` units."""
    rng = np.random.default_rng(0)
    first = (rng.normal(size=(3072, hidden)) / np.sqrt(3072)).astype(np.float32)
    second = (rng.normal(size=(hidden, classes)) / np.sqrt(hidden)).astype(np.float32)
    return FunctionModel(lambda images: np.maximum((images.reshape(len(images), -1) - 0.5) @ first, 0) @ second)


def small_network() -> FunctionModel:
    """Return the narrowest perceptron that takes `SMALL_SECONDS` per image on this machine."""
    hidden = 256
    while bare(network := perceptron(hidden), shown()) < SMALL_SECONDS:
        hidden += 32
    return network


def shown() -> NDArray[np.float32]:
    return np.resize(zoo.images()[0], (IMAGES, 3, 32, 32))


def measure(name: str, attack_name: str, model: Model, eps: float, budget: int) -> None:
    images = shown()
    # Predictions serve as labels, so that any network can be attacked on any images.
    truth = np.concatenate(
        [classify(model, images[start : start + BATCH], BATCH).argmax(axis=1) for start in range(0, IMAGES, BATCH)]
    )
    tasks = [Task(index, images[index], int(truth[index])) for index in range(IMAGES)]
    attack = parse_attack(attack_name)
    threat = Threat(eps, loss=attack.own_loss(targeted=False))
    ratios, alone, around = [], [], bare(model, images)
    for _ in range(ROUNDS):
        engine = Engine(attack, model, threat, budget=budget, batch_size=BATCH, in_flight=IMAGES)
        began = time.perf_counter()
        for _ in engine.run(tasks):
            pass
        whole = (time.perf_counter() - began) / engine.counters.rows
        before, around = around, bare(model, images)
        alone.append((before + around) / 2)
        ratios.append(whole / alone[-1])
    print(
        f"{attack_name} on the {name}: {engine.counters.rows:,} rows, {1e3 * median(alone):.4f} ms per image bare; "
        f"attack over bare {median(ratios):.3f} ({', '.join(f'{each:.3f}' for each in ratios)})",
        flush=True,
    )


def main() -> None:
    for name in sys.argv[1:] or [name for name, attack in ATTACKS.items() if attack.needs != "gradient"]:
        measure("bundled network", name, as_model(zoo.path("robust")), 8 / 255, 100)
    if not sys.argv[1:]:
        measure("perceptron", "parsimonious", small_network(), 1 / 255, 300)


if __name__ == "__main__":
    main()

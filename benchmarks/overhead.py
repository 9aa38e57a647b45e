"""What the engine adds to the model: wall time of an attack over that of the bare forward passes of as many rows.

    python benchmarks/overhead.py [attack ...]

1,024 images are attacked at once, in batches as large as they are by default for so many. Before and after every
attack the same oracle is shown full batches and nothing but that, one begun before the other is done where it can do
so, and the mean of both is what the attack is held against. The machine's speed varies by more than what is measured,
so there are several rounds; all of them are printed, with their median. OMP_NUM_THREADS says how many cores the model
has; `make bench` gives it one.
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
from parsimon.runs.preflight import classify

IMAGES, BATCH, ROUNDS, BARE_ROWS = 1024, 512, 7, 2**14
SMALL_SECONDS = 30e-6  # an image of a network that is much quicker than the bundled one


def bare(oracle: Model, images: NDArray[np.float32]) -> float:
    """Seconds an image, of the model alone."""
    batches = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
    batches *= BARE_ROWS // len(images)
    began = time.perf_counter()
    if oracle.saturating_batch is not None:
        for scores in [oracle.start(batch) for batch in batches]:
            scores()
    else:
        for batch in batches:
            oracle(batch)
    return (time.perf_counter() - began) / BARE_ROWS


def perceptron(hidden: int, classes: int = 10) -> FunctionModel:
    """Two layers, the first of which is as wide as that."""
    rng = np.random.default_rng(0)
    first = (rng.normal(size=(3072, hidden)) / np.sqrt(3072)).astype(np.float32)
    second = (rng.normal(size=(hidden, classes)) / np.sqrt(hidden)).astype(np.float32)
    return FunctionModel(lambda images: np.maximum((images.reshape(len(images), -1) - 0.5) @ first, 0) @ second)


def small_network() -> FunctionModel:
    """The narrowest perceptron that takes as long for an image as is asked, on whatever machine this is."""
    hidden = 256
    while bare(network := perceptron(hidden), shown()) < SMALL_SECONDS:
        hidden += 32
    return network


def shown() -> NDArray[np.float32]:
    return np.resize(zoo.images()[0], (IMAGES, 3, 32, 32))


def measure(name: str, attack_name: str, oracle: Model, eps: float, budget: int) -> None:
    images = shown()
    # What the model sees is taken for the truth, so that any network can be attacked on any images.
    truth = np.concatenate(
        [classify(oracle, images[start : start + BATCH], BATCH).argmax(axis=1) for start in range(0, IMAGES, BATCH)]
    )
    tasks = [Task(index, images[index], int(truth[index])) for index in range(IMAGES)]
    attack = parse_attack(attack_name)
    threat = Threat(eps, loss=attack.own_loss(targeted=False))
    ratios, alone, around = [], [], bare(oracle, images)
    for _ in range(ROUNDS):
        engine = Engine(attack, oracle, threat, budget=budget, batch_size=BATCH, in_flight=IMAGES)
        began = time.perf_counter()
        for _ in engine.run(tasks):
            pass
        whole = (time.perf_counter() - began) / engine.counters.rows
        before, around = around, bare(oracle, images)
        alone.append((before + around) / 2)
        ratios.append(whole / alone[-1])
    print(
        f"{attack_name} on the {name}: {engine.counters.rows:,} rows, {1e3 * median(alone):.4f} ms an image bare; "
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

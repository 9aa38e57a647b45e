"""What the engine adds to the model: wall time of an attack over that of the bare forward passes of the same rows.

    python benchmarks/overhead.py [attack ...]

1,024 images are attacked at once, in batches as large as they are by default for so many. Every row that a search asked
for is also shown to the same oracle in full batches and nothing but that, in the same run and in turns with the attack,
so that both see the same state of the machine.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon import Threat, zoo
from parsimon.attacks import ATTACKS
from parsimon.attacks.named import open_attack
from parsimon.checks import classify
from parsimon.engine import Engine, Step
from parsimon.oracles import CallableOracle, as_oracle
from parsimon.protocol import Oracle, StartingOracle, Task

IMAGES, BATCH, STEPS_A_TURN = 1024, 512, 16
Answer = Callable[[], NDArray[Any]]


class InTurns:
    """An oracle whose rows are shown again, in full batches, after every so many of the engine's steps."""

    def __init__(self, oracle: Oracle) -> None:
        self.namespace, self.device, self.fixed_batch = oracle.namespace, oracle.device, oracle.fixed_batch
        self._start = oracle.start if isinstance(oracle, StartingOracle) else partial(partial, oracle)
        self._shown: deque[tuple[NDArray[np.float32], Answer]] = deque()
        self._rows_before = 0
        self._again: list[NDArray[np.float32]] = []
        self.bare_seconds = self.aside_seconds = 0.0
        self.bare_rows = 0

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        return self.start(images)()

    def start(self, images: NDArray[np.float32]) -> Answer:
        answer = lru_cache(self._start(images))
        self._shown.append((images, answer))
        return answer

    def show_again(self, step: Step) -> None:
        """Collect the rows of a call that a search asked for, and show what was collected when it is much."""
        rows, _ = self._shown.popleft()
        self._again.append(rows[: step.tally.rows - self._rows_before])
        self._rows_before = step.tally.rows
        if step.tally.calls % STEPS_A_TURN == 0:
            for _, answer in self._shown:  # of a batch that was begun, which belongs to the attack
                answer()
            began = time.perf_counter()
            rows = np.concatenate(self._again)
            rows = rows[: len(rows) // BATCH * BATCH]
            self._again.clear()
            start = time.perf_counter()
            for answer in [self._start(rows[first : first + BATCH]) for first in range(0, len(rows), BATCH)]:
                answer()
            self.bare_seconds += time.perf_counter() - start
            self.bare_rows += len(rows)
            self.aside_seconds += time.perf_counter() - began


def perceptron(hidden: int = 352, classes: int = 10) -> CallableOracle:
    """A network of about 0.03 ms an image on one core."""
    rng = np.random.default_rng(0)
    first = (rng.normal(size=(3072, hidden)) / np.sqrt(3072)).astype(np.float32)
    second = (rng.normal(size=(hidden, classes)) / np.sqrt(hidden)).astype(np.float32)
    return CallableOracle(lambda images: np.maximum((images.reshape(len(images), -1) - 0.5) @ first, 0) @ second)


def measure(name: str, attack_name: str, oracle: Oracle, eps: float, budget: int) -> None:
    images = np.resize(zoo.images()[0], (IMAGES, 3, 32, 32))
    # What the model sees is taken for the truth, so that any network can be attacked on any images.
    truth = np.concatenate(
        [classify(oracle, images[at : at + BATCH], BATCH).argmax(1) for at in range(0, IMAGES, BATCH)]
    )
    tasks = [Task(index, images[index], int(truth[index])) for index in range(IMAGES)]
    in_turns = InTurns(oracle)
    attack = open_attack(attack_name)
    threat = Threat(eps, loss=attack.own_loss(targeted=False))
    engine = Engine(attack, in_turns, threat, budget=budget, batch_size=BATCH, in_flight=IMAGES)
    began = time.perf_counter()
    outcomes = list(engine.run(tasks, in_turns.show_again))
    whole = time.perf_counter() - began - in_turns.aside_seconds
    bare = in_turns.bare_seconds * engine.tally.rows / in_turns.bare_rows
    rows = engine.tally.rows
    print(
        f"{attack_name} on the {name}: batch {BATCH}, {len(outcomes)} images, {rows:,} rows, "
        f"{1e3 * bare / rows:.4f} ms an image bare; "
        f"attack {whole:.1f} s over {bare:.1f} s bare = {whole / bare:.3f}; batch fill {engine.tally.fill:.1%}",
        flush=True,
    )


def main() -> None:
    for name in sys.argv[1:] or [name for name, attack in ATTACKS.items() if not attack.white_box]:
        measure("bundled network", name, as_oracle(zoo.path("robust")), 8 / 255, 300)
    if not sys.argv[1:]:
        measure("perceptron", "parsimonious", perceptron(), 1 / 255, 1000)


if __name__ == "__main__":
    main()

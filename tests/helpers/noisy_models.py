"""Small random models, and attacks on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from parsimon.attacks import ATTACKS
from parsimon.core.engine import Engine
from parsimon.core.model import Model
from parsimon.core.threat import Sampling, Threat
from parsimon.core.types import Ask, Attack, Images, Outcome, Task
from parsimon.defences import InputNoise, defended
from parsimon.testing import Network, tasks_for

SHAPE = (3, 8, 8)
SCORE_BASED = [name for name, kind in ATTACKS.items() if kind.needs not in ("label", "gradient")]


def keyed_noise(sigma: float = 0.05) -> Model:
    """A random model whose responses to a row depend on its pixels and key alone, to the last bit."""
    return defended(Network(SHAPE), [InputNoise(sigma)])


def some_tasks(count: int = 5) -> tuple[Task, ...]:
    return tasks_for(SHAPE, Threat(0.03, loss="margin"), count)


def attacked(model: Model, sampling: Sampling, attack: Attack, budget: int = 20, **options: Any) -> Outcome:
    """Attack one grey image, number 7 of class 0."""
    threat = Threat(0.1, loss="margin", sampling=sampling)
    task = Task(7, np.full(SHAPE, 0.5, np.float32), 0)
    (outcome,) = Engine(attack, model, threat, budget=budget, **options).run([task])
    return outcome


def asks_near(*sizes: int, **settings: Any) -> tuple[Ask, ...]:
    """Return asks for this many random images, near the grey one."""
    rng = np.random.default_rng(3)
    return tuple(Ask(Images(rng.uniform(0.45, 0.55, (size, *SHAPE)).astype("f4")), **settings) for size in sizes)

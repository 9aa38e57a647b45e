"""The most queries that a run can take, and what they take of time and money.

How many queries an attack needs depends on the model. Beforehand only the maximum is known: no image is fooled, and
every attack spends its whole budget.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model
from parsimon.core.types import Attack
from parsimon.runs.classify import classify
from parsimon.runs.config import RunConfig

LONG_SECONDS = 300  # a run that may take longer says so before it starts
_TIMED_CALLS = 3
_GRADIENT_COST = 3  # time of an evaluation with its gradient, in evaluations: the backward pass takes about two


@dataclass(frozen=True)
class Estimate:
    """The most that the attacks on one model can take.

    Attributes:
        model: The name of the model.
        images: Number of images to attack.
        queries: The most queries of each attack, uncharged evaluations included.
        uncharged: Further queries: those of the clean images, and the second query of each success. Of a random model:
            the draws of both, and one more of each clean image, by which a resumed run compares the model.
        seconds: The time that the model takes for all queries at the measured speed. It is no maximum: searching and
            drawing are left out, and another load of the machine changes it.
        seconds_per_query: The measured speed.
    """

    model: str
    images: int
    queries: Mapping[str, int]
    uncharged: int
    seconds: float
    seconds_per_query: float

    @classmethod
    def of(
        cls,
        config: RunConfig,
        attacks: Mapping[str, Attack],
        images: int,
        clean: int,
        seconds_per_query: float,
        radii: int = 1,
    ) -> Estimate:
        """Return the estimate of a run, or of as many runs as there are radii."""
        most = {name: radii * images * attack.most_evaluations(config.budget) for name, attack in attacks.items()}
        draws = 0 if config.sampling is None else config.sampling.draws
        verified = radii * images * len(attacks) * max(1, draws) if config.execution.verify or draws else 0
        uncharged = radii * clean * clean_queries(draws) + verified
        costs = [count * (_GRADIENT_COST if attacks[name].white_box else 1) for name, count in most.items()]
        seconds = (sum(costs) + uncharged) * seconds_per_query / (config.execution.workers or 1)
        return cls(config.model, images, most, uncharged, seconds, seconds_per_query)

    @property
    def total(self) -> int:
        """All queries of all attacks."""
        return sum(self.queries.values())

    def cost(self, price_per_1000: float) -> float:
        """Return the price of all queries, uncharged ones included. Retries, checks and batch filling come on top."""
        return (self.total + self.uncharged) * price_per_1000 / 1000

    def __str__(self) -> str:
        speed = f"{1000 * self.seconds_per_query:.3g} ms per query"
        return f"{self.images:,} images, at most {self.total:,} queries, about {_duration(self.seconds)} at {speed}"


def clean_queries(draws: int) -> int:
    """Return the queries of a clean image: one for its scores, and the draws of a random model for its class."""
    return 1 + draws


def time_queries(model: Model, pixels: NDArray[np.float32], batch_size: int) -> float:
    """Return the seconds per query, after a call that warms up. A batch has one query of each of these images."""
    spent = []
    for _ in range(1 + (_TIMED_CALLS if model.traffic is None else 1)):  # a remote model may cost money
        began = time.perf_counter()
        classify(model, pixels, batch_size)
        spent.append(time.perf_counter() - began)
    return median(spent[1:]) / len(pixels)


def announce(estimate: Estimate) -> None:
    """Say on standard error that a run may take long."""
    if estimate.seconds > LONG_SECONDS:
        print(f"note: {estimate}", file=sys.stderr)


def _duration(seconds: float) -> str:
    """Return a time in its two largest units."""
    if seconds < 1:
        return "1 second"
    for unit, size, smaller, part in (("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            return f"{int(seconds // size):,} {unit} {int(seconds % size // part)} {smaller}"
    return f"{seconds:.0f} s"

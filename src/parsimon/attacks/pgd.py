"""PGD: Madry et al., *Towards Deep Learning Models Resistant to Adversarial Attacks* (2018).

The white-box baseline for black-box attacks: step by the sign of the gradient and project into the ball (section 2.1).
Each evaluation is a charged query, with its gradient or without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parsimon.core.types import Ask, Attack, ImageContext, Images, Paper, Search
from parsimon.errors import MOST, InputError, check_flag, check_number, check_whole


@dataclass(frozen=True)
class PGD(Attack):
    """Projected gradient ascent by signs. The defaults are those of the paper for CIFAR-10.

    Every point is tested for success, including the last one, so each start takes up to `steps + 1` queries.

    Attributes:
        steps: Gradient steps from each start.
        step: Step size per pixel.
        random_start: Start from a random point of the ball instead of the image.
        restarts: Maximal number of starts; more than one needs `random_start`.
    """

    steps: int = 20
    step: float = 2 / 255
    random_start: bool = True
    restarts: int = 1

    needs: ClassVar = "gradient"
    climbs: ClassVar = False
    paper: ClassVar = Paper(
        "Madry, Makelov, Schmidt, Tsipras and Vladu",
        "Towards Deep Learning Models Resistant to Adversarial Attacks",
        2018,
        "https://arxiv.org/abs/1706.06083",
    )
    presets: ClassVar = {
        "cifar10": {},
        "imagenet": {"steps": 20, "step": 0.01},
        "imagenet-targeted": {"steps": 200, "step": 0.001},
    }

    def __post_init__(self) -> None:
        check_whole("steps", self.steps, 1, MOST)
        check_number("step", self.step)
        check_flag("random_start", self.random_start)
        check_whole("restarts", self.restarts, 1, MOST)
        if self.restarts > 1 and not self.random_start:
            raise InputError("restarts need random_start: without it, each start repeats the first")

    def most_evaluations(self, budget: int) -> int:
        return min(budget, self.restarts * (self.steps + 1))

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        low, high = context.bounds
        for _ in range(self.restarts):
            image = context.image
            if self.random_start:
                image = context.project(low + (high - low) * rng.random(context.shape, np.float32))
            for _ in range(self.steps):
                reply = yield Ask(Images(image[None]), gradient=True)
                assert reply.gradient is not None, "a white-box attack receives the gradients that it asks for"
                image = context.project(image + np.float32(self.step) * np.sign(reply.gradient[0]))
            yield Ask(Images(image[None]))

"""PGD: Madry et al., *Towards Deep Learning Models Resistant to Adversarial Attacks* (2018).

The white-box attack that black-box ones are held against: it is told the gradient, steps by its sign, and projects
into the ball. Each evaluation, with its gradient or without, is a charged query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parsimon.core.types import Ask, Attack, ImageContext, Images, Search
from parsimon.errors import MOST, InputError, check_flag, check_number, check_whole


@dataclass(frozen=True)
class PGD(Attack):
    """Projected gradient ascent by signs. Defaults: the paper's for CIFAR-10.

    Every point on the way is tested for success, and so is the last, which makes `steps + 1` queries for each start.

    Attributes:
        steps: Gradient steps from each start.
        step: Length of a step at each pixel.
        random_start: Start from a random point of the ball, not from the image.
        restarts: How many starts, at most; without random ones the second would be the first again.
    """

    steps: int = 20
    step: float = 2 / 255
    random_start: bool = True
    restarts: int = 1

    white_box: ClassVar = True
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
            raise InputError("restarts need random_start: without it each would repeat the first")

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        low, high = context.bounds
        for _ in range(self.restarts):
            image = context.image
            if self.random_start:
                image = context.project(low + (high - low) * rng.random(context.shape, np.float32))
            for _ in range(self.steps):
                reply = yield Ask(Images(image[None]), gradient=True)
                assert reply.gradient is not None, "a white-box attack is told what it asks for"
                image = context.project(image + np.float32(self.step) * np.sign(reply.gradient[0]))
            yield Ask(Images(image[None]))

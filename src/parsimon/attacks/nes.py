"""NES: Ilyas, Engstrom, Athalye and Lin, *Black-box Adversarial Attacks with Limited Queries and Information* (2018).

Estimate the gradient from the losses at random points around the image (Algorithm 1), step by its sign, and project
into the ball. Moon, An and Song (2019) run two implementations, which differ only in settings. The first is by the
authors of NES, with momentum and an annealed step. The second is by the authors of Bandits, without either; there the
noise is given by its expected length.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parsimon.core.types import Ask, Attack, Image, ImageContext, Images, Paper, Reply, Search
from parsimon.errors import MOST, InputError, check_flag, check_number, check_whole

# Both as in the authors' code.
_PLATEAU = 5  # estimates over which the loss must not fall
_LEAST_STEP = 5e-5  # below which annealing does not go


@dataclass(frozen=True)
class NES(Attack):
    """NES with antithetic samples. The defaults are those of Moon, An and Song for CIFAR-10.

    Attributes:
        samples: Probes per gradient estimate, in pairs on opposite sides of the image.
        sigma: Standard deviation of the noise per pixel; with `by_length`, the expected length of the noise.
        by_length: Divide sigma by the square root of the number of pixels, as the authors of Bandits do.
        step: Step size per pixel.
        momentum: Weight of the previous direction in the next one.
        anneal: Halve the step when the mean loss of the probes has fallen over the last five estimates.
        strict: Also charge the success check of each new image. As published, only probes are charged.
    """

    samples: int = 100
    sigma: float = 0.001
    by_length: bool = False
    step: float = 0.01
    momentum: float = 0.9
    anneal: bool = True
    strict: bool = False

    climbs: ClassVar = False
    paper: ClassVar = Paper(
        "Ilyas, Engstrom, Athalye and Lin",
        "Black-box Adversarial Attacks with Limited Queries and Information",
        2018,
        "https://arxiv.org/abs/1804.08598",
    )
    presets: ClassVar = {
        "cifar10": {},
        "imagenet-0.05": {"sigma": 0.1, "by_length": True, "step": 0.01, "momentum": 0.0, "anneal": False},
        "imagenet-0.03": {"sigma": 1.0, "by_length": True, "step": 0.005, "momentum": 0.0, "anneal": False},
        "imagenet-0.01": {"sigma": 1.0, "by_length": True, "step": 0.001, "momentum": 0.0, "anneal": False},
        "imagenet-targeted": {"samples": 50, "momentum": 0.7},
    }

    def __post_init__(self) -> None:
        check_whole("samples", self.samples, 2, MOST)
        if self.samples % 2:
            raise InputError(f"samples come in pairs, so their number must be even; got {self.samples}")
        for name in ("sigma", "step"):
            check_number(name, getattr(self, name))
        check_number("momentum", self.momentum, 0, 0.999999)
        for name in ("by_length", "anneal", "strict"):
            check_flag(name, getattr(self, name))

    def most_evaluations(self, budget: int) -> int:
        return budget if self.strict else budget + budget // self.samples  # one check after each estimate

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        image, step = context.image, self.step
        direction = np.zeros_like(image)
        losses: list[float] = []
        while True:
            gradient, loss = yield from self._estimate(image, rng)
            direction = np.float32(self.momentum) * direction + np.float32(1 - self.momentum) * gradient
            losses = [*losses, loss][-_PLATEAU:]
            if self.anneal and len(losses) == _PLATEAU and losses[-1] < losses[0]:
                step = max(step / 2, min(step, _LEAST_STEP))
                losses = []
            image = context.project(image + np.float32(step) * np.sign(direction))
            yield Ask(Images(image[None]), charged=self.strict)

    def _estimate(self, image: Image, rng: np.random.Generator) -> Generator[Ask, Reply, tuple[Image, float]]:
        """Return the gradient, up to a positive factor, and the mean loss of the probes (Algorithm 1).

        It asks for one pair at a time: a whole estimate would hold a hundred probes in memory per attacked image.
        """
        sigma = np.float32(self.sigma / math.sqrt(image.size) if self.by_length else self.sigma)
        gradient, total = np.zeros_like(image), 0.0
        for _ in range(self.samples // 2):
            noise = rng.standard_normal(image.shape, np.float32)
            probes = np.empty((2, *image.shape), np.float32)
            np.multiply(sigma, noise, out=probes[0])
            np.subtract(image, probes[0], out=probes[1])
            probes[0] += image
            above, below = (yield Ask(Images(probes), eligible_from=math.inf)).loss.tolist()
            noise *= np.float32(above - below)
            gradient += noise
            total += above + below
        return gradient, total / self.samples

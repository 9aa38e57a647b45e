"""Bandits: Ilyas, Engstrom and Madry, *Prior Convictions: Black-Box Adversarial Attacks with Bandits and Priors*, 2019.

Gradients change little from step to step (the time prior) and from pixel to pixel (the data prior). So the attack keeps
one direction over all steps, on tiles instead of pixels. Online convex optimisation improves it by two queries per step
(Algorithm 2), and the image follows its sign (Algorithm 3).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Ask, Attack, Image, ImageContext, Images, Paper, Reply, Search
from parsimon.errors import MOST, check_flag, check_number, check_whole

Prior = NDArray[np.float32]  # (channels, tiles)


@dataclass(frozen=True)
class Bandits(Attack):
    """Bandits with time and data priors, for the L-infinity ball. The defaults are those for CIFAR-10.

    As published, the success check of each new image is free (the result counts it as `uncharged`). The probes may
    leave the ball (counted as `outside`) and are not tested for success.

    Attributes:
        online_step: Learning rate of the online convex optimisation.
        step: Step size of the image per pixel.
        exploration: Expected length of the noise that is added to the prior and subtracted from it.
        probe: Distance of the probes from the image.
        tile: Rows and columns of the prior, which is upsampled to the image by nearest neighbour.
        strict: Charge every evaluation.
    """

    online_step: float = 0.1
    step: float = 0.01
    exploration: float = 0.1
    probe: float = 0.1
    tile: int = 16
    strict: bool = False

    climbs: ClassVar = False
    paper: ClassVar = Paper(
        "Ilyas, Engstrom and Madry",
        "Prior Convictions: Black-Box Adversarial Attacks with Bandits and Priors",
        2019,
        "https://arxiv.org/abs/1807.07978",
    )
    presets: ClassVar = {
        "cifar10": {},
        "imagenet-0.05": {"online_step": 100.0, "step": 0.01, "exploration": 1.0, "probe": 0.1, "tile": 50},
        "imagenet-0.03": {"online_step": 100.0, "step": 0.005, "exploration": 1.0, "probe": 1.0, "tile": 50},
        "imagenet-0.01": {"online_step": 100.0, "step": 0.001, "exploration": 0.1, "probe": 1.0, "tile": 50},
        "imagenet-targeted": {"online_step": 1.0, "step": 0.001, "exploration": 1.0, "probe": 0.1, "tile": 50},
    }

    def __post_init__(self) -> None:
        for name in ("online_step", "step", "exploration", "probe"):
            check_number(name, getattr(self, name))
        check_whole("tile", self.tile, 1, MOST)
        check_flag("strict", self.strict)

    def most_evaluations(self, budget: int) -> int:
        return budget if self.strict else budget + budget // 2  # one check after two probes

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        channels, height, width = context.shape
        rows, columns = min(self.tile, height), min(self.tile, width)
        tile_of_pixel = (np.arange(height) * rows // height)[:, None] * columns + np.arange(width) * columns // width
        image = context.image
        # An exponentiated gradient step of a prior in (-1, 1) is a plain step of its inverse hyperbolic tangent. That
        # form does not overflow, and a prior that is rounded to 1 can still turn back.
        dual = np.zeros((channels, rows * columns), np.float32)
        while True:
            gradient = yield from self._estimate(image, np.tanh(dual), tile_of_pixel, rng)
            dual += np.float32(self.online_step) * gradient
            step = np.float32(self.step) * np.sign(dual)
            image = context.project(image + step.take(tile_of_pixel, axis=1))
            yield Ask(Images(image[None]), charged=self.strict)

    def _estimate(
        self, image: Image, prior: Prior, tile_of_pixel: NDArray[np.intp], rng: np.random.Generator
    ) -> Generator[Ask, Reply, Prior]:
        """Return an estimate of the gradient, with respect to the prior, of the loss along the prior (Algorithm 2)."""
        noise = rng.standard_normal(prior.shape, np.float32)
        noise *= np.float32(self.exploration / math.sqrt(noise.size))
        tiles = np.empty((2, *prior.shape), np.float32)
        np.add(prior, noise, out=tiles[0])
        np.subtract(prior, noise, out=tiles[1])
        probes = tiles.take(tile_of_pixel, axis=2)
        for probe in probes.reshape(2, -1):
            probe *= np.float32(self.probe) / np.sqrt(probe @ probe)
        probes += image
        above, below = (yield Ask(Images(probes), eligible_from=math.inf)).loss.tolist()
        noise *= np.float32((above - below) / (float(self.probe) * float(self.exploration)))
        return noise

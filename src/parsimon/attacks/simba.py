"""SimBA: Guo, Gardner, You, Wilson and Weinberger, *Simple Black-box Adversarial Attacks* (ICML 2019).

Take the directions of an orthonormal basis in random order. Step back along each, otherwise forth, and keep a step that
raises the loss (Algorithm 1). The basis is that of pixels, or of low frequencies of the discrete cosine transform. The
paper bounds the L2 norm; here, as in the authors' code with a bound, each query is projected into the L-infinity ball.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Ask, Attack, ImageContext, Images, Paper, Search
from parsimon.errors import check_choice, check_number

Basis = Literal["pixel", "dct"]


@dataclass(frozen=True)
class SimBA(Attack):
    """SimBA within the L-infinity ball.

    Attributes:
        basis: `pixel`, or `dct` for low frequencies.
        step: Step size along a direction (epsilon in the paper).
        frequencies: For `dct`: the fraction of the lowest frequencies along each side (r in the paper).
    """

    basis: Basis = "dct"
    step: float = 0.2
    frequencies: float = 1 / 8

    paper: ClassVar = Paper(
        "Guo, Gardner, You, Wilson and Weinberger",
        "Simple Black-box Adversarial Attacks",
        2019,
        "https://arxiv.org/abs/1905.07121",
    )
    presets: ClassVar = {
        "imagenet-pixel": {"basis": "pixel"},
        "imagenet-dct": {"basis": "dct", "frequencies": 1 / 8},
    }

    def __post_init__(self) -> None:
        check_choice("basis", self.basis, get_args(Basis))
        check_number("step", self.step)
        check_number("frequencies", self.frequencies, most=1)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        channels, height, width = context.shape
        down, across = (self._directions(side) for side in (height, width))
        directions = channels, len(down), len(across)
        image = context.image
        highest = (yield Ask(Images(image[None]))).loss[0]
        while True:
            for number in rng.permutation(math.prod(directions)):
                channel, row, column = np.unravel_index(number, directions)
                step = np.float32(self.step) * np.outer(down[row], across[column])
                for sign in (-1, 1):
                    candidate = image.copy()
                    candidate[channel] += sign * step
                    loss = (yield Ask(Images(context.project(candidate)[None]))).loss[0]
                    if loss > highest:
                        image, highest = candidate, loss
                        break

    def _directions(self, side: int) -> NDArray[np.float32]:
        """Return the basis along one side, one row per direction."""
        if self.basis == "pixel":
            return np.eye(side, dtype=np.float32)
        frequency = np.arange(max(1, round(self.frequencies * side)))[:, None]
        waves = np.cos(math.pi / side * (np.arange(side) + 0.5) * frequency)
        return np.asarray(waves / np.linalg.norm(waves, axis=1, keepdims=True), np.float32)

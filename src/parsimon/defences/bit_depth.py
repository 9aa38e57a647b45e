"""Fewer bits per pixel: Xu, Evans and Qi, *Feature Squeezing: Detecting Adversarial Examples in Deep Neural Networks*
(NDSS 2018).

Every pixel is rounded to the nearest of 2^bits values from 0 to 1, which removes small perturbations. The paper mainly
compares the predictions with and without such squeezers, to detect an attack. It also classifies the squeezed image
alone, and that is what this defence does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Paper
from parsimon.defences.base import InputDefence
from parsimon.errors import check_whole


@dataclass(frozen=True)
class BitDepth(InputDefence):
    """Rounds every pixel to a few bits.

    Attributes:
        bits: The number of bits, from 1 to 8.
    """

    bits: int = 5

    paper: ClassVar = Paper(
        "Xu, Evans and Qi",
        "Feature Squeezing: Detecting Adversarial Examples in Deep Neural Networks",
        2018,
        "https://arxiv.org/abs/1704.01155",
    )
    presets: ClassVar = {
        "mnist": {"bits": 1},
        "cifar10": {"bits": 5},
        "imagenet": {"bits": 5},
    }

    def __post_init__(self) -> None:
        check_whole("bits", self.bits, 1, 8)

    def transform(
        self,
        images: NDArray[np.float32],
        generators: Sequence[np.random.Generator],  # noqa: ARG002  (not random)
    ) -> NDArray[np.float32]:
        highest = np.float32(2**self.bits - 1)
        squeezed: NDArray[np.float32] = np.rint(images * highest) / highest
        return squeezed

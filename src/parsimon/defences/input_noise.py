"""Random noise defence (RND): Qin, Fan, Zha and Wu, *Random Noise Defense Against Query-Based Black-Box Attacks*
(NeurIPS 2021).

Every query gets fresh Gaussian noise, so that the attacker compares losses that are not exact. The paper writes the
noise without a bound; the authors' library, BlackboxBench, clips the noisy pixels to [0, 1], and so does this defence.
The paper also fine-tunes the network on noisy images (RND-GF), for which it uses more noise. That is training, not part
of the wrapper: use the larger `sigma` with such a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Paper
from parsimon.defences.base import InputDefence
from parsimon.errors import check_number


@dataclass(frozen=True)
class InputNoise(InputDefence):
    """Adds Gaussian noise to every image.

    Attributes:
        sigma: The standard deviation of the noise, for pixels in [0, 1].
    """

    sigma: float = 0.02

    random: ClassVar = True
    paper: ClassVar = Paper(
        "Qin, Fan, Zha and Wu",
        "Random Noise Defense Against Query-Based Black-Box Attacks",
        2021,
        "https://arxiv.org/abs/2104.11470",
    )
    presets: ClassVar = {
        "cifar10": {"sigma": 0.02},
        "imagenet": {"sigma": 0.02},
        "robust": {"sigma": 0.05},  # for networks trained adversarially or with noise
    }

    def __post_init__(self) -> None:
        check_number("sigma", self.sigma, most=1)

    def transform(self, images: NDArray[np.float32], generators: Sequence[np.random.Generator]) -> NDArray[np.float32]:
        noisy = np.empty(images.shape, np.float32)
        for target, generator in zip(noisy, generators, strict=True):
            generator.standard_normal(out=target, dtype=np.float32)
        noisy *= np.float32(self.sigma)
        noisy += images
        return np.clip(noisy, 0, 1, out=noisy)

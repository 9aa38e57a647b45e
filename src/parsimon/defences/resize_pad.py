"""Random resizing and padding: Xie, Wang, Zhang, Ren and Yuille, *Mitigating Adversarial Effects Through Randomization*
(ICLR 2018).

The paper enlarges a 299 x 299 image to a random side from 299 to 330. It then pads it with zeros at a random place to
331 x 331. Most networks take images of one size only. So this version does the same on a smaller scale. It shrinks the
image to a random side within the same range relative to the padded size, and pads it to its own size. It therefore
drops a few rows and columns, which the paper does not. Resizing takes the nearest pixel, as in the authors' code.
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
class ResizePad(InputDefence):
    """Shrinks every image at random and pads it with zeros at a random place.

    Attributes:
        smallest: The smallest side of the shrunk image, as a fraction of the image. The largest is one pixel less than
            the image.
    """

    smallest: float = 299 / 331

    random: ClassVar = True
    paper: ClassVar = Paper(
        "Xie, Wang, Zhang, Ren and Yuille",
        "Mitigating Adversarial Effects Through Randomization",
        2018,
        "https://arxiv.org/abs/1711.01991",
    )
    presets: ClassVar = {
        "imagenet": {"smallest": 299 / 331},
        "competition": {"smallest": 310 / 331},  # the authors' entry to the NIPS 2017 competition
    }

    def __post_init__(self) -> None:
        check_number("smallest", self.smallest, most=1)

    def transform(self, images: NDArray[np.float32], generators: Sequence[np.random.Generator]) -> NDArray[np.float32]:
        padded = np.zeros(images.shape, np.float32)
        height, width = images.shape[2:]
        lowest = max(1, min(round(self.smallest * height), height - 1))
        for image, target, generator in zip(images, padded, generators, strict=True):
            rows = int(generator.integers(lowest, max(lowest + 1, height)))
            columns = max(1, rows * width // height)
            top, left = generator.integers(height - rows + 1), generator.integers(width - columns + 1)
            shrunk = image[:, _nearest(rows, height)[:, None], _nearest(columns, width)]
            target[:, top : top + rows, left : left + columns] = shrunk
        return padded


def _nearest(length: int, original: int) -> NDArray[np.intp]:
    """Return which of the original rows or columns a resized image takes."""
    return np.arange(length) * original // length

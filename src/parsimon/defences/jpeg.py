"""JPEG compression: Guo, Rana, Cisse and van der Maaten, *Countering Adversarial Images using Input Transformations*
(ICLR 2018).

Every image is encoded as JPEG and decoded again, which removes small perturbations. Dziugaite, Ghahramani and Roy
(2016) and Das et al. (2017) studied the same defence before. Pixels are rounded to 8 bits first, and colours are stored
at half resolution, as Pillow does by default. The paper also trains networks on compressed images; this is the wrapper
alone.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.threat import from_levels
from parsimon.core.types import Paper
from parsimon.defences.base import InputDefence
from parsimon.errors import InputError, check_whole


@dataclass(frozen=True)
class Jpeg(InputDefence):
    """Compresses every image as JPEG.

    Attributes:
        quality: The quality of JPEG, from 1 to 100.
    """

    quality: int = 75

    paper: ClassVar = Paper(
        "Guo, Rana, Cisse and van der Maaten",
        "Countering Adversarial Images using Input Transformations",
        2018,
        "https://arxiv.org/abs/1711.00117",
    )
    presets: ClassVar = {"imagenet": {"quality": 75}}

    def __post_init__(self) -> None:
        check_whole("quality", self.quality, 1, 100)

    def transform(
        self,
        images: NDArray[np.float32],
        generators: Sequence[np.random.Generator],  # noqa: ARG002  (not random)
    ) -> NDArray[np.float32]:
        channels = images.shape[1]
        if channels not in (1, 3):
            raise InputError(f"JPEG takes images of 1 or 3 channels; these have {channels}: choose another defence")
        levels = np.rint(np.clip(images, 0, 1) * np.float32(255)).astype(np.uint8).transpose(0, 2, 3, 1)
        decoded = np.stack([self._compressed(image) for image in levels]) if len(levels) else levels
        return from_levels(decoded.transpose(0, 3, 1, 2).astype(np.float32))

    def _compressed(self, levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return one image (rows, columns, channels) after compression."""
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(levels if levels.shape[2] == 3 else levels[:, :, 0]).save(file, "JPEG", quality=self.quality)
        with Image.open(file) as image:
            return np.asarray(image).reshape(levels.shape)

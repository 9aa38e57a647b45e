"""Image formats of other libraries, converted from and to ours: channels first, pixels in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError


@dataclass(frozen=True)
class ImageFormat:
    """The pixel range and the layout of a framework's images.

    Attributes:
        low: The lowest value of a pixel.
        high: The highest.
        channels_last: Whether images are (rows, columns, channels).
    """

    low: float = 0.0
    high: float = 1.0
    channels_last: bool = False

    def __post_init__(self) -> None:
        if not self.high > self.low:
            raise InputError(f"the range of pixels must have a low end and a higher one; got {self.low}, {self.high}")

    @property
    def span(self) -> float:
        return self.high - self.low

    def to_framework(self, images: Any) -> Any:
        """Convert our images. The operations are the same in numpy and torch, so that both round alike."""
        if (self.low, self.high) != (0, 1):
            images = (images * self.span + self.low).clip(self.low, self.high)
        return np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if self.channels_last else images

    def from_framework(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert the framework's images to ours, after checking their shape and range."""
        if images.ndim != 4:
            order = "rows, columns, channels" if self.channels_last else "channels, rows, columns"
            raise InputError(f"images must have shape (number, {order}); got {images.shape}")
        lowest, highest = (float(images.min()), float(images.max())) if images.size else (self.low, self.low)
        if lowest < np.float32(self.low) or highest > np.float32(self.high):
            raise InputError(
                f"pixels must lie in the model's range, {self.low:g} to {self.high:g}; got {lowest:g} to {highest:g}"
            )
        if self.channels_last:
            images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        if (self.low, self.high) == (0, 1):
            return images
        return ((images - np.float32(self.low)) / np.float32(self.span)).clip(0, 1)

    def gradient_from_framework(self, gradient: NDArray[Any]) -> NDArray[Any]:
        """Convert a gradient with respect to the framework's images to one with respect to ours."""
        if self.channels_last:
            gradient = gradient.transpose(0, 3, 1, 2)
        return gradient * self.span

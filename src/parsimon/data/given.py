"""Images and labels as a user gives them: arrays of any framework, or sequences that read their images lazily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Image, ImageSource
from parsimon.errors import InputError, ParsimonError, first_line


def as_images(images: Any) -> ImageSource:
    """Arrays of any framework as numpy, and sequences that read lazily as they are."""
    if hasattr(images, "shape"):
        pixels = as_numpy(images, "images")
        if pixels.ndim != 4:
            hint = ": use images[None] for a single image" if pixels.ndim == 3 else ""
            raise InputError(f"images must have shape (number, channels, rows, columns); got {pixels.shape}{hint}")
        return pixels
    if hasattr(images, "__len__") and hasattr(images, "__getitem__") and not isinstance(images, Mapping | str):
        return _Images(images)
    raise InputError(f"images must be an array or a sequence of arrays; got {type(images).__name__}")


class _Images(Sequence[Image]):
    """A sequence of images, of which some may fail to be read: whatever it raises becomes a sentence."""

    def __init__(self, images: Sequence[Image]) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Image:  # type: ignore[override]  # nobody takes slices of them
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no image {index}: there are {len(self)}")
        try:
            return self._images[index]
        except ParsimonError:
            raise
        except Exception as error:
            raise InputError(f"image {index} cannot be read: {first_line(error)}") from error


def as_numpy(array: Any, what: str) -> NDArray[Any]:
    """A numpy or torch array as numpy, from whatever device."""
    try:
        return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    except (TypeError, ValueError) as error:  # of rows that differ in length, or of a type that numpy lacks
        raise InputError(f"{what} must be an array of numbers; numpy cannot read them: {first_line(error)}") from error

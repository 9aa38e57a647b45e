"""Convert and check images and labels that a user passes; no model is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.threat import Threat, to_eight_bit
from parsimon.core.types import Image, ImageSource
from parsimon.errors import InputError, ParsimonError, first_line

_LEVEL = 1 / 255  # of an 8-bit pixel: normalisation takes pixels further out of their range, rounding does not
_GRID_ROUNDING = 2**-23  # bounds the difference between two ways to compute k / 255 in float32


def as_images(images: Any) -> ImageSource:
    """Return arrays of any framework as numpy arrays, and lazy sequences as sequences."""
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
    """A sequence of images that reports any failure to read one as an InputError."""

    def __init__(self, images: Sequence[Image]) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Image:  # type: ignore[override]  # no caller takes slices
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no image {index} among {len(self)}")
        try:
            return self._images[index]
        except ParsimonError:
            raise
        except Exception as error:
            raise InputError(f"image {index} cannot be read: {first_line(error)}") from error


def as_numpy(array: Any, what: str) -> NDArray[Any]:
    """Return a numpy or torch array on any device as a numpy array."""
    try:
        return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    except (TypeError, ValueError) as error:  # rows of different lengths, or a type that numpy lacks
        raise InputError(f"{what} must be an array of numbers; numpy cannot read them: {first_line(error)}") from error


def check_image(image: Any, index: int, threat: Threat) -> Image:
    """Return the image as an array; raise if its type, shape or range is wrong."""
    try:
        image = np.asarray(image)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # the last from torch, for gradients
        raise InputError(
            f"images must be arrays (channels, rows, columns); got {type(image).__name__} at image {index}. "
            "Pass the images alone, without labels."
        ) from error
    if image.dtype != np.float32:
        hint = "images.astype(np.float32)" + (" / 255" if np.issubdtype(image.dtype, np.integer) else "")
        raise InputError(f"images must be float32 in [0, 1]; got {image.dtype} at image {index}: use {hint}")
    if image.ndim != 3 or image.size == 0:
        raise InputError(
            f"images must have shape (channels, rows, columns) without zeros; got {image.shape} at image {index}"
        )
    if image.shape[2] in (1, 3) and image.shape[0] > 4:
        raise InputError(
            f"channels must come before rows and columns; image {index} has shape {image.shape}, which looks like "
            "channels last: use images.transpose(0, 3, 1, 2)"
        )
    if not np.isfinite(image).all():
        raise InputError(f"pixels must be numbers in [0, 1]; image {index} has NaN or infinite pixels")
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > 1:
        span = f"{low:g} to {high:.8g}"  # the digits that show the float after 1
        raise InputError(f"pixels must lie in [0, 1]; image {index} spans {span}: {_range_hint(low, high)}")
    if threat.eight_bit and np.abs(image - to_eight_bit(image)).max() > _GRID_ROUNDING:
        raise InputError(
            f"8-bit mode needs pixels that are k / 255; image {index} has others: round it with "
            "np.rint(image * 255) / 255, or switch 8-bit mode off",
            argument="eight_bit",
        )
    return image  # type: ignore[no-any-return]


def _range_hint(low: float, high: float) -> str:
    """Return how to bring pixels into [0, 1]."""
    if max(-low, high - 1) < _LEVEL:
        return "clip them, as images.clip(0, 1) does"
    return "divide by 255" if low >= 0 and high <= 255 else "undo the normalisation and let the model apply it"


def check_count(count: int) -> None:
    """Raise if there are no images."""
    if count == 0:
        raise InputError("there are no images to attack")


def check_labels(labels: Any, count: int, what: str = "labels") -> NDArray[np.intp]:
    """Return the labels as an array; raise unless there is one whole number per image."""
    labels = np.asarray(labels)
    check_count(count)
    if labels.shape != (count,) or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(
            f"{what} must be one whole number per image, for {count} images; "
            f"got {labels.dtype} of shape {labels.shape}{_hint(labels, count)}"
        )
    return np.asarray(labels, np.intp)


def _hint(labels: NDArray[Any], count: int) -> str:
    if labels.shape == (count, 1):
        return ": use labels[:, 0]"
    if labels.ndim == 2 and len(labels) == count:
        return ": use argmax(axis=1) on one-hot rows"
    if labels.shape == (count,) and labels.dtype.kind == "f":
        return ": use astype(int)"
    return ""


def check_classes(classes: NDArray[np.intp], known: int, what: str, first_index: int = 0) -> None:
    """Raise if a label or target is not one of the model's `known` classes."""
    wrong = np.flatnonzero((classes < 0) | (classes >= known))
    if len(wrong):
        raise InputError(
            f"{what} must be 0..{known - 1} for this model; got {classes[wrong[0]]} at image {first_index + wrong[0]}"
        )

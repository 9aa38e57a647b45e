"""Checks of images and labels that need no model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.threat import Threat, to_eight_bit
from parsimon.core.types import Image
from parsimon.errors import InputError

_GRID_ROUNDING = 2**-23  # two ways to compute k / 255 in single precision differ by less


def check_image(image: Any, index: int, threat: Threat) -> Image:
    """One image: its type, its shape, its range."""
    try:
        image = np.asarray(image)
    except (TypeError, ValueError, RuntimeError) as error:  # the last of torch, for one that requires gradients
        raise InputError(
            f"images must be arrays (channels, rows, columns); got {type(image).__name__} at image {index}. "
            "Take the images alone, without labels beside them."
        ) from error
    if image.dtype != np.float32:
        what_to_do = "images.astype(np.float32)" + (" / 255" if np.issubdtype(image.dtype, np.integer) else "")
        raise InputError(f"images must be float32 in [0, 1]; got {image.dtype} at image {index}: use {what_to_do}")
    if image.ndim != 3 or image.size == 0:
        raise InputError(
            f"images must have shape (channels, rows, columns), none of them 0; got {image.shape} at image {index}"
        )
    if image.shape[2] in (1, 3) and image.shape[0] > 4:
        raise InputError(
            f"channels must come before rows and columns; image {index} has shape {image.shape}, which looks like "
            "channels last: use images.transpose(0, 3, 1, 2)"
        )
    if not np.isfinite(image).all():
        raise InputError(f"pixels must be numbers in [0, 1]; image {index} has NaN or infinite ones")
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > 1:
        hint = "divide by 255" if low >= 0 and 1 < high <= 255 else "undo the normalisation, and let the model do it"
        raise InputError(f"pixels must lie in [0, 1]; image {index} spans {low:g} to {high:g}: {hint}")
    if threat.eight_bit and np.abs(image - to_eight_bit(image)).max() > _GRID_ROUNDING:
        raise InputError(
            f"8-bit mode needs images whose pixels are k / 255; image {index} has others: round it with "
            "np.rint(image * 255) / 255, or leave 8-bit mode"
        )
    return image  # type: ignore[no-any-return]


def check_count(count: int) -> None:
    """Whether there are images at all."""
    if count == 0:
        raise InputError("there are no images to attack")


def check_labels(labels: Any, count: int, what: str = "labels") -> NDArray[np.intp]:
    """One class number for each image."""
    labels = np.asarray(labels)
    check_count(count)
    if labels.shape != (count,) or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(
            f"{what} must be one whole number for each of the {count} images; "
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
    """Labels or targets against the number of classes that the model knows."""
    wrong = np.flatnonzero((classes < 0) | (classes >= known))
    if len(wrong):
        raise InputError(
            f"{what} must be 0..{known - 1} for this model; got {classes[wrong[0]]} at image {first_index + wrong[0]}"
        )

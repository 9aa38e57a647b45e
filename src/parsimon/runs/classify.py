"""Read checked images, and query a model for clean ones: a response outside the engine, counted by no attack."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import pad_batch
from parsimon.core.engine import scores_of
from parsimon.core.model import Keys, Model
from parsimon.core.threat import Threat, predicted_classes
from parsimon.core.types import ImageSource
from parsimon.data.validate import check_image
from parsimon.errors import InputError, ModelError

_BATCH_COPIES = 4  # the least number of copies of a batch in memory at once


def read(
    images: ImageSource, start: int, batch_size: int, threat: Threat, shape: tuple[int, ...] | None = None
) -> NDArray[np.float32]:
    """Return a batch of checked images, which must have the shape of the images before them."""
    batch = []
    for index in range(start, min(start + batch_size, len(images))):
        batch.append(check_image(images[index], index, threat))
        shape = shape or batch[0].shape
        if batch[-1].shape != shape:
            raise InputError(
                f"all images must have one shape; image 0 has {shape}, image {index} has {batch[-1].shape}"
            )
    return np.stack(batch)


def check_shape(model: Model, shape: tuple[int, ...]) -> None:
    """Refuse images whose shape differs from the one that the model declares."""
    declared = model.image_shape
    if declared and any(side is not None and side != given for side, given in zip(declared, shape, strict=True)):
        wanted = ", ".join("any" if side is None else str(side) for side in declared)
        what_to_do = "resize them, channels first"
        if declared[2] == shape[0] and declared[0] != shape[0]:
            what_to_do = (
                "its channels come last, so wrap it in a Python function that transposes images to (0, 2, 3, 1)"
            )
        raise InputError(f"this model takes images of shape ({wanted}); got {shape}: {what_to_do}")


def check_batch(images: int, values: int) -> None:
    """Refuse a batch that cannot fit into memory."""
    if not hasattr(os, "sysconf"):  # Windows
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    size = np.dtype(np.float32).itemsize * images * values
    if _BATCH_COPIES * size > memory:
        sizes = f"{size / 2**30:,.1f} GiB, and this machine has {memory / 2**30:,.1f} GiB of memory"
        sentence = f"a batch of {images:,} images takes {sizes}: choose a smaller batch_size"
        raise InputError(sentence, argument="batch_size")


def classify(
    model: Model,
    pixels: NDArray[np.float32],
    batch_size: int,
    classes: int | None = None,
    keys: Keys | None = None,
) -> NDArray[Any]:
    """Return the scores of at most one batch of images, padded if the model needs a fixed batch.

    `classes` is the number of scores per image of earlier calls. A random model draws from the keys.
    """
    count = len(pixels)
    if model.fixed_batch:
        check_batch(batch_size, pixels[0].size)
    images = model.namespace.asarray(pixels.copy(), device=model.device)  # the model may write to its input
    if model.fixed_batch and count < batch_size:
        images = pad_batch(images, batch_size, model.namespace)
        keys = None if keys is None else np.resize(keys, (batch_size, keys.shape[1]))
    scores = scores_of(model, images, classes, keys)[:count]
    if not np.isfinite(scores).all():
        raise ModelError(
            "the model returned NaN or infinite scores for a clean image; a classifier must return numbers"
        )
    return scores


def draw_classes(
    model: Model, pixels: NDArray[np.float32], draws: int, keys: Callable[[int], Keys], batch_size: int
) -> NDArray[np.intp]:
    """Return the class of each draw of some images, at most a batch, in a row per image.

    `keys` returns one key per image for the number of a draw.
    """
    found = [predicted_classes(classify(model, pixels, batch_size, keys=keys(number))) for number in range(draws)]
    return np.stack(found, axis=1)

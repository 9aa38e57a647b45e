"""Shared by label-only attacks: points on rays, a random start, and a bisection from there to the boundary.

A label-only attack sees whether a point is adversarial and nothing else: its loss is finite there and -inf elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Ask, Image, Images, Reply

_STARTS = 10_000  # random images before giving up, as in the authors' code of SignFlip and HopSkipJump


def are_adversarial(points: NDArray[np.float32]) -> Generator[Ask, Reply, NDArray[np.bool_]]:
    """Ask for several images and return which of them are adversarial."""
    reply = yield Ask(Images(points))
    return np.isfinite(reply.loss)


def is_adversarial(point: Image) -> Generator[Ask, Reply, bool]:
    """Ask for one image and return whether it is adversarial."""
    (adversarial,) = yield from are_adversarial(point[None])
    return bool(adversarial)


def on_ray(image: Image, signs: NDArray[np.float32], radius: float | np.float32) -> Image:
    """Return the image moved by `radius` in each pixel, in the direction of its sign, and clipped to [0, 1]."""
    return in_range(image + np.float32(radius) * signs.reshape(image.shape))


def in_range(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Clip pixels to [0, 1]."""
    clipped: NDArray[np.float32] = np.clip(pixels, 0, 1).astype(np.float32, copy=False)
    return clipped


def distance(image: Image, point: Image) -> float:
    """Return the L-infinity distance of two images."""
    return float(np.abs(point - image).max())


def find_adversarial_noise(
    shape: tuple[int, int, int], rng: np.random.Generator
) -> Generator[Ask, Reply, Image | None]:
    """Ask for images of uniform noise until one is adversarial. Return it, or None if none of 10,000 is."""
    for _ in range(_STARTS):
        noise = rng.random(shape, np.float32)
        if (yield from is_adversarial(noise)):
            return noise
    return None


def approach(image: Image, point: Image, tolerance: float) -> Generator[Ask, Reply, Image]:
    """Project an adversarial point into ever smaller balls around the image, by bisection of their radius.

    Return the adversarial projection with the smallest radius, once the radius is known up to `tolerance`.
    """
    low, high = 0.0, distance(image, point)
    closest = point
    while high - low > tolerance:
        middle = (low + high) / 2
        radius = np.float32(middle)
        candidate = in_range(np.maximum(image - radius, np.minimum(point, image + radius)))
        if (yield from is_adversarial(candidate)):
            closest, high = candidate, middle
        else:
            low = middle
    return closest

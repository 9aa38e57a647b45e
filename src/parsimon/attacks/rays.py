"""RayS: Chen and Gu, *RayS: A Ray Searching Method for Hard-label Adversarial Attack* (KDD 2020).

Search directions of signs for one in which the decision boundary is close:

1. Start with all signs +1. Cut the flattened image, channels first, into runs: the whole, then halves, quarters and so
   on. Runs of one level have the same length, rounded up; the last may be shorter.
2. Flip the signs of the next run. Ask for the point in that direction at the smallest length so far.
3. If it is not adversarial, keep the old signs: one query was enough.
4. If it is, find the boundary in that direction by bisection between 0 and that length, to 0.001. Keep
   the new signs if it is closer.
5. As long as no length is known, ask for radii 1, 2, ..., 10 instead, and bisect below the first that is adversarial.

Lengths are L2 norms: a radius of r is a length of r times the square root of the number of pixels. The order of the
queries and the arithmetic in single precision are those of the authors' code for single images (RayS_Single.py). That
code treats target class 0 as untargeted, and ends only after a bisection; this one does neither.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.attacks.boundary import is_adversarial, on_ray
from parsimon.core.types import Ask, Attack, Image, ImageContext, Paper, Reply, Search

# Both as in the authors' code.
_TOLERANCE = np.float32(1e-3)  # of a length
_RADII = range(1, 11)


@dataclass(frozen=True)
class RayS(Attack):
    """RayS, for models that return a label alone. It has no settings and is deterministic."""

    needs: ClassVar = "label"
    paper: ClassVar = Paper(
        "Chen and Gu",
        "RayS: A Ray Searching Method for Hard-label Adversarial Attack",
        2020,
        "https://arxiv.org/abs/2006.12792",
    )

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        signs = np.ones(context.image.size, np.float32)
        shortest: np.float32 | None = None
        for run in _runs(signs.size):
            flipped = signs.copy()
            flipped[run] *= -1
            length = yield from _boundary(context.image, flipped, shortest)
            if length is not None and (shortest is None or length < shortest):
                signs, shortest = flipped, length


def _runs(size: int) -> Iterator[slice]:
    """Yield the whole, its halves, its quarters and so on; single pixels come again and again."""
    for level in count():
        length = -(-size // 2**level)
        yield from (slice(start, start + length) for start in range(0, size, length))


def _boundary(
    image: Image, signs: NDArray[np.float32], longest: np.float32 | None
) -> Generator[Ask, Reply, np.float32 | None]:
    """Return the length of a direction up to the boundary, or None if that is above `longest` (steps 2 to 5)."""
    norm: np.float32 = np.sqrt(np.float32(signs.size))
    component = np.float32(1) / norm  # of the unit vector in that direction
    if longest is None:
        radius = yield from _first_radius(image, signs)
        if radius is None:
            return None
        high = np.float32(radius) * norm
    elif (yield from is_adversarial(on_ray(image, signs, longest * component))):
        high = longest
    else:
        return None
    low = np.float32(0)
    while high - low > _TOLERANCE:
        middle = (low + high) / np.float32(2)
        if (yield from is_adversarial(on_ray(image, signs, middle * component))):
            high = middle
        else:
            low = middle
    return high


def _first_radius(image: Image, signs: NDArray[np.float32]) -> Generator[Ask, Reply, int | None]:
    """Return the first of the radii at which the point is adversarial.

    For images in [0, 1] all of them give the same point, and the authors' code asks for each of them.
    """
    for radius in _RADII:
        if (yield from is_adversarial(on_ray(image, signs, radius))):
            return radius
    return None

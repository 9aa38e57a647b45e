"""ADBA: Wang, Zuo, Huang and Chen, *ADBA: Approximation Decision Boundary Approach for Black-Box Adversarial Attacks*
(AAAI 2025).

Search directions of signs as RayS does, but do not find the boundary of each. Instead compare two directions at a
shared radius, the approximate decision boundary (Algorithms 1 and 2):

1. Start with all signs +1 and the radius 1. Cut the flattened image, channels first, into two halves.
2. Flip one half for the first direction and the other half for the second. Ask for both at the present radius. If one
   is adversarial, keep that direction; if none is, keep the old one.
3. If both are, ask for both at a radius below. If only one is adversarial there, keep that direction and that radius.
   If both are, continue below that radius; if none is, above it.
4. Stop after 8 such radii, or from the fifth on once they are known to 0.0002. Keep the first direction and the
   smallest radius at which both were adversarial.
5. Continue with the halves of each half, level by level. After single pixels, start again with the whole image.

The next radius is the middle of the interval, or (ADBA-md) the median of a distribution. The authors fitted it to
decision boundaries of networks. With r the present radius, the boundary g of a new direction has the density
a / (1 - g / r + d)^b + c. Constants and limits are those of the authors' code. That code finds the median to 1/600 of
r, and asks at r again where the interval is shorter; here the median is exact. After single pixels, that code continues
with empty halves.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from parsimon.attacks.boundary import are_adversarial, on_ray
from parsimon.core.types import Ask, Attack, Image, ImageContext, Paper, Reply, Search
from parsimon.errors import check_choice

NextRadius = Literal["median", "middle"]
Directions = tuple[NDArray[np.float32], NDArray[np.float32]]

_RADII = 8  # largest number of further radii in one comparison
_CLOSE, _CLOSE_FROM = 0.0002, 5  # length of an interval that ends a comparison, and radii before that
_A, _B, _C, _D = 0.03133292769944518, 3.0659694403842903, 0.16755646970211466, 0.13403850261898806
_BISECTIONS = 50  # of the median


@dataclass(frozen=True)
class ADBA(Attack):
    """ADBA, for models that return a label alone. It is deterministic.

    Attributes:
        next_radius: How a comparison continues: the `median` of the authors' distribution (ADBA-md) or the `middle`
            of the interval (ADBA).
    """

    next_radius: NextRadius = "median"

    needs: ClassVar = "label"
    paper: ClassVar = Paper(
        "Wang, Zuo, Huang and Chen",
        "ADBA: Approximation Decision Boundary Approach for Black-Box Adversarial Attacks",
        2025,
        "https://arxiv.org/abs/2406.04998",
    )

    def __post_init__(self) -> None:
        check_choice("next_radius", self.next_radius, get_args(NextRadius))

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        signs, radius = np.ones(context.image.size, np.float32), 1.0
        for halves in _pairs(signs.size):
            directions = _flipped(signs, halves[0]), _flipped(signs, halves[1])
            better, radius = yield from self._compare(context.image, directions, radius)
            if better is not None:
                signs = better

    def _compare(
        self, image: Image, directions: Directions, present: float
    ) -> Generator[Ask, Reply, tuple[NDArray[np.float32] | None, float]]:
        """Return the direction with the closer boundary, if one is adversarial at all, and its radius (Algorithm 2)."""
        first, second = yield from _ask(image, directions, present)
        if not (first and second):
            return _one_of(directions, first, second), present
        low, high = 0.0, present
        for number in range(1, _RADII + 1):
            middle = self._next_radius(low, high, present)
            first, second = yield from _ask(image, directions, middle)
            if first != second:
                return _one_of(directions, first, second), middle
            low, high = (low, middle) if first else (middle, high)
            if number >= _CLOSE_FROM and high - low <= _CLOSE:
                break
        return directions[0], high

    def _next_radius(self, low: float, high: float, present: float) -> float:
        if self.next_radius == "middle":
            return (low + high) / 2
        return present * (1 - _median(1 - high / present, 1 - low / present))


def _flipped(signs: NDArray[np.float32], block: range) -> NDArray[np.float32]:
    flipped = signs.copy()
    flipped[block.start : block.stop] *= -1
    return flipped


def _ask(image: Image, directions: Directions, radius: float) -> Generator[Ask, Reply, tuple[bool, bool]]:
    """Return which of the directions are adversarial at a radius."""
    points = np.stack([on_ray(image, signs, radius) for signs in directions])
    first, second = yield from are_adversarial(points)
    return bool(first), bool(second)


def _one_of(directions: Directions, first: bool, second: bool) -> NDArray[np.float32] | None:
    """Return the direction that is adversarial, if one is."""
    if first:
        return directions[0]
    return directions[1] if second else None


def _pairs(size: int) -> Iterator[tuple[range, range]]:
    """Yield the two halves of each block, level by level; the second half of a single pixel is empty."""
    blocks: list[range] = []
    while True:
        if all(len(block) <= 1 for block in blocks):
            blocks = [range(size)]
        pairs = [_halves(block) for block in blocks]
        yield from pairs
        blocks = [half for pair in pairs for half in pair if half]


def _halves(block: range) -> tuple[range, range]:
    middle = (block.start + block.stop + 1) // 2
    return range(block.start, middle), range(middle, block.stop)


def _median(low: float, high: float) -> float:
    """Return the median of the authors' distribution between two values of 1 - g / r."""

    def integral(at: float) -> float:
        return float(_C * at - _A / (_B - 1) * (at + _D) ** (1 - _B))

    half = (integral(low) + integral(high)) / 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if integral(middle) < half else (low, middle)
    return (low + high) / 2

"""SignHunter: Al-Dujaili and O'Reilly, *Sign Bits Are All You Need for Black-Box Attacks* (ICLR 2020).

Find the signs of the gradient by divide and conquer (Algorithm 1). Flip all signs, then each half, each quarter, down
to single pixels. Keep a flip that does not lower the loss. After the single pixels, start again from the best image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parsimon.core.types import Ask, Attack, ImageContext, Images, Paper, Search


@dataclass(frozen=True)
class SignHunter(Attack):
    """SignHunter with steps of eps. It has no settings and is deterministic."""

    paper: ClassVar = Paper(
        "Al-Dujaili and O'Reilly",
        "Sign Bits Are All You Need for Black-Box Attacks",
        2020,
        "https://openreview.net/forum?id=SygW0TEFwH",
    )

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        origin, eps = context.image, np.float32(context.threat.eps)
        signs = np.ones(origin.size, np.float32)
        highest = -math.inf
        while True:
            best = context.project(origin + eps * signs.reshape(context.shape))
            if highest == -math.inf:
                highest = (yield Ask(Images(best[None]))).loss[0]
            for part in _halvings(origin.size):
                signs[part] *= -1
                candidate = context.project(origin + eps * signs.reshape(context.shape))
                loss = (yield Ask(Images(candidate[None]))).loss[0]
                if loss >= highest:
                    best, highest = candidate, loss
                else:
                    signs[part] *= -1
            # A flip from there leads back towards the clean image.
            origin = best


def _halvings(size: int) -> list[slice]:
    """Return the whole, its halves, its quarters, down to single elements."""
    parts = []
    for level in range(math.ceil(math.log2(size)) + 1):
        length = math.ceil(size / 2**level)
        parts += [slice(start, start + length) for start in range(0, size, length)]
    return parts

"""What Thrift asks, for its tests: the blocks of each level, and what a question flips of the best corner so far."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from driving import (
    Exchange,
    Pixels,
    Shape,
    asked_images,
)
from parsimon import Thrift

EPS = 0.1
FLAT = Thrift(contrast=False, combine=False)  # which does not look at the picture
EVERYTHING = 100_000  # more than any search here has to ask


def signs(images: Pixels, image: Pixels) -> NDArray[np.bool_]:
    """Where each of the images lies above the image."""
    return images > image


def levels(shape: Shape) -> list[set[frozenset[int]]]:
    """The blocks of each level, as sets of flat pixel numbers: cut at the floors of multiples of a side."""
    channels, height, width = shape
    numbers = np.arange(math.prod(shape)).reshape(shape)
    found, across = [], 1
    while True:
        cuts = [[side * part // across for part in range(across + 1)] for side in (height, width)]
        found.append(
            {
                frozenset(numbers[channel, top:bottom, left:right].reshape(-1).tolist())
                for channel in range(channels)
                for top, bottom in itertools.pairwise(cuts[0])
                for left, right in itertools.pairwise(cuts[1])
                if top < bottom and left < right
            }
        )
        if across >= max(height, width):
            return found
        across *= 2


def flips_of(exchanges: Sequence[Exchange], image: Pixels) -> list[frozenset[int]]:
    """The flat numbers of the pixels that each question after the first flips of the highest corner before it."""
    above = signs(asked_images(exchanges), image).reshape(len(exchanges), -1)
    losses = [float(exchange.losses[0]) for exchange in exchanges]
    kept, highest = above[0], losses[0]
    flips = []
    for corner, loss in zip(above[1:], losses[1:], strict=True):
        flips.append(frozenset(np.flatnonzero(corner != kept).tolist()))
        if loss > highest:
            kept, highest = corner, loss
    return flips


def check_first_pass(flips: list[frozenset[int]], by_level: list[set[frozenset[int]]]) -> None:
    """It asks for every block once, level by level, but for those that a level before has left uncut."""
    for number, level in enumerate(by_level):
        new = level - set().union(*by_level[:number])
        assert set(flips[: len(new)]) == new
        flips = flips[len(new) :]

"""Which images a run attacks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError


def choose(correct: NDArray[np.bool_], count: int | None, seed: int | None) -> NDArray[np.intp]:
    """The indices of `count` correctly classified images, in ascending order; all of them, if there are fewer.

    Without a seed they are the first. With one they are a random sample, drawn without replacement: all images are
    shuffled, the misclassified ones too, and the first correct ones taken. So a larger sample contains every smaller
    one of its seed, and two models that classify an image correctly tend to be attacked on it both.
    """
    if count is not None and count < 1:
        raise InputError(f"at least 1 image must be attacked, or None for all of them; got {count}")
    if seed is None:
        return np.flatnonzero(correct)[:count]
    if seed < 0:
        raise InputError(f"the seed of a sample must be 0 or more, or None for the first images; got {seed}")
    order = np.random.default_rng(seed).permutation(len(correct))
    return np.sort(order[correct[order]][:count])

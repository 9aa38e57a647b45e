"""Which images a run attacks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def choose(correct: NDArray[np.bool_], count: int | None, seed: int | None) -> NDArray[np.intp]:
    """The indices of `count` correctly classified images, in ascending order; all of them, if there are fewer.

    Without a seed they are the first. With one they are a random sample, drawn without replacement: all images are
    shuffled, the misclassified ones too, and the first correct ones taken. So a larger sample contains every smaller
    one of its seed, and two models that classify an image correctly tend to be attacked on it both.
    """
    if seed is None:
        return np.flatnonzero(correct)[:count]
    order = np.random.default_rng(seed).permutation(len(correct))
    return np.sort(order[correct[order]][:count])

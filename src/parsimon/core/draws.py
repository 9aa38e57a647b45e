"""The keys of draws: what a draw of a random model depends on, and nothing else.

A key is a row of seed, image, purpose and number, so that no two draws of a run have the same.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike

from parsimon.core.model import Keys


class Purpose(IntEnum):
    """The purpose of a draw. Stored runs rely on the numbers."""

    QUERY = 0  # of a search
    FRESH = 1  # of the point that an attack returns
    CLEAN = 2  # of the clean image
    AUDIT = 3  # of a stored point


def draw_keys(seed: int, images: ArrayLike, purposes: ArrayLike, numbers: ArrayLike) -> Keys:
    """Return one key per draw. `numbers` count the draws of an image for a purpose from 0."""
    columns = np.broadcast_arrays(seed, images, purposes, numbers)
    return np.stack(columns, axis=-1).astype(np.int64)

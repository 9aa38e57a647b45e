"""Blacklight: Li, Shan, Wenger, Zhang, Zheng and Zhao, *Blacklight: Scalable Defense for Neural Networks against
Query-Based Black-Box Attacks* (USENIX Security 2022).

A query attack sends many similar images, and ordinary users do not. A secret salt is added to the pixels, which are
then quantised. Every window of consecutive values is hashed, and the highest hashes are the fingerprint of the image.
A query is flagged if its fingerprint shares more than `threshold` hashes with that of one earlier query, flagged or
not. The values of a window follow the order row, column, channel, as in the authors' code.

Differences from the paper: the authors' code hashes with SHA-256. This version uses a keyed 64-bit polynomial, mixed
so that its highest values are spread evenly. All windows of an image are then hashed at once. A one-way hash
would only matter against an attacker who sees the fingerprints. Only queries of the same attacker are compared; the
paper compares those of all users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import History
from parsimon.core.types import Paper
from parsimon.defences.base import StatefulDefence
from parsimon.errors import InputError, check_whole

_LEVELS = 255.0
_CHUNK = 2**20  # values that are hashed at once
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Blacklight(StatefulDefence):
    """Flags queries that are similar to an earlier query of the same attacker.

    Attributes:
        window: The number of consecutive values that are hashed together: 20 for small images and 50 for large ones.
        keep: The number of hashes in a fingerprint.
        threshold: A query that shares more hashes than this with one earlier query is flagged.
        step: The step of the quantisation, for pixels from 0 to 255.
        stride: The distance between the starts of two windows.
        salt: The seed of the secret salt and of the hash.
    """

    window: int = 20
    keep: int = 50
    threshold: int = 25
    step: int = 50
    stride: int = 1
    salt: int = 0

    paper: ClassVar = Paper(
        "Li, Shan, Wenger, Zhang, Zheng and Zhao",
        "Blacklight: Scalable Defense for Neural Networks against Query-Based Black-Box Attacks",
        2022,
        "https://arxiv.org/abs/2006.14042",
    )
    presets: ClassVar = {
        "mnist": {"window": 50, "keep": 50, "threshold": 25, "step": 50},
        "cifar10": {"window": 20, "keep": 50, "threshold": 25, "step": 50},
        "imagenet": {"window": 50, "keep": 50, "threshold": 25, "step": 50},
    }

    def __post_init__(self) -> None:
        check_whole("window", self.window, 1, 2**20)
        check_whole("keep", self.keep, 1, 2**20)
        check_whole("threshold", self.threshold, 0, 2**20)
        check_whole("step", self.step, 1, 255)
        check_whole("stride", self.stride, 1, 2**20)
        check_whole("salt", self.salt, 0)
        if self.threshold >= self.keep:
            raise InputError(
                f"threshold must be below keep, or nothing is flagged; got {self.threshold} and {self.keep}",
                argument="threshold",
            )

    def history(self) -> History:
        return _Fingerprints(self)

    def fingerprints(self, images: NDArray[np.float32]) -> Iterator[Hashes]:
        """Yield the fingerprint of each image: different hashes in ascending order."""
        size = max(1, _CHUNK // max(1, images[0].size)) if len(images) else 1
        for start in range(0, len(images), size):
            for hashes in self._hashes(images[start : start + size]):
                yield _highest(hashes, self.keep)

    def quantised(self, images: NDArray[np.float32]) -> NDArray[np.uint64]:
        """Return the salted levels of the images as rows, in the order row, column, channel."""
        salt, _ = _secrets(self.salt, images.shape[1:])
        salted = np.multiply(images, _LEVELS, dtype=np.float64) + salt
        salted -= _LEVELS * np.floor(salted / _LEVELS)
        levels = np.rint(salted / self.step).astype(np.uint64)
        return np.ascontiguousarray(levels.transpose(0, 2, 3, 1)).reshape(len(images), -1)

    def _hashes(self, images: NDArray[np.float32]) -> Hashes:
        """Return the hashes of all windows, per image.

        The polynomial of a window is a difference of prefix sums, divided by the power of the base at its start.
        """
        levels = self.quantised(images)
        count = levels.shape[1]
        window = min(self.window, count)
        _, base = _secrets(self.salt, images.shape[1:])
        powers, inverse = _powers(base, count), _powers(pow(base, -1, 2**64), count)
        sums = np.zeros((len(levels), count + 1), np.uint64)
        np.cumsum(levels * powers, axis=1, out=sums[:, 1:])
        starts = slice(None, count - window + 1, self.stride)
        return _mixed((sums[:, window:] - sums[:, : count - window + 1])[:, starts] * inverse[starts])


class _Fingerprints(History):
    """The fingerprints of the queries of one attacker, as an inverted index from hashes to queries.

    Most queries of an attack resemble one earlier query. So its fingerprint, the suspect, is compared first, and the
    index is searched only for the others.
    """

    def __init__(self, defence: Blacklight) -> None:
        self._defence = defence
        self._queries_with: dict[int, list[int]] = {}
        self._count = 0
        self._suspect: frozenset[int] = frozenset()

    def observe(self, images: NDArray[np.float32]) -> NDArray[np.bool_]:
        fingerprints = self._defence.fingerprints(images)
        return np.fromiter((self._flag(frozenset(each.tolist())) for each in fingerprints), np.bool_, len(images))

    def _flag(self, fingerprint: frozenset[int]) -> bool:
        """Return whether a query is flagged, and remember it."""
        flagged = len(fingerprint & self._suspect) > self._defence.threshold
        if not flagged and self._most_shared(fingerprint) > self._defence.threshold:
            flagged, self._suspect = True, fingerprint
        for each in fingerprint:
            self._queries_with.setdefault(each, []).append(self._count)
        self._count += 1
        return flagged

    def _most_shared(self, fingerprint: frozenset[int]) -> int:
        """Return the highest number of hashes shared with one earlier query."""
        shared = Counter(chain.from_iterable(self._queries_with.get(each, ()) for each in fingerprint))
        return max(shared.values(), default=0)


def _highest(hashes: Hashes, keep: int) -> Hashes:
    """Return the highest different hashes, in ascending order."""
    likely = 2 * keep  # enough, unless many windows are equal
    if len(hashes) > likely:
        highest = np.unique(np.partition(hashes, -likely)[-likely:])
        if len(highest) >= keep:
            return highest[-keep:]
    return np.unique(hashes)[-keep:]


@lru_cache(maxsize=8)
def _secrets(seed: int, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], int]:
    """Return the salt for images of a shape, and the odd base of the hash."""
    rng = np.random.default_rng(seed)
    base = int(rng.integers(2**63)) * 2 + 1
    return rng.random(shape) * _LEVELS, base


@lru_cache(maxsize=16)
def _powers(base: int, count: int) -> Hashes:
    """Return the powers of the base modulo 2^64."""
    powers = np.full(count, base, np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _mixed(hashes: Hashes) -> Hashes:
    """Return the finaliser of SplitMix64, a one-to-one map that spreads all bits."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))

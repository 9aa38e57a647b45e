"""Define `Data`, the common form of all data: images, labels and a fingerprint of both."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Image, ImageSource
from parsimon.data.validate import check_labels
from parsimon.errors import InputError


@dataclass(frozen=True, eq=False)
class Data:
    """Images with their labels.

    Attributes:
        images: An array or a lazy sequence of images, float32 (channels, rows, columns) in [0, 1].
        labels: The class of each image.
        classes: The names of the classes, or None if they are unknown.
        name: The text that was given to `open_data`.
        fingerprint: A hash that changes with the data, but not with their location. It covers every byte of arrays and
            of CIFAR-10. For picture files it covers names, sizes, labels and preprocessing, so no file is read.
    """

    images: ImageSource
    labels: NDArray[np.int64]
    classes: tuple[str, ...] | None
    name: str
    fingerprint: str

    def __post_init__(self) -> None:
        try:
            labels = check_labels(self.labels, len(self.images))
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from error
        highest = np.iinfo(np.int64).max if self.classes is None else len(self.classes) - 1
        wrong = np.flatnonzero((labels < 0) | (labels > highest))
        if len(wrong):
            wanted = "0 or more" if self.classes is None else f"0..{highest}, one per class"
            raise InputError(
                f"{self.name}: labels must be {wanted}; got {labels[wrong[0]]} at image {wrong[0]}. "
                "Data published without labels (-1) cannot be used."
            )
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def take(self, indices: NDArray[np.intp]) -> Data:
        """Return the images of the given indices, read lazily."""
        numbers = indices.tolist()
        images = Taken(self.images, numbers)
        labels, seal = self.labels[indices], fingerprint([self.fingerprint, numbers])
        return Data(images, labels, self.classes, self.name, seal)


@dataclass(frozen=True, eq=False)
class Taken(Sequence[Image]):
    """Some images of another sequence, in a given order."""

    images: ImageSource
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: int) -> Image: ...
    @overload
    def __getitem__(self, index: slice) -> Taken: ...
    def __getitem__(self, index: int | slice) -> Image | Taken:
        if isinstance(index, slice):
            return Taken(self.images, self.indices[index])
        return np.asarray(self.images[self.indices[index]])


@dataclass(frozen=True, eq=False)
class Lazy(Sequence[Image]):
    """A sequence that reads each image on access and keeps none. Slicing reads nothing.

    Attributes:
        indices: The indices of these images in the source.
        read: A function from such an index to the image. It must be picklable, for worker processes.
    """

    indices: range
    read: Callable[[int], Image]

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: int) -> Image: ...
    @overload
    def __getitem__(self, index: slice) -> Lazy: ...
    def __getitem__(self, index: int | slice) -> Image | Lazy:
        if isinstance(index, slice):
            return Lazy(self.indices[index], self.read)
        return self.read(self.indices[index])


@dataclass(frozen=True, eq=False)
class Scaled:
    """Convert images from bytes to [0, 1] on access; bytes take a quarter of the memory."""

    pixels: NDArray[np.uint8]

    def __call__(self, index: int) -> Image:
        image: Image = self.pixels[index].astype(np.float32) / np.float32(255)
        return image


def fingerprint(parts: Iterable[Any]) -> str:
    """Return a hash of a sequence of texts, numbers, bytes and arrays."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str} {part.shape} ".encode())
            for start in range(0, len(part), 256):  # a memory-mapped array may exceed the memory
                digest.update(np.ascontiguousarray(part[start : start + 256]).data)
        else:
            content = part if isinstance(part, bytes) else os.fsencode(str(part))  # a file's name may be any bytes
            digest.update(f"{len(content)} ".encode())  # distinguishes "ab", "c" from "a", "bc"
            digest.update(content)
    return digest.hexdigest()


def choose(correct: NDArray[np.bool_], count: int | None, seed: int | None) -> NDArray[np.intp]:
    """Return the indices of at most `count` correctly classified images, in ascending order.

    Without a seed, take the first ones. With a seed, shuffle all images, including misclassified ones, and take the
    first correct ones. A larger sample therefore contains every smaller one with the same seed, and the samples of two
    models overlap as much as possible.
    """
    order = sample_order(len(correct), seed)
    return np.sort(order[correct[order]][:count])


def sample_order(count: int, seed: int | None) -> NDArray[np.intp]:
    """Return the order in which images are considered: shuffled with the seed, or as they are."""
    return np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)

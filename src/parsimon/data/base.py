"""What every form of data comes down to: images, labels, and a fingerprint of both."""

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
        images: An array, or a sequence that reads an image when it is asked for: float32 (channels, rows, columns)
            in [0, 1].
        labels: The class of each image.
        classes: The names of the classes, where they are known.
        name: What `open_data` was given.
        fingerprint: Changes when the data does, and not with the place where they are kept. Of arrays and of CIFAR-10
            it is a hash of every byte; of pictures in a folder, of their names, sizes in bytes and labels and of how
            they are preprocessed, so that it need not read them.
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
            wanted = "0 or more" if self.classes is None else f"0..{highest}, one for each class"
            raise InputError(
                f"{self.name}: labels must be {wanted}; got {labels[wrong[0]]} at image {wrong[0]}. "
                "Data that were published without labels (-1) cannot be used."
            )
        object.__setattr__(self, "labels", labels.astype(np.int64))


@dataclass(frozen=True, eq=False)
class Lazy(Sequence[Image]):
    """Images that are read when they are asked for, and not kept. A slice reads nothing either.

    Attributes:
        indices: Which images of the source these are.
        read: Reads one image by its index in the source. Something that can be pickled, to be sent to other processes.
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
    """Reads images kept as bytes, a quarter of the memory that they take as numbers in [0, 1]."""

    pixels: NDArray[np.uint8]

    def __call__(self, index: int) -> Image:
        image: Image = self.pixels[index].astype(np.float32) / np.float32(255)
        return image


def fingerprint(parts: Iterable[Any]) -> str:
    """A hash of texts, numbers, bytes and arrays, in order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str} {part.shape} ".encode())
            for start in range(0, len(part), 256):  # a memory-mapped array may be larger than the memory
                digest.update(np.ascontiguousarray(part[start : start + 256]).data)
        else:
            content = part if isinstance(part, bytes) else os.fsencode(str(part))  # a file's name may be any bytes
            digest.update(f"{len(content)} ".encode())  # or "ab", "c" would be as "a", "bc"
            digest.update(content)
    return digest.hexdigest()

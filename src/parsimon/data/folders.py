"""Folders of pictures: one folder per class, labels in file names, or ImageNet's pictures with a list of labels.

A list has one line `ILSVRC2012_val_00000001.JPEG 65` per picture: its name and its class from 0 to 999. Classes are in
the order of the WordNet ids, as networks number them. A list may name only some of the pictures, and it sets their
order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parsimon.core.types import Image
from parsimon.data.base import Data, Lazy, fingerprint
from parsimon.data.pictures import Preprocess, read_picture
from parsimon.errors import InputError, first_line, quote

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's, in any case
IMAGENET_CLASSES = 1000

_LISTS = "http://dl.caffe.berkeleyvision.org/caffe_ilsvrc12.tar.gz"


@dataclass(frozen=True)
class _Files:
    """Read a picture file by its index."""

    paths: tuple[Path, ...]
    preprocess: Preprocess

    def __call__(self, index: int) -> Image:
        return read_picture(self.paths[index], str(self.paths[index]), self.preprocess)


def open_class_folders(folder: Path, preprocess: Preprocess, name: str) -> Data:
    """Open FOLDER/class/picture, sorted by class, then by name, and numbered from 0, as in torchvision."""
    loose, classes = _names_in(folder)
    if not classes:
        hint = (
            f"it has {len(loose)} pictures and no folders. If their names end in the label, use named:{folder}; "
            f"if a list has the labels, use imagenet:{folder}:LIST."
            if loose
            else "it has no folders."
        )
        raise InputError(f"{folder} must have one folder of pictures per class; {hint}")
    found = []
    for label, title in enumerate(classes):
        pictures, inner = _names_in(folder / title)
        if inner:
            raise InputError(
                f"{folder / title} must hold pictures of one class; it holds folders, such as {inner[0]}. If those are "
                f"the classes, use folder:{folder / title}."
            )
        found += [(f"{title}/{picture}", label) for picture in pictures]
    if not found:
        raise InputError(f"the {len(classes)} class folders of {folder} hold no pictures ({', '.join(SUFFIXES)})")
    return _open_files(folder, found, preprocess, name, tuple(classes))


def open_labelled_names(path: Path, preprocess: Preprocess, name: str) -> Data:
    """Open pictures whose names end in their label, such as imagenet_00_243.jpg for class 243.

    The path is a folder, or a folder and a pattern such as `imagenet_*.jpg`.
    """
    folder, pattern = (path, "*") if path.is_dir() else (path.parent, path.name)
    found = []
    for picture in _names_in(folder)[0]:
        if Path(picture).match(pattern):
            digits = re.search(r"(?<![0-9])[0-9]{1,18}$", Path(picture).stem)  # more digits are a date or a hash
            if digits is None:
                raise InputError(f"the name of {folder / picture} must end in its label, such as cat_3.png for class 3")
            found.append((picture, int(digits[0])))
    if not found:
        raise InputError(f"{path} must be a folder of pictures ({', '.join(SUFFIXES)}) or a pattern that matches some")
    return _open_files(folder, found, preprocess, name)


def open_imagenet(folder: Path, labels: Path | None, preprocess: Preprocess, name: str) -> Data:
    """Open the pictures in a list of labels; by default the list is `val.txt` in the folder or its parent."""
    if not folder.exists():
        raise InputError(
            f"there is no folder {folder}. Download ImageNet's validation pictures from "
            "https://image-net.org/download.php, which requires an account. Unpack ILSVRC2012_img_val.tar into that "
            f"folder and add val.txt from {_LISTS}. For 70 pictures without an account: "
            "parsimon zoo install imagenet-samples"
        )
    _, inner = _names_in(folder)
    if labels is None:
        places = [folder / "val.txt", folder.absolute().parent / "val.txt"]
        labels = next((place for place in places if place.is_file()), None)
    if labels is None:
        hint = f"If its {len(inner)} folders are the classes, use folder:{folder}." if inner else ""
        raise InputError(
            f"the labels of {folder} are unknown: give a list of lines 'picture label' as imagenet:{folder}:LIST, or "
            f"put it there as val.txt. {hint}".strip()
        )
    return _open_files(folder, _read_list(labels), preprocess, name)


def _read_list(path: Path) -> list[tuple[str, int]]:
    """Return the picture names, which may contain spaces, and the labels of a list."""
    if not path.is_file():  # reading a device might never end
        raise InputError(f"there is no list {path} of pictures and labels")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the list {path} cannot be read: {first_line(error)}") from error
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        words = line.rsplit(maxsplit=1)
        if not words:
            continue
        where = f"line {number} of {path}"
        if len(words) == 1 and words[0].isdecimal():
            raise InputError(
                f"{where} is a number alone, as in the development kit's ground truth, whose ids are in another order "
                "than the classes of networks. Use lines 'picture label' with labels from 0 to 999 in the order of the "
                "WordNet ids, or sort the pictures into folders named by those ids (folder:)"
            )
        if len(words) == 1 or not (words[1].isdecimal() and int(words[1]) < IMAGENET_CLASSES):
            last = IMAGENET_CLASSES - 1
            raise InputError(f"{where} must be a picture's name and a label from 0 to {last}; got {quote(line)}")
        if words[0] in found:
            raise InputError(f"{where} repeats {words[0]}")
        found[words[0]] = int(words[1])
    if not found:
        raise InputError(f"the list {path} names no pictures")
    return list(found.items())


def _open_files(
    root: Path,
    found: Sequence[tuple[str, int]],
    preprocess: Preprocess,
    name: str,
    classes: tuple[str, ...] | None = None,
) -> Data:
    """Return the named files under a folder, with their labels, as data. The files are not opened yet."""
    content: list[object] = [preprocess]
    for file, label in found:
        try:
            content += [file, label, (root / file).stat().st_size]
        except OSError as error:
            raise InputError(f"there is no picture {root / file}: {first_line(error)}") from error
    paths = tuple(root / file for file, _ in found)
    labels = np.array([label for _, label in found], np.int64)
    return Data(Lazy(range(len(found)), _Files(paths, preprocess)), labels, classes, name, fingerprint(content))


def _names_in(folder: Path) -> tuple[list[str], list[str]]:
    """Return the sorted names of the pictures and of the folders in a folder, without hidden ones."""
    try:
        with os.scandir(folder) as entries:
            seen = sorted((entry.name, entry.is_dir()) for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be read: {first_line(error)}") from error
    pictures = [name for name, is_folder in seen if not is_folder and name.lower().endswith(SUFFIXES)]
    return pictures, [name for name, is_folder in seen if is_folder]

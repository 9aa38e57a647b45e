"""A folder of class folders: PATH/class/picture. Classes are numbered in the order of their names, from 0."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from parsimon.data.base import Data
from parsimon.data.pictures import SUFFIXES, names_in, open_files
from parsimon.data.preprocess import Preprocess
from parsimon.errors import InputError


def open_folder(folder: Path, preprocess: Preprocess, name: str) -> Data:
    """Every picture of every class folder, class by class and name by name: torchvision's order and numbers."""
    loose, classes = names_in(folder)
    if not classes:
        hint = (
            f"its {len(loose)} pictures stand beside each other. If their names end in the label, use named:{folder}; "
            f"if a list has the labels, use imagenet:{folder}:LIST."
            if loose
            else "it has no folders."
        )
        raise InputError(f"{folder} must have a folder of pictures for each class; {hint}")
    found = []
    for label, title in enumerate(classes):
        pictures, inner = names_in(folder / title)
        if inner:
            raise InputError(
                f"{folder / title} must hold pictures of one class; it holds folders, such as {inner[0]}. If those are "
                f"the classes, use folder:{folder / title}."
            )
        found += [(f"{title}/{picture}", label) for picture in pictures]
    if not found:
        raise InputError(f"the {len(classes)} class folders of {folder} hold no pictures ({', '.join(SUFFIXES)})")
    return replace(open_files(folder, found, preprocess, name), classes=tuple(classes))

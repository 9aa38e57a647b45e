"""Pictures whose names end in their label, such as imagenet_00_243.jpg, class 243."""

from __future__ import annotations

import re
from pathlib import Path

from parsimon.data.base import Data
from parsimon.data.pictures import SUFFIXES, names_in, open_files
from parsimon.data.preprocess import Preprocess
from parsimon.errors import InputError


def open_filenames(path: Path, preprocess: Preprocess, name: str) -> Data:
    """The pictures of a folder by name; of those that fit a pattern, if the last part of the path is one."""
    folder, pattern = (path, "*") if path.is_dir() else (path.parent, path.name)
    pictures = [each for each in names_in(folder)[0] if Path(each).match(pattern)]
    if not pictures:
        raise InputError(f"{path} must be a folder of pictures ({', '.join(SUFFIXES)}) or a pattern that fits some")
    return open_files(folder, [(each, _label(each, folder)) for each in pictures], preprocess, name)


def _label(picture: str, folder: Path) -> int:
    """The whole number before the suffix."""
    digits = re.search(r"(?<![0-9])[0-9]{1,18}$", Path(picture).stem)  # a longer one is no label, but a date or a hash
    if digits is None:
        raise InputError(f"the name of {folder / picture} must end in its label, as cat_3.png does for class 3")
    return int(digits[0])

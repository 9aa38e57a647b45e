"""ImageNet's validation pictures in one folder, and a list of their labels.

The list has a line `ILSVRC2012_val_00000001.JPEG 65` for each picture: its name, and its class from 0 to 999, in the
order of the WordNet ids, as networks number them. Such a list is `val.txt` in
http://dl.caffe.berkeleyvision.org/caffe_ilsvrc12.tar.gz. It may name a part of the pictures, and sets their order.
"""

from __future__ import annotations

from pathlib import Path

from parsimon.data.base import Data
from parsimon.data.pictures import names_in, open_files
from parsimon.data.preprocess import Preprocess
from parsimon.errors import InputError, first_line, quote

CLASSES = 1000

_LISTS = "http://dl.caffe.berkeleyvision.org/caffe_ilsvrc12.tar.gz"


def open_imagenet(folder: Path, labels: Path | None, preprocess: Preprocess, name: str) -> Data:
    """The pictures of the list; without one, `val.txt` in the folder or beside it is taken."""
    if not folder.exists():
        raise InputError(
            f"there is no folder {folder}. ImageNet's validation pictures are given out at "
            "https://image-net.org/download.php to those who have an account: unpack ILSVRC2012_img_val.tar into that "
            "folder, and put val.txt into it, which has a line 'ILSVRC2012_val_00000001.JPEG 65' for each picture (it "
            f"is in {_LISTS}). Without an account there are 70 pictures: parsimon zoo install imagenet-samples"
        )
    _, inner = names_in(folder)
    if labels is None:
        places = [folder / "val.txt", folder.absolute().parent / "val.txt"]
        labels = next((place for place in places if place.is_file()), None)
    if labels is None:
        hint = f"If its {len(inner)} folders are the classes, use folder:{folder}." if inner else ""
        raise InputError(
            f"the labels of {folder} are not known: give a list of lines 'picture label' as imagenet:{folder}:LIST, or "
            f"put it there as val.txt. {hint}".strip()
        )
    return open_files(folder, read_list(labels), preprocess, name)


def read_list(path: Path) -> list[tuple[str, int]]:
    """The lines of a list: a picture's name, which may have spaces, and its label."""
    if not path.is_file():  # a device would be read without end
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
                f"{where} is a number alone, as in the development kit's ground truth. Its ILSVRC ids, 1 to 1000, are "
                "in another order than the classes of networks: make a list of lines 'picture label', with labels from "
                "0 to 999 in the order of the WordNet ids, or sort the pictures into folders named by them (folder:)"
            )
        if len(words) == 1 or not (words[1].isdecimal() and int(words[1]) < CLASSES):
            raise InputError(f"{where} must be a picture's name and a label from 0 to {CLASSES - 1}; got {quote(line)}")
        if words[0] in found:
            raise InputError(f"{where} names {words[0]} a second time")
        found[words[0]] = int(words[1])
    if not found:
        raise InputError(f"the list {path} names no pictures")
    return list(found.items())

"""Open data by name: `bundled`, `imagenet-samples`, `images.npz`, `cifar10:FOLDER`, `folder:PATH` ..."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parsimon import catalogue
from parsimon.data.arrays import open_arrays
from parsimon.data.base import Data, fingerprint
from parsimon.data.cifar10 import CLASSES, open_cifar10
from parsimon.data.folders import open_class_folders, open_imagenet, open_labelled_names
from parsimon.data.huggingface import open_huggingface
from parsimon.data.pictures import Preprocess
from parsimon.errors import InputError, ParsimonError, check_name, did_you_mean, first_line, quote

FORMS = {
    "bundled": "the bundled CIFAR-10 test images",
    "imagenet-samples": "70 ImageNet pictures, installed by `parsimon zoo`",
    "cifar10[:train]": "CIFAR-10, installed by `parsimon zoo`",
    "FILE.npz": "arrays images and labels",
    "FILE.npy": "an array of images, with labels.npy beside it",
    "cifar10:FOLDER[:train]": "CIFAR-10 files as downloaded from their authors",
    "folder:PATH": "one folder of pictures per class",
    "imagenet:PATH[:LIST]": "ImageNet pictures in one folder, with a list of labels",
    "named:PATH": "pictures whose names end in their label",
    "hf:DATASET[:SPLIT[:COLUMN]]": "a Hugging Face dataset",
}

PICTURES = ("folder", "imagenet", "named", "hf")


def open_data(text: str, preprocess: Preprocess | None = None) -> Data:
    """Open data in one of the `FORMS`.

    Args:
        text: The name of the data, such as `bundled` or `folder:PATH`.
        preprocess: How to resize and crop pictures; images of one size do not accept it.
    """
    check_name("data", text)
    try:
        return _open(text, preprocess)
    except (OSError, ValueError) as error:  # a path that no file can have
        if isinstance(error, ParsimonError):
            raise
        raise InputError(f"the data {quote(text)} cannot be opened: {first_line(error)}") from error


def _open(text: str, preprocess: Preprocess | None) -> Data:
    form, colon, rest = (catalogue.data_place(text) or text).partition(":")
    if form in ("cifar10", *PICTURES) and colon:
        if rest.startswith(":") or not rest:
            raise InputError(f"{quote(text)} lacks the place of the data: {_forms()}")
        if form in PICTURES:
            return _open_pictures(form, _expand_home(rest), preprocess or Preprocess(), text)
    if preprocess is not None:
        raise InputError(
            f"{quote(text)} holds images of one size, which are not preprocessed; preprocess applies to "
            f"imagenet-samples, {', '.join(f'{each}:' for each in PICTURES)}",
            argument="preprocess",
        )
    if form == "cifar10" and colon:
        folder, split = _split_place(_expand_home(rest), 2)
        return open_cifar10(Path(folder), split or "test", text)
    if text == "bundled":
        images, labels = catalogue.images()
        return Data(images, labels, CLASSES, text, fingerprint([images, labels]))
    path = Path(_expand_home(text))
    if path.suffix.lower() in (".npz", ".npy") or path.is_file():
        return open_arrays(path, text)
    if text and path.is_dir():
        raise InputError(f"{quote(text)} is a folder: for class folders in it use folder:{text}; {_forms()}")
    installable = [name for name, entry in catalogue.entries.entries().items() if not entry.is_network]
    hint = did_you_mean(form, [*PICTURES, "cifar10"] if colon else ["bundled", *installable])
    raise InputError(f"there are no data {quote(text)}{f'{hint} You can' if hint else ':'} {_forms()}")


def _open_pictures(form: str, place: str, preprocess: Preprocess, text: str) -> Data:
    if form == "folder":
        return open_class_folders(Path(place), preprocess, text)
    if form == "named":
        return open_labelled_names(Path(place), preprocess, text)
    if form == "imagenet":
        folder, labels = _split_place(place, 2)
        return open_imagenet(Path(folder), Path(_expand_home(labels)) if labels else None, preprocess, text)
    dataset, split, column = _split_place(place, 3)
    return open_huggingface(dataset, split, column, preprocess, text)


def _split_place(text: str, count: int) -> list[Any]:
    """Split `place:part:part` into `count` parts, None for absent ones; an existing place may contain colons."""
    words = text.split(":")
    heads = (":".join(words[:end]) for end in range(len(words), 0, -1))
    place = next((head for head in heads if Path(head).exists()), None)
    parts = [place, *text[len(place) + 1 :].split(":", count - 2)] if place else text.rsplit(":", count - 1)
    return [part or None for part in parts] + [None] * (count - len(parts))


def _expand_home(text: str) -> str:
    """Replace a leading `~/`, which a shell leaves alone after a colon."""
    return str(Path(text).expanduser()) if text.startswith("~/") else text


def _forms() -> str:
    return "give " + "; ".join(f"{form} ({what})" for form, what in FORMS.items())

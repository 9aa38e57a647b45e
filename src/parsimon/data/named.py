"""Data by what a person types: `bundled`, `imagenet-samples`, `images.npz`, `cifar10:FOLDER`, `folder:PATH` ..."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parsimon import catalogue
from parsimon.data.arrays import open_arrays
from parsimon.data.base import Data, fingerprint
from parsimon.data.cifar10 import CLASSES, open_cifar10
from parsimon.data.filenames import open_filenames
from parsimon.data.folder import open_folder
from parsimon.data.huggingface import open_huggingface
from parsimon.data.imagenet import open_imagenet
from parsimon.data.preprocess import Preprocess
from parsimon.errors import InputError, ParsimonError, check_name, first_line, quote

FORMS = {
    "bundled": "the bundled CIFAR-10 test images",
    "imagenet-samples": "70 pictures of ImageNet, installed by `parsimon zoo`",
    "cifar10[:train]": "CIFAR-10, installed by `parsimon zoo`",
    "FILE.npz": "the arrays images and labels",
    "FILE.npy": "an array of images, with labels.npy beside it",
    "cifar10:FOLDER[:train]": "CIFAR-10's own files",
    "folder:PATH": "a folder of pictures for each class",
    "imagenet:PATH[:LIST]": "ImageNet's pictures in one folder, with a list of labels",
    "named:PATH": "pictures whose names end in their label",
    "hf:DATASET[:SPLIT[:COLUMN]]": "a Hugging Face dataset",
}

PICTURES = ("folder", "imagenet", "named", "hf")


def open_data(text: str, preprocess: Preprocess | None = None) -> Data:
    """The data that are named, in one of the `FORMS`; pictures are resized and cropped as `preprocess` says."""
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
            return _open_pictures(form, _home(rest), preprocess or Preprocess(), text)
    if preprocess is not None:
        raise InputError(
            f"{quote(text)} holds images of one size, which are shown as they are; preprocess is for pictures, that is "
            f"for imagenet-samples, {', '.join(f'{each}:' for each in PICTURES)}"
        )
    if form == "cifar10" and colon:
        folder, split = _parts(_home(rest), 2)
        return open_cifar10(Path(folder), split or "test", text)
    if text == "bundled":
        images, labels = catalogue.images()
        return Data(images, labels, CLASSES, text, fingerprint([images, labels]))
    path = Path(_home(text))
    if path.suffix.lower() in (".npz", ".npy") or path.is_file():
        return open_arrays(path, text)
    hint = f". For class folders in {text} use folder:{text}" if path.is_dir() else ""
    raise InputError(f"there are no data {quote(text)}: {_forms()}{hint}")


def open_preprocess(text: str) -> Preprocess:
    """How pictures are resized and cropped, as it is typed: `resize=256,crop=224,interpolation=bicubic`."""
    settings: dict[str, Any] = {}
    for assignment in filter(None, text.split(",")):
        key, _, value = (part.strip() for part in assignment.partition("="))
        if key in settings or key not in Preprocess.__dataclass_fields__:
            raise InputError(
                "preprocessing is described as resize=256 or 299x299, crop=224, interpolation=bicubic, channels=3, "
                f"each at most once, with commas between; got {quote(assignment)} in {quote(text)}"
            )
        settings[key] = value if key == "interpolation" else _side(value)
    return Preprocess(**settings)


def _open_pictures(form: str, place: str, preprocess: Preprocess, text: str) -> Data:
    if form == "folder":
        return open_folder(Path(place), preprocess, text)
    if form == "named":
        return open_filenames(Path(place), preprocess, text)
    if form == "imagenet":
        folder, labels = _parts(place, 2)
        return open_imagenet(Path(folder), Path(_home(labels)) if labels else None, preprocess, text)
    dataset, split, column = _parts(place, 3)
    return open_huggingface(dataset, split, column, preprocess, text)


def _parts(text: str, count: int) -> list[Any]:
    """A place and what follows it after colons, None where nothing does; the place may have colons if it exists."""
    words = text.split(":")
    heads = (":".join(words[:end]) for end in range(len(words), 0, -1))
    place = next((head for head in heads if Path(head).exists()), None)
    parts = [place, *text[len(place) + 1 :].split(":", count - 2)] if place else text.rsplit(":", count - 1)
    return [part or None for part in parts] + [None] * (count - len(parts))


def _side(text: str) -> Any:
    """`224` as a number, `256x224` as two; what is neither is left for `Preprocess` to refuse."""
    sides = [int(side) if side.isdecimal() and len(side) < 10 else side for side in text.split("x")]
    return sides[0] if len(sides) == 1 else tuple(sides)


def _home(text: str) -> str:
    """A path with the user's folder for `~/`, which a shell leaves alone after a colon."""
    return str(Path(text).expanduser()) if text.startswith("~/") else text


def _forms() -> str:
    return "give " + "; ".join(f"{form} ({what})" for form, what in FORMS.items())

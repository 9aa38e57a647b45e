"""Images with their labels in one object: a torch `DataLoader`, or a dataset of pairs. No framework is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parsimon.core.types import Image
from parsimon.data.validate import as_numpy
from parsimon.errors import InputError, ParsimonError, first_line

_PAIRS = "a data loader must yield pairs (images, labels), and a dataset must hold pairs (image, label)"


def split_pairs(images: Any, labels: Any) -> tuple[Any, Any]:
    """Return images and labels separately.

    A loader is read once, into memory, since it may shuffle. The images of a dataset are read when they are needed, and
    its labels at once. Images beside labels are left as they are; labels `"predicted"` replace those of the pairs.
    """
    predicted = isinstance(labels, str) and labels == "predicted"
    if labels is not None and not predicted:
        if hasattr(images, "dataset") and not hasattr(images, "__getitem__"):
            raise InputError("the data loader has labels of its own: leave labels out", argument="labels")
        return images, labels
    if hasattr(images, "__iter__") and not hasattr(images, "__getitem__"):
        apart = _read_loader(images)
    elif _holds_pairs(images):
        apart = _read_dataset(images)
    elif predicted:
        return images, labels
    else:
        raise InputError(
            "labels are missing: give one class per image, 'predicted', or a data loader or dataset that has them",
            argument="labels",
        )
    return apart[0], labels if predicted else apart[1]


def _holds_pairs(images: Any) -> bool:
    if hasattr(images, "shape") or isinstance(images, str | Mapping):
        return False
    try:
        first = images[0]
    except Exception:  # nothing is there, or it cannot be read, which is reported later
        return False
    return isinstance(first, tuple | list) and len(first) == 2


def _read_loader(loader: Iterable[Any]) -> tuple[Any, Any]:
    batches: list[tuple[Any, Any]] = []
    try:
        for batch in loader:
            batches.append(_pair(batch, f"batch {len(batches)}"))
    except ParsimonError:
        raise
    except Exception as error:
        raise InputError(f"batch {len(batches)} of the data loader cannot be read: {first_line(error)}") from error
    if not batches:
        raise InputError("the data loader yields no batch, so there are no images to attack")
    images, labels = zip(*batches, strict=True)
    try:
        return tuple(np.concatenate([as_numpy(part, "a batch") for part in parts]) for parts in (images, labels))  # type: ignore[return-value]
    except ValueError as error:
        raise InputError(f"the batches of the data loader do not fit together: {first_line(error)}") from error


def _read_dataset(dataset: Any) -> tuple[Any, Any]:
    images = _DatasetImages(dataset)
    if not np.array_equal(images[0], images[0], equal_nan=True):
        raise InputError(
            "the dataset gives another image each time it is read: leave random transforms out of it, or attack the "
            "batches of a data loader, which is read once"
        )
    labels = [_pair(_item(dataset, index), f"item {index}")[1] for index in range(len(dataset))]
    return images, as_numpy([as_numpy(label, "a label") for label in labels], "labels")


@dataclass(frozen=True, eq=False)
class _DatasetImages(Sequence[Image]):
    """The images of a dataset of pairs, each read on access."""

    dataset: Any

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Image:  # type: ignore[override]  # no caller takes slices
        return as_numpy(_pair(_item(self.dataset, index), f"item {index}")[0], f"image {index}")


def _item(dataset: Any, index: int) -> Any:
    try:
        return dataset[index]
    except ParsimonError:
        raise
    except Exception as error:
        raise InputError(f"item {index} of the dataset cannot be read: {first_line(error)}") from error


def _pair(item: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        got = f"{type(item).__name__} of {len(item)}" if hasattr(item, "__len__") else type(item).__name__
        raise InputError(f"{_PAIRS}; {what} is a {got}")
    return item[0], item[1]

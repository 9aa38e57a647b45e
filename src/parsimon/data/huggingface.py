"""Datasets of the Hugging Face hub, or saved by its library `datasets`; the rows are read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from parsimon.core.types import Image
from parsimon.data.base import Data, Lazy, fingerprint
from parsimon.data.pictures import read_picture
from parsimon.data.preprocess import Preprocess
from parsimon.errors import InputError, first_line, require


@dataclass(frozen=True, eq=False)
class Rows:
    """Reads the pictures of a dataset's column, which are left undecoded."""

    dataset: Any
    column: str
    name: str
    preprocess: Preprocess

    def __call__(self, index: int) -> Image:
        row = self.dataset[index][self.column]
        file = Path(row["path"]) if row["bytes"] is None else BytesIO(row["bytes"])
        return read_picture(file, f"row {index} of {self.name}", self.preprocess)


def open_huggingface(dataset: str, split: str | None, label: str | None, preprocess: Preprocess, name: str) -> Data:
    """A split of a dataset, the one called test unless another is named; the columns are told by their types."""
    library = require("datasets", "huggingface")
    table = _load(library, dataset, split).with_format(None)
    kinds = table.features
    image = _column(kinds, "picture", [key for key, kind in kinds.items() if isinstance(kind, library.Image)], None)
    # Class labels are meant for this; whole numbers may be, if there is a single column of them.
    labels = [key for key, kind in kinds.items() if isinstance(kind, library.ClassLabel)]
    labels = labels or [key for key, kind in kinds.items() if "int" in str(getattr(kind, "dtype", ""))]
    label = _column(kinds, "label", labels, label)
    pictures = table.select_columns([image]).cast_column(image, library.Image(decode=False))
    numbers = np.asarray(table.select_columns([label]).with_format("numpy")[:][label])
    if not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(f"labels must be whole numbers; the column {label} of {name} holds {numbers.dtype}")
    titles = getattr(kinds[label], "names", None)
    return Data(
        Lazy(range(len(table)), Rows(pictures, image, name, preprocess)),
        numbers,
        tuple(titles) if titles else None,
        name,
        fingerprint([preprocess, numbers, *_content(pictures, image)]),
    )


def _load(library: Any, dataset: str, split: str | None) -> Any:
    try:
        if any((Path(dataset) / file).is_file() for file in ("dataset_info.json", "dataset_dict.json")):
            saved = library.load_from_disk(dataset)
            if isinstance(saved, library.Dataset):
                if split not in (None, str(saved.split)):
                    raise InputError(f"{dataset} is saved as one split, {saved.split}: use hf:{dataset} alone")
                return saved
            return saved[_split(list(saved), split, dataset)]
        names = library.get_dataset_split_names(dataset)
        return library.load_dataset(dataset, split=_split(names, split, dataset))
    except InputError:
        raise
    except Exception as error:  # of the network, of the hub, of files
        raise InputError(f"the dataset {dataset} cannot be loaded: {first_line(error)}") from error


def _split(names: list[str], wanted: str | None, dataset: str) -> str:
    chosen = wanted or (names[0] if len(names) == 1 else "test")
    if chosen not in names:
        raise InputError(f"{dataset} has the splits {', '.join(names)}: name one, as in hf:{dataset}:{names[0]}")
    return chosen


def _column(kinds: Any, what: str, found: list[str], wanted: str | None) -> str:
    if wanted is not None and wanted in kinds:
        return wanted
    if wanted is None and len(found) == 1:
        return found[0]
    columns = ", ".join(f"{key} ({type(kind).__name__})" for key, kind in kinds.items())
    hint = ": name one, as in hf:DATASET:SPLIT:COLUMN" if what == "label" else ""
    raise InputError(f"the dataset must have one column of {what}s, or the one named; its columns are {columns}{hint}")


def _content(pictures: Any, column: str) -> Iterator[Any]:
    """What tells the pictures of one dataset from another's: their bytes; of files beside it, their names and sizes."""
    for start in range(0, len(pictures), 256):
        for row in pictures[start : start + 256][column]:
            if row["bytes"] is not None:
                yield row["bytes"]
            else:
                yield from (Path(row["path"]).name, Path(row["path"]).stat().st_size)

"""Open datasets from the Hugging Face hub, or saved by its library `datasets`; rows are read lazily."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from parsimon.core.types import Image
from parsimon.data.base import Data, Lazy, fingerprint
from parsimon.data.pictures import Preprocess, read_picture
from parsimon.errors import InputError, first_line, require


@dataclass(frozen=True, eq=False)
class _Rows:
    """Read a picture of a dataset's column by its index."""

    dataset: Any
    column: str
    name: str
    preprocess: Preprocess

    def __call__(self, index: int) -> Image:
        row = self.dataset[index][self.column]
        file = Path(row["path"]) if row["bytes"] is None else BytesIO(row["bytes"])
        return read_picture(file, f"row {index} of {self.name}", self.preprocess)


def open_huggingface(dataset: str, split: str | None, label: str | None, preprocess: Preprocess, name: str) -> Data:
    """Open a split of a dataset, by default `test`; the types of the columns tell pictures from labels."""
    library = require("datasets", "huggingface")
    table = _load(library, dataset, split).with_format(None)
    kinds = table.features
    image = _column(kinds, "picture", [key for key, kind in kinds.items() if isinstance(kind, library.Image)], None)
    # A column of ClassLabel wins; otherwise a single column of whole numbers is taken.
    labels = [key for key, kind in kinds.items() if isinstance(kind, library.ClassLabel)]
    labels = labels or [key for key, kind in kinds.items() if "int" in str(getattr(kind, "dtype", ""))]
    label = _column(kinds, "label", labels, label)
    pictures = table.select_columns([image]).cast_column(image, library.Image(decode=False))
    numbers = np.asarray(table.select_columns([label]).with_format("numpy")[:][label])
    if not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(f"labels must be whole numbers; the column {label} of {name} holds {numbers.dtype}")
    titles = getattr(kinds[label], "names", None)
    return Data(
        Lazy(range(len(table)), _Rows(pictures, image, name, preprocess)),
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
                    raise InputError(f"{dataset} has the single split {saved.split}: use hf:{dataset}")
                return saved
            return saved[_split(list(saved), split, dataset)]
        names = library.get_dataset_split_names(dataset)
        return library.load_dataset(dataset, split=_split(names, split, dataset))
    except InputError:
        raise
    except Exception as error:  # the network, the hub and files raise many kinds
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
    raise InputError(f"the dataset must have one column of {what}s; its columns are {columns}{hint}")


def _content(pictures: Any, column: str) -> Iterator[Any]:
    """Yield what identifies the pictures: their bytes, or the names and sizes of external files."""
    for start in range(0, len(pictures), 256):
        for row in pictures[start : start + 256][column]:
            if row["bytes"] is not None:
                yield row["bytes"]
            else:
                yield from (Path(row["path"]).name, Path(row["path"]).stat().st_size)

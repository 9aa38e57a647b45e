"""Hugging Face datasets, with the real library."""

from __future__ import annotations

import pickle
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from data_files import (
    LABELS,
    PIXELS,
    all_of,
    refused,
    scaled,
    write_folder,
)
from parsimon import InputError, MissingExtraError
from parsimon.data import Preprocess, open_data


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"this needs datasets.*pip install 'parsimon\[huggingface\]'"):
        open_data("hf:cifar10")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    datasets: Any = import_module("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return datasets


def table(library: Any, **more: Any) -> Any:
    """Return a dataset of ten pictures with class labels, and more columns."""
    pictures = [PIL.Image.fromarray(image.transpose(1, 2, 0)) for image in PIXELS]
    features = {"picture": library.Image(), "kind": library.ClassLabel(names=list("abcdefghij"))}
    features |= {name: feature for name, (feature, _) in more.items()}
    columns = {"picture": pictures, "kind": LABELS.tolist()} | {name: values for name, (_, values) in more.items()}
    return library.Dataset.from_dict(columns, features=library.Features(features))


def test_a_saved_dataset_is_read_by_the_types_of_its_columns(tmp_path: Path, library: Any) -> None:
    more = {"index": (library.Value("int64"), list(range(10))), "text": (library.Value("string"), ["x"] * 10)}
    table(library, **more).with_format("numpy").save_to_disk(tmp_path / "saved")
    data = open_data(f"hf:{tmp_path / 'saved'}")
    np.testing.assert_array_equal(all_of(data), scaled(PIXELS))
    np.testing.assert_array_equal(data.labels, LABELS)
    assert data.classes == tuple("abcdefghij")
    images = pickle.loads(pickle.dumps(data.images))
    np.testing.assert_array_equal(images[3], scaled(PIXELS[3]))
    assert open_data(f"hf:{tmp_path / 'saved'}", Preprocess(8)).images[0].shape == (3, 8, 8)
    assert open_data(f"hf:{tmp_path / 'saved'}::index").labels.tolist() == list(range(10))
    refused(f"hf:{tmp_path / 'saved'}:train", "has the single split", f"use hf:{tmp_path / 'saved'}")
    refused(f"hf:{tmp_path / 'saved'}::text", "labels must be whole numbers; the column text")


def test_the_default_split_is_test_or_the_only_one(tmp_path: Path, library: Any) -> None:
    whole = table(library)
    parts = {"train": whole, "validation": whole.select([1, 2]), "test": whole.select([7])}
    library.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    assert open_data(f"hf:{tmp_path / 'saved'}").labels.tolist() == LABELS[[7]].tolist()
    assert open_data(f"hf:{tmp_path / 'saved'}:validation").labels.tolist() == LABELS[[1, 2]].tolist()
    refused(f"hf:{tmp_path / 'saved'}:val", "has the splits train, validation, test", "name one")
    library.DatasetDict({"train": whole, "validation": whole}).save_to_disk(tmp_path / "no test")
    refused(f"hf:{tmp_path / 'no test'}", "has the splits train, validation", f"hf:{tmp_path / 'no test'}:train")


def test_a_folder_of_files_is_loaded_as_from_the_hub(tmp_path: Path, library: Any) -> None:
    (tmp_path / "files" / "data").mkdir(parents=True)
    for split in ("train", "test"):
        table(library).to_parquet(tmp_path / "files" / "data" / f"{split}-00000-of-00001.parquet")
    data = open_data(f"hf:{tmp_path / 'files'}")
    np.testing.assert_array_equal(all_of(data), scaled(PIXELS))
    assert data.fingerprint == open_data(f"hf:{tmp_path / 'files'}:train").fingerprint
    write_folder(tmp_path / "pictures", PIXELS, LABELS)
    data = open_data(f"hf:{tmp_path / 'pictures'}")
    np.testing.assert_array_equal(all_of(data), all_of(open_data(f"folder:{tmp_path / 'pictures'}")))


def test_ambiguous_columns_are_listed(tmp_path: Path, library: Any) -> None:
    table(library, coarse=(library.ClassLabel(names=["x"]), [0] * 10)).save_to_disk(tmp_path / "two")
    words = (
        "one column of labels",
        "picture (Image), kind (ClassLabel), coarse (ClassLabel)",
        "hf:DATASET:SPLIT:COLUMN",
    )
    refused(f"hf:{tmp_path / 'two'}", *words)
    refused(f"hf:{tmp_path / 'two'}::lost", *words)
    assert open_data(f"hf:{tmp_path / 'two'}::coarse").classes == ("x",)
    table(library).remove_columns("picture").save_to_disk(tmp_path / "none")
    refused(f"hf:{tmp_path / 'none'}", "one column of pictures", "kind (ClassLabel)")


def test_invalid_datasets_are_refused(tmp_path: Path, library: Any) -> None:
    refused(f"hf:{tmp_path / 'lost'}", "cannot be loaded: ")
    whole = table(library)
    features = library.Features({"picture": library.Image(), "kind": library.ClassLabel(names=["a"])})
    rows = {"picture": whole.with_format(None)[:]["picture"], "kind": [-1] * 10}
    library.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "unlabelled")
    refused(f"hf:{tmp_path / 'unlabelled'}", "got -1 at image 0", "published without labels")
    damaged = {"picture": [{"bytes": b"no picture", "path": None}], "kind": [0]}
    library.Dataset.from_dict(damaged, features=features).save_to_disk(tmp_path / "damaged")
    with pytest.raises(InputError, match=r"row 0 of hf:.*damaged cannot be read as a picture"):
        open_data(f"hf:{tmp_path / 'damaged'}").images[0]


def test_the_fingerprint_of_a_dataset_changes_with_a_picture_and_with_a_label(tmp_path: Path, library: Any) -> None:
    whole = table(library)
    others = [whole, whole.select(range(9)), whole.select([1, 0, *range(2, 10)]), whole.select([1, 3, 0]), whole]
    others.append(whole.map(lambda row: {"kind": (row["kind"] + 1) % 10}))
    found = []
    for index, each in enumerate(others):
        each.save_to_disk(tmp_path / str(index))
        found.append(open_data(f"hf:{tmp_path / str(index)}").fingerprint)
    assert found[0] == found[4]
    assert len(set(found)) == len(found) - 1

"""Tests of CIFAR-10 in each layout, and of pickles that must not run code."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from data_files import (
    LABELS,
    LAYOUTS,
    PIXELS,
    Bytes,
    Trap,
    all_of,
    every_layout,
    python2_pickle,
    refused,
    scaled,
    write_binary,
    write_npm,
    write_python,
)
from parsimon.data import open_data


@every_layout
@pytest.mark.parametrize("split", ["test", "train"])
def test_cifar10_is_read_from_every_layout(tmp_path: Path, write: Callable[..., None], split: str) -> None:
    write(tmp_path, PIXELS, LABELS, split)
    data = open_data(f"cifar10:{tmp_path}" + (":train" if split == "train" else ""))
    np.testing.assert_array_equal(all_of(data), scaled(PIXELS))
    np.testing.assert_array_equal(data.labels, LABELS)
    assert data.classes is not None
    assert data.classes[9] == "truck"
    assert data.images[0].dtype == np.float32


@settings(max_examples=20)
@given(arrays(np.uint8, st.tuples(st.integers(5, 7), st.just(3), st.just(32), st.just(32))), st.data())
def test_cifar10_layouts_agree_on_any_content(pixels: Bytes, drawn: st.DataObject) -> None:
    labels = drawn.draw(arrays(np.int64, len(pixels), elements=st.integers(0, 9)))
    fingerprints = set()
    for write in LAYOUTS:
        with TemporaryDirectory() as folder:
            write(Path(folder), pixels, labels, "train")
            data = open_data(f"cifar10:{folder}:train")
            np.testing.assert_array_equal(all_of(data), scaled(pixels))
            np.testing.assert_array_equal(data.labels, labels)
            fingerprints.add(data.fingerprint)
    assert len(fingerprints) == 1


def test_the_python_twin_of_the_official_pickles_is_one() -> None:
    """Pickle's own reader takes the tests' files for what the official ones are."""
    content = pickle.loads(python2_pickle({"data": PIXELS, "labels": [1]}), encoding="latin1")
    np.testing.assert_array_equal(content["data"], PIXELS)


@pytest.mark.parametrize("inner", ["cifar-10-batches-bin", "cifar-10-batches-py", "package"])
def test_the_folder_that_an_archive_unpacks_to_is_found(tmp_path: Path, inner: str) -> None:
    (tmp_path / inner).mkdir()
    write_binary(tmp_path / inner, PIXELS, LABELS)
    assert len(open_data(f"cifar10:{tmp_path}").labels) == 10


def test_a_folder_without_cifar10_raises_an_error_with_its_address(tmp_path: Path) -> None:
    for text in (f"cifar10:{tmp_path}", f"cifar10:{tmp_path / 'lost'}:test"):
        refused(text, "test_batch.bin, or test_batch, or test_batch.png", "https://www.cs.toronto.edu/~kriz/cifar.html")
    write_binary(tmp_path, PIXELS, LABELS)
    refused(f"cifar10:{tmp_path}:train", "data_batch_5.bin", "no CIFAR-10 train split")
    refused(f"cifar10:{tmp_path}:val", "the splits of CIFAR-10 are train and test; got 'val'")


def test_missing_files_of_cifar10_are_named(tmp_path: Path) -> None:
    write_python(tmp_path, PIXELS, LABELS, "train")
    (tmp_path / "data_batch_2").unlink()
    (tmp_path / "data_batch_4").unlink()
    refused(f"cifar10:{tmp_path}:train", "lacks files", "data_batch_2, data_batch_4")


def test_damaged_cifar10_files_are_named(tmp_path: Path) -> None:
    write_binary(tmp_path, PIXELS, LABELS)
    path = tmp_path / "test_batch.bin"
    for content in (b"", path.read_bytes()[:-1]):
        path.write_bytes(content)
        refused(f"cifar10:{tmp_path}", "test_batch.bin must hold 3073 bytes per image", f"it has {len(content)}")
    path.unlink()
    write_python(tmp_path, PIXELS, LABELS)
    for content in (b"", b"?", (tmp_path / "test_batch").read_bytes()[:9000], python2_pickle([1])):
        (tmp_path / "test_batch").write_bytes(content)
        refused(f"cifar10:{tmp_path}", "test_batch cannot be read as a pickled batch: ")
    (tmp_path / "test_batch").write_bytes(python2_pickle({"data": PIXELS, "fine_labels": [1]}))
    refused(f"cifar10:{tmp_path}", "with data and labels; it has ['data', 'fine_labels']")
    (tmp_path / "test_batch").write_bytes(python2_pickle({"data": PIXELS.astype(np.float32), "labels": [1]}))
    refused(f"cifar10:{tmp_path}", "expected an array of bytes; got f4")
    (tmp_path / "test_batch").write_bytes(python2_pickle({"data": PIXELS[:, :, :7], "labels": [1]}))
    refused(f"cifar10:{tmp_path}", f"the CIFAR-10 files in {tmp_path} cannot be read: ValueError")
    (tmp_path / "test_batch").unlink()
    write_npm(tmp_path, PIXELS, LABELS)
    (tmp_path / "test_lables.json").write_text("[1, 2]")
    refused(f"cifar10:{tmp_path}", "has 10 CIFAR-10 images and 2 labels")
    (tmp_path / "test_lables.json").write_text("[1, 2")
    refused(f"cifar10:{tmp_path}", "cannot be read: JSONDecodeError")


def test_a_label_that_cifar10_does_not_have_is_refused(tmp_path: Path) -> None:
    write_binary(tmp_path, PIXELS, LABELS + 1)
    refused(f"cifar10:{tmp_path}", "labels must be 0..9, one per class; got 10 at image 5")


@pytest.mark.parametrize(
    "wrap", [lambda trap: trap, lambda trap: {"data": trap, "labels": [1]}], ids=["alone", "inside"]
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_the_code_in_a_pickle_is_never_run(tmp_path: Path, wrap: Callable[[Any], Any], protocol: int) -> None:
    trap = pickle.dumps(wrap(Trap(tmp_path / "sprung")), protocol=protocol)
    pickle.loads(trap)
    assert (tmp_path / "sprung").exists(), "or the test would pass for the wrong reason"
    (tmp_path / "sprung").unlink()
    (tmp_path / "test_batch").write_bytes(trap)
    refused(f"cifar10:{tmp_path}", "test_batch was not opened: it names", "None of its code was run")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("named", [b"os\nsystem", b"builtins\neval", b"numpy\nload", b"numpy.core.multiarray\nscalar"])
def test_no_function_can_be_named_in_a_pickle(tmp_path: Path, named: bytes) -> None:
    (tmp_path / "test_batch").write_bytes(b"c" + named + b"\n(X\x01\x00\x00\x001tR.")
    refused(f"cifar10:{tmp_path}", f"it names {named.decode().replace(chr(10), '.')}")

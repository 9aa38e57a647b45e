"""Tests of .npz files: missing arrays, other formats, and pickles that must not run code."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from data_files import Trap
from parsimon import InputError
from parsimon.data.arrays import read_npz
from small_model import IMAGES, LABELS


def test_a_data_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=LABELS, names=np.array(["a", "b"]))
    images, labels = read_npz(tmp_path / "data.npz")
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(labels, LABELS)


def test_a_data_file_without_labels_raises_an_error_with_its_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=IMAGES, images=IMAGES)
    with pytest.raises(InputError, match=r"data\.npz must be.*images and labels; it has .*'images', 'x'"):
        read_npz(tmp_path / "data.npz")


@pytest.mark.parametrize("content", [b"", b"not a file of numpy", pickle.dumps({"images": 1})])
def test_a_data_file_of_another_format_is_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"data\.npz cannot be read as an \.npz file: .+") as caught:
        read_npz(tmp_path / "data.npz")
    assert "\n" not in str(caught.value)


def test_a_pickle_inside_a_data_file_is_not_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", images=np.array([Trap(tmp_path / "sprung")]), labels=LABELS)
    with pytest.raises(InputError, match="cannot be read"):
        read_npz(tmp_path / "data.npz")
    assert not (tmp_path / "sprung").exists()

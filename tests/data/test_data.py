"""Tests of data by name: arrays, fingerprints, and the choice of images."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from data_files import (
    LABELS,
    PIXELS,
    Trap,
    Writer,
    all_of,
    both_kinds,
    refused,
    save,
    scaled,
    write_binary,
    write_folder,
    write_npy,
    write_npz,
)
from parsimon import InputError, zoo
from parsimon.data import Preprocess, choose, open_data, open_preprocess
from parsimon.data.base import fingerprint
from parsimon.data.named import FORMS

# --- data by name -----------------------------------------------------------------------------------------------------


def test_the_bundled_images_are_those_of_the_zoo() -> None:
    data = open_data("bundled")
    images, labels = zoo.images()
    np.testing.assert_array_equal(np.asarray(data.images), images)
    np.testing.assert_array_equal(data.labels, labels)
    assert data.name == "bundled"
    assert data.classes is not None
    assert data.classes[labels[0]] == "cat"


@pytest.mark.parametrize("text", ["", "lost", "bundle", "Bundled", "mnist:here", ":", "bundled:test"])
def test_an_unknown_form_raises_an_error_that_lists_all_forms(text: str) -> None:
    refused(text, f"there are no data {text!r}", *FORMS)


@pytest.mark.parametrize("text", ["cifar10:", "folder:", "imagenet:", "named:", "hf:", "cifar10::train", "hf::test"])
def test_a_form_without_a_place_raises_an_error_that_lists_all_forms(text: str) -> None:
    refused(text, "lacks the place", *FORMS)


def test_a_bare_folder_raises_an_error_that_suggests_the_form_for_folders(tmp_path: Path) -> None:
    refused(str(tmp_path), f"use folder:{tmp_path}")


@pytest.mark.parametrize("text", ["bundled", "images.npz", "images.npy", "cifar10:here"])
def test_images_of_one_size_are_not_preprocessed(text: str) -> None:
    refused(text, "which are not preprocessed", "folder:, imagenet:, named:, hf:", preprocess=Preprocess(resize=8))


def test_the_home_folder_is_found_after_a_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    save(PIXELS[0], tmp_path / "pictures" / "cat" / "1.png")
    assert len(open_data("folder:~/pictures").labels) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Preprocess()),
        ("resize=256,crop=224", Preprocess(256, 224)),
        (" resize = 299x200 , interpolation=bicubic,channels=1", Preprocess((299, 200), None, "bicubic", 1)),
    ],
)
def test_open_preprocess_parses_settings(text: str, expected: Preprocess) -> None:
    assert open_preprocess(text) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("size=3", "got 'size=3'"),
        ("resize=3,resize=4", "at most once"),
        ("resize", "resize must be a number of pixels, at most 16,384, or (rows, columns), or None; got ''"),
        ("resize=0", "got 0"),
        ("resize=99999", "at most 16,384"),
        ("crop=224x" + "9" * 5000, "at most 16,384"),
        ("crop=2x3x4", "got (2, 3, 4)"),
        ("crop=-1", "got '-1'"),
        ("interpolation=nearest", "interpolation must be bilinear or bicubic; got 'nearest'"),
        ("channels=4", "channels must be 3 for colour or 1 for grey; got 4"),
    ],
)
def test_invalid_preprocessing_is_refused(text: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        open_preprocess(text)
    assert word in str(caught.value)


# --- numpy's files ----------------------------------------------------------------------------------------------------


@both_kinds
def test_arrays_are_read_as_they_were_written(tmp_path: Path, write: Writer) -> None:
    data = open_data(write(tmp_path, images=scaled(PIXELS), labels=LABELS.astype(np.uint8)))
    np.testing.assert_array_equal(all_of(data), scaled(PIXELS))
    np.testing.assert_array_equal(data.labels, LABELS)
    assert data.labels.dtype == np.int64
    assert data.classes is None


def test_the_same_arrays_have_one_fingerprint_in_either_kind_of_file(tmp_path: Path) -> None:
    texts = [write(tmp_path, images=scaled(PIXELS), labels=LABELS) for write in (write_npz, write_npy)]
    assert open_data(texts[0]).fingerprint == open_data(texts[1]).fingerprint


def test_an_npy_file_is_mapped_not_read(tmp_path: Path) -> None:
    data = open_data(write_npy(tmp_path, images=scaled(PIXELS), labels=LABELS))
    assert isinstance(data.images, np.memmap)


@both_kinds
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"images": PIXELS}, ("must be float32", "uint8 at image 0", "images.astype(np.float32) / 255")),
        ({"images": PIXELS.transpose(0, 2, 3, 1) / np.float32(255)}, ("channels last", "transpose(0, 3, 1, 2)")),
        ({"images": PIXELS.astype(np.float32)}, ("must lie in [0, 1]", "divide by 255")),
        ({"images": scaled(PIXELS)[0]}, ("(number, channels, rows, columns); got (3, 32, 32)",)),
        ({"images": np.zeros((0, 3, 8, 8), np.float32), "labels": LABELS[:0]}, ("there are no images",)),
        ({"labels": LABELS[:9]}, ("one whole number per image, for 10 images", "(9,)")),
        ({"labels": LABELS / 2}, ("float64", "astype(int)")),
        ({"labels": LABELS - 2}, ("labels must be 0 or more; got -1 at image 1", "without labels")),
    ],
    ids=["bytes", "channels last", "0 to 255", "one image", "none", "too few labels", "fractions", "negative"],
)
def test_invalid_arrays_raise_an_error_with_a_remedy(
    tmp_path: Path, write: Writer, content: dict[str, Any], words: tuple[str, ...]
) -> None:
    refused(write(tmp_path, **{"images": scaled(PIXELS), "labels": LABELS} | content), "images.np", *words)


@pytest.mark.parametrize("name", ["lost.npz", "lost.npy"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    refused(str(tmp_path / name), f"there is no data file {tmp_path / name}")


def test_an_npy_file_needs_its_labels_beside_it(tmp_path: Path) -> None:
    refused(
        write_npy(tmp_path, images=scaled(PIXELS)),
        "a file labels.npy beside it",
        f"there is no {tmp_path / 'labels.npy'}",
    )


def test_the_file_of_labels_is_refused_as_images(tmp_path: Path) -> None:
    write_npy(tmp_path, labels=LABELS)
    refused(str(tmp_path / "labels.npy"), "the file of labels", "give the file of images")


def test_damaged_and_dangerous_npy_files_are_refused(tmp_path: Path) -> None:
    path = write_npy(tmp_path, images=scaled(PIXELS), labels=LABELS)
    for content in (b"", b"no numpy", Path(path).read_bytes()[:5000], pickle.dumps(Trap(tmp_path / "sprung"))):
        Path(path).write_bytes(content)
        refused(path, "images.npy cannot be read as an .npy file: ")
    np.save(path, np.array([Trap(tmp_path / "sprung")]))
    refused(path, "cannot be read")
    np.savez(tmp_path / "other.npz", images=PIXELS)
    (tmp_path / "other.npz").rename(path)
    refused(path, "it holds several: rename it to .npz")
    assert not (tmp_path / "sprung").exists()


# --- fingerprints -----------------------------------------------------------------------------------------------------


def test_the_fingerprint_of_arrays_changes_with_any_part(tmp_path: Path) -> None:
    images, relabelled, changed = scaled(PIXELS), LABELS.copy(), scaled(PIXELS)
    relabelled[9] += 1
    changed[9, 2, 31, 31] = 1 - changed[9, 2, 31, 31]
    variants = [
        (images, LABELS),
        (images, relabelled),
        (changed, LABELS),
        (images.reshape(10, 3, 16, 64), LABELS),
        (images[:9], LABELS[:9]),
        (images, LABELS),
    ]
    found = [open_data(write_npz(tmp_path, images=x, labels=y)).fingerprint for x, y in variants]
    assert found[0] == found[-1]
    assert len(set(found)) == len(variants) - 1


def test_the_fingerprint_of_arrays_reaches_past_its_first_piece() -> None:
    numbers = np.zeros((1000, 2))
    before = fingerprint([numbers])
    numbers[-1, -1] = 1
    assert fingerprint([numbers]) != before
    assert fingerprint(["ab", "c"]) != fingerprint(["a", "bc"])


def test_the_fingerprint_of_cifar10_changes_with_any_part(tmp_path: Path) -> None:
    found = []
    for pixels, labels in ((PIXELS, LABELS), (PIXELS, LABELS[::-1]), (255 - PIXELS, LABELS)):
        write_binary(tmp_path, pixels, labels)
        found.append(open_data(f"cifar10:{tmp_path}").fingerprint)
    assert len(set(found)) == 3


def test_the_fingerprint_of_pictures_is_of_names_sizes_labels_and_preprocessing(tmp_path: Path) -> None:
    text, elsewhere = write_folder(tmp_path / "a", PIXELS, LABELS), write_folder(tmp_path / "b", PIXELS, LABELS)
    first = open_data(text).fingerprint
    assert open_data(elsewhere).fingerprint == first
    found = [first, open_data(text, Preprocess(resize=8)).fingerprint]
    (tmp_path / "a" / "3" / "0.png").rename(tmp_path / "a" / "3" / "x.png")
    found.append(open_data(text).fingerprint)
    save(PIXELS[0, :, :9], tmp_path / "a" / "3" / "x.png")
    found.append(open_data(text).fingerprint)
    (tmp_path / "a" / "3" / "x.png").unlink()
    found.append(open_data(text).fingerprint)
    (tmp_path / "a" / "0").mkdir()  # every label moves by one
    found.append(open_data(text).fingerprint)
    assert len(set(found)) == len(found)


# --- choosing ---------------------------------------------------------------------------------------------------------


CORRECT = arrays(np.bool_, st.integers(0, 40))


@given(CORRECT, st.none() | st.integers(1, 50), st.none() | st.integers(0, 2**32))
def test_chosen_images_are_correct_and_in_order(
    correct: NDArray[np.bool_], count: int | None, seed: int | None
) -> None:
    chosen = choose(correct, count, seed)
    assert (np.diff(chosen) > 0).all()
    assert correct[chosen].all()
    assert len(chosen) == (correct.sum() if count is None else min(count, correct.sum()))
    assert chosen.dtype == np.intp
    np.testing.assert_array_equal(chosen, choose(correct, count, seed))
    if seed is None:
        np.testing.assert_array_equal(chosen, np.flatnonzero(correct)[:count])


@given(CORRECT, st.integers(1, 40), st.integers(1, 40), st.integers(0, 99))
def test_a_larger_sample_contains_a_smaller_one(correct: NDArray[np.bool_], one: int, other: int, seed: int) -> None:
    small, large = (set(choose(correct, count, seed)) for count in sorted((one, other)))
    assert small <= large


def test_models_that_differ_on_one_image_share_all_other_samples() -> None:
    correct = np.ones(100, bool)
    before = choose(correct, 30, 0)
    correct[before[0]] = False
    assert set(before[1:]) < set(choose(correct, 30, 0))


def test_every_correct_image_is_equally_likely_to_be_chosen() -> None:
    counts = np.zeros(10, int)
    for seed in range(3000):
        counts[choose(np.arange(10) != 4, 3, seed)] += 1
    assert counts[4] == 0
    np.testing.assert_allclose(np.delete(counts, 4), 1000, atol=150)  # a deviation of six standard errors

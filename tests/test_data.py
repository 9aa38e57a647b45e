"""Data in every form in which people have them: read as they were written, when they are needed, or refused."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from parsimon import InputError, MissingExtraError, checks, zoo
from parsimon.data import Data, Preprocess, choose, open_data, open_preprocess
from parsimon.data.base import fingerprint
from parsimon.data.named import FORMS
from parsimon.launch import as_images
from parsimon.threat import Threat

Bytes = NDArray[np.uint8]

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (10, 3, 32, 32), np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])


def all_of(data: Data) -> NDArray[np.float32]:
    return np.stack([np.asarray(data.images[index]) for index in range(len(data.images))])


def scaled(pixels: Bytes) -> NDArray[np.float32]:
    return (pixels / 255).astype(np.float32)


def refused(text: str, *words: str, preprocess: Preprocess | None = None) -> None:
    """The data are refused in one sentence that has the words."""
    with pytest.raises(InputError) as caught:
        open_data(text, preprocess)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def save(pixels: Bytes, path: Path, **options: Any) -> Path:
    """A picture file of an image (channels, rows, columns)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(pixels.transpose(1, 2, 0).squeeze()).save(path, **options)
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the picture files that Pillow has been given."""
    names: list[str] = []
    real = PIL.Image.open

    def spy(file: Any, *rest: Any, **options: Any) -> Any:
        names.append(Path(file).name)
        return real(file, *rest, **options)

    monkeypatch.setattr(PIL.Image, "open", spy)
    return names


# --- what a person types --------------------------------------------------------------------------------------------


def test_the_bundled_images_are_those_of_the_zoo() -> None:
    data = open_data("bundled")
    images, labels = zoo.images()
    np.testing.assert_array_equal(np.asarray(data.images), images)
    np.testing.assert_array_equal(data.labels, labels)
    assert data.name == "bundled"
    assert data.classes is not None
    assert data.classes[labels[0]] == "cat"


@pytest.mark.parametrize("text", ["", "lost", "bundle", "Bundled", "cifar10", "mnist:here", ":", "bundled:test"])
def test_what_is_no_form_is_told_all_forms(text: str) -> None:
    refused(text, f"there are no data {text!r}", *FORMS)


@pytest.mark.parametrize("text", ["cifar10:", "folder:", "imagenet:", "named:", "hf:", "cifar10::train", "hf::test"])
def test_a_form_without_a_place_is_told_all_forms(text: str) -> None:
    refused(text, "lacks the place", *FORMS)


def test_a_bare_folder_is_told_the_form_for_folders(tmp_path: Path) -> None:
    refused(str(tmp_path), f"use folder:{tmp_path}")


@pytest.mark.parametrize("text", ["bundled", "images.npz", "images.npy", "cifar10:here"])
def test_images_of_one_size_are_not_preprocessed(text: str) -> None:
    refused(text, "shown as they are", "folder:, imagenet:, named:, hf:", preprocess=Preprocess(resize=8))


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
def test_preprocessing_as_it_is_typed(text: str, expected: Preprocess) -> None:
    assert open_preprocess(text) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("size=3", "got 'size=3'"),
        ("resize=3,resize=4", "at most once"),
        ("resize", "resize must be a number of pixels, or (rows, columns), or None; got ''"),
        ("resize=0", "got 0"),
        ("crop=2x3x4", "got (2, 3, 4)"),
        ("crop=-1", "got '-1'"),
        ("interpolation=nearest", "interpolation must be bilinear or bicubic; got 'nearest'"),
        ("channels=4", "channels must be 3 for colour or 1 for grey; got 4"),
    ],
)
def test_preprocessing_that_cannot_be_is_refused(text: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        open_preprocess(text)
    assert word in str(caught.value)


# --- numpy's files --------------------------------------------------------------------------------------------------


def write_npz(folder: Path, **content: Any) -> str:
    np.savez(folder / "images.npz", **content)
    return str(folder / "images.npz")


def write_npy(folder: Path, **content: Any) -> str:
    for name, array in content.items():
        np.save(folder / f"{name}.npy", array)
    return str(folder / "images.npy")


Writer = Callable[..., str]
both_kinds = pytest.mark.parametrize("write", [write_npz, write_npy])


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
        ({"labels": LABELS[:9]}, ("one whole number for each of the 10 images", "(9,)")),
        ({"labels": LABELS / 2}, ("float64", "astype(int)")),
        ({"labels": LABELS - 2}, ("labels must be 0 or more; got -1 at image 1", "without labels")),
    ],
    ids=["bytes", "channels last", "0 to 255", "one image", "none", "too few labels", "fractions", "negative"],
)
def test_arrays_that_cannot_be_used_are_told_what_to_do(
    tmp_path: Path, write: Writer, content: dict[str, Any], words: tuple[str, ...]
) -> None:
    refused(write(tmp_path, **{"images": scaled(PIXELS), "labels": LABELS} | content), "images.np", *words)


@pytest.mark.parametrize("name", ["lost.npz", "lost.npy"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    refused(str(tmp_path / name), f"there is no data file {tmp_path / name}")


def test_an_npy_file_needs_its_labels_beside_it(tmp_path: Path) -> None:
    refused(
        write_npy(tmp_path, images=scaled(PIXELS)), "labels.npy beside it", f"there is no {tmp_path / 'labels.npy'}"
    )


def test_the_labels_alone_are_no_images(tmp_path: Path) -> None:
    write_npy(tmp_path, labels=LABELS)
    refused(str(tmp_path / "labels.npy"), "read as the labels", "give the file of the images")


def test_damaged_and_dangerous_npy_files_are_refused(tmp_path: Path) -> None:
    path = write_npy(tmp_path, images=scaled(PIXELS), labels=LABELS)
    for content in (b"", b"no numpy", Path(path).read_bytes()[:5000], pickle.dumps(Trap(tmp_path / "sprung"))):
        Path(path).write_bytes(content)
        refused(path, "images.npy cannot be read as an .npy file: ")
    np.save(path, np.array([Trap(tmp_path / "sprung")]))
    refused(path, "cannot be read")
    np.savez(tmp_path / "other.npz", images=PIXELS)
    (tmp_path / "other.npz").rename(path)
    refused(path, "it holds several: call it .npz")
    assert not (tmp_path / "sprung").exists()


# --- CIFAR-10 -------------------------------------------------------------------------------------------------------


class Trap:
    """A pickle that, when it is opened, writes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


class Python2Pickler(pickle._Pickler):
    """Writes texts and bytes as Python 2 did, which the official files were made with."""

    dispatch: ClassVar[dict[type, Callable[..., None]]] = dict(pickle._Pickler.dispatch)

    def save_string(self, text: str | bytes) -> None:
        content = text if isinstance(text, bytes) else text.encode("latin1")
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)  # type: ignore[attr-defined]
        self.memoize(text)  # type: ignore[attr-defined]

    dispatch[str] = dispatch[bytes] = save_string


def python2_pickle(content: Any) -> bytes:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(content)
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")  # as numpy 1 called it


def batches(pixels: Bytes, labels: NDArray[Any], split: str) -> Iterator[tuple[str, Bytes, NDArray[Any]]]:
    if split == "test":
        yield "test_batch", pixels, labels
        return
    for number, rows in enumerate(np.array_split(np.arange(len(pixels)), 5), 1):
        yield f"data_batch_{number}", pixels[rows], labels[rows]


def write_binary(folder: Path, pixels: Bytes, labels: NDArray[Any], split: str = "test") -> None:
    for name, images, numbers in batches(pixels, labels, split):
        rows = [bytes([label]) + image.tobytes() for image, label in zip(images, numbers, strict=True)]
        (folder / f"{name}.bin").write_bytes(b"".join(rows))


def write_python(folder: Path, pixels: Bytes, labels: NDArray[Any], split: str = "test") -> None:
    for name, images, numbers in batches(pixels, labels, split):
        content = {
            "batch_label": "testing batch 1 of 1",
            "labels": numbers.tolist(),
            "data": images.reshape(len(images), -1),
            "filenames": [f"{number}.png" for number in numbers],
        }
        (folder / name).write_bytes(python2_pickle(content))


def write_npm(folder: Path, pixels: Bytes, labels: NDArray[Any], split: str = "test") -> None:
    for name, images, _ in batches(pixels, labels, split):
        PIL.Image.fromarray(images.transpose(0, 2, 3, 1).reshape(len(images), -1, 3)).save(folder / f"{name}.png")
    (folder / f"{split}_lables.json").write_text(json.dumps(labels.tolist()))


LAYOUTS = [write_binary, write_python, write_npm]
every_layout = pytest.mark.parametrize("write", LAYOUTS)


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


def test_a_folder_without_cifar10_is_told_where_to_get_it(tmp_path: Path) -> None:
    for text in (f"cifar10:{tmp_path}", f"cifar10:{tmp_path / 'lost'}:test"):
        refused(text, "test_batch.bin, or test_batch, or test_batch.png", "https://www.cs.toronto.edu/~kriz/cifar.html")
    write_binary(tmp_path, PIXELS, LABELS)
    refused(f"cifar10:{tmp_path}:train", "data_batch_5.bin", "no CIFAR-10 train split")
    refused(f"cifar10:{tmp_path}:val", "the splits of CIFAR-10 are train and test; got 'val'")


def test_missing_parts_of_cifar10_are_named(tmp_path: Path) -> None:
    write_python(tmp_path, PIXELS, LABELS, "train")
    (tmp_path / "data_batch_2").unlink()
    (tmp_path / "data_batch_4").unlink()
    refused(f"cifar10:{tmp_path}:train", "lacks a part", "data_batch_2, data_batch_4")


def test_damaged_cifar10_files_are_named(tmp_path: Path) -> None:
    write_binary(tmp_path, PIXELS, LABELS)
    path = tmp_path / "test_batch.bin"
    for content in (b"", path.read_bytes()[:-1]):
        path.write_bytes(content)
        refused(f"cifar10:{tmp_path}", "test_batch.bin must hold 3073 bytes for each image", f"it has {len(content)}")
    path.unlink()
    write_python(tmp_path, PIXELS, LABELS)
    for content in (b"", b"?", (tmp_path / "test_batch").read_bytes()[:9000], python2_pickle([1])):
        (tmp_path / "test_batch").write_bytes(content)
        refused(f"cifar10:{tmp_path}", "test_batch cannot be read as a pickled batch: ")
    (tmp_path / "test_batch").write_bytes(python2_pickle({"data": PIXELS, "fine_labels": [1]}))
    refused(f"cifar10:{tmp_path}", "with data and labels; it has ['data', 'fine_labels']")
    (tmp_path / "test_batch").write_bytes(python2_pickle({"data": PIXELS.astype(np.float32), "labels": [1]}))
    refused(f"cifar10:{tmp_path}", "an array of bytes was expected, not of f4")
    (tmp_path / "test_batch").write_bytes(python2_pickle({"data": PIXELS[:, :, :7], "labels": [1]}))
    refused(f"cifar10:{tmp_path}", f"the CIFAR-10 files in {tmp_path} cannot be read: ValueError")
    (tmp_path / "test_batch").unlink()
    write_npm(tmp_path, PIXELS, LABELS)
    (tmp_path / "test_lables.json").write_text("[1, 2]")
    refused(f"cifar10:{tmp_path}", "holds 10 images of CIFAR-10 and 2 labels")
    (tmp_path / "test_lables.json").write_text("[1, 2")
    refused(f"cifar10:{tmp_path}", "cannot be read: JSONDecodeError")


def test_a_label_that_cifar10_does_not_have_is_refused(tmp_path: Path) -> None:
    write_binary(tmp_path, PIXELS, LABELS + 1)
    refused(f"cifar10:{tmp_path}", "labels must be 0..9, one for each class; got 10 at image 5")


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


# --- pictures -------------------------------------------------------------------------------------------------------


def write_folder(root: Path, pixels: Bytes, labels: NDArray[Any], suffix: str = ".png") -> str:
    """Class folders 0 to 9, the pictures numbered."""
    for index, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        save(image, root / str(label) / f"{index}{suffix}")
    return f"folder:{root}"


def test_class_folders_are_numbered_by_name_and_read_in_order(tmp_path: Path) -> None:
    for index, name in enumerate(["dog/b.png", "dog/a.PNG", "Zebra/1.bmp", "cat/x.webp", "cat/10.png", "cat/2.png"]):
        save(PIXELS[index], tmp_path / name, **({"lossless": True} if name.endswith("webp") else {}))
    (tmp_path / "cat" / "notes.txt").write_text("not a picture")
    (tmp_path / "dog" / "._a.png").write_text("hidden")
    (tmp_path / ".cache").mkdir()
    data = open_data(f"folder:{tmp_path}")
    assert data.classes == ("Zebra", "cat", "dog")
    assert data.labels.tolist() == [0, 1, 1, 1, 2, 2]
    np.testing.assert_array_equal(all_of(data), scaled(PIXELS[[2, 4, 5, 3, 1, 0]]))


def test_an_empty_class_folder_keeps_its_number(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    save(PIXELS[0], tmp_path / "b" / "1.png")
    data = open_data(f"folder:{tmp_path}")
    assert (data.classes, data.labels.tolist()) == (("a", "b"), [1])


def test_jpegs_are_read_as_pillow_reads_them(tmp_path: Path) -> None:
    path = save(PIXELS[0], tmp_path / "a" / "1.JPEG")
    with PIL.Image.open(path) as picture:
        expected = np.asarray(picture).transpose(2, 0, 1)
    np.testing.assert_array_equal(open_data(f"folder:{tmp_path}").images[0], scaled(expected))


@settings(max_examples=20)
@given(arrays(np.uint8, st.tuples(st.integers(1, 5), st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9))))
def test_any_picture_of_a_lossless_kind_survives(pixels: Bytes) -> None:
    preprocess = Preprocess(channels=1 if pixels.shape[1] == 1 else 3)
    for suffix in (".png", ".bmp"):
        with TemporaryDirectory() as folder:
            for index, image in enumerate(pixels):
                path = Path(folder) / str(index) / f"picture{suffix}"
                path.parent.mkdir()
                PIL.Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(path)
            data = open_data(f"folder:{folder}", preprocess)
            np.testing.assert_array_equal(all_of(data), scaled(pixels))
            np.testing.assert_array_equal(data.labels, np.arange(len(pixels)))


def test_reading_an_image_opens_its_file_alone(tmp_path: Path, opened: list[str]) -> None:
    data = open_data(write_folder(tmp_path, PIXELS, np.zeros(10, int)))
    part = data.images[2:9:3]
    assert (len(part), len(opened)) == (3, 0)
    np.testing.assert_array_equal(part[1], scaled(PIXELS[5]))
    np.testing.assert_array_equal(data.images[-1], scaled(PIXELS[9]))
    numbered: Any = np.int64(3)
    np.testing.assert_array_equal(data.images[numbered], scaled(PIXELS[3]))
    assert opened == ["5.png", "9.png", "3.png"]
    with pytest.raises(IndexError):
        data.images[10]


def test_reading_twice_gives_the_same_image(tmp_path: Path) -> None:
    data = open_data(write_folder(tmp_path, PIXELS[:1], LABELS[:1], ".jpg"), Preprocess(20, 16, "bicubic"))
    np.testing.assert_array_equal(data.images[0], data.images[0])


def test_lazy_images_can_be_sent_to_another_process(tmp_path: Path) -> None:
    images = pickle.loads(pickle.dumps(open_data(write_folder(tmp_path, PIXELS, LABELS)).images))
    np.testing.assert_array_equal(images[0], scaled(PIXELS[1]))  # the first of class 1


def test_lazy_images_are_what_a_run_takes(tmp_path: Path) -> None:
    data = open_data(write_folder(tmp_path, PIXELS, LABELS))
    assert as_images(data.images) is data.images
    for index, image in enumerate(data.images):
        checks.check_image(image, index, Threat(0.1, eight_bit=True))


@pytest.mark.parametrize("name", ["with space", "ünïcødé 画像", "a:b", "a[0-9]*?"])
def test_paths_may_have_any_name(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    save(PIXELS[0], root / "classes" / f"{name} class" / f"{name} 7.png")
    picture = save(PIXELS[0], root / f"{name} 7.png")
    (root / "the list.txt").write_text(f"{picture.name} 7\n", encoding="utf-8")
    write_binary(root, PIXELS, LABELS)
    assert open_data(f"folder:{root}/classes").classes == (f"{name} class",)
    assert open_data(f"named:{root}").labels.tolist() == [7]
    assert open_data(f"imagenet:{root}:{root}/the list.txt").labels.tolist() == [7]
    assert len(open_data(f"cifar10:{root}").labels) == 10


def test_folders_without_classes_are_told_what_to_do(tmp_path: Path) -> None:
    refused(f"folder:{tmp_path / 'lost'}", f"there is no folder {tmp_path / 'lost'} that can be read")
    refused(f"folder:{tmp_path}", "must have a folder of pictures for each class; it has no folders")
    save(PIXELS[0], tmp_path / "1.png")
    refused(f"folder:{tmp_path / '1.png'}", "there is no folder")
    refused(f"folder:{tmp_path}", "1 pictures", f"named:{tmp_path}", f"imagenet:{tmp_path}:LIST")
    (tmp_path / "cat").mkdir()
    refused(f"folder:{tmp_path}", "the 1 class folders", "hold no pictures (.jpg, ")
    (tmp_path / "cat" / "tabby").mkdir()
    refused(f"folder:{tmp_path}", "it holds folders, such as tabby", f"use folder:{tmp_path / 'cat'}")


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".webp"])
def test_a_damaged_picture_is_named_when_it_is_read(tmp_path: Path, suffix: str) -> None:
    text = write_folder(tmp_path, PIXELS[:2], np.zeros(2, int), suffix)
    path = tmp_path / "0" / f"1{suffix}"
    whole = path.read_bytes()
    for content in (b"", b"not a picture", whole[: len(whole) // 2]):
        path.write_bytes(content)
        data = open_data(text)
        assert data.images[0].shape == (3, 32, 32)
        with pytest.raises(InputError, match=r"cannot be read as a picture: .*Get it anew") as caught:
            data.images[1]
        assert str(path) in str(caught.value)
    path.unlink()
    with pytest.raises(InputError, match="cannot be read as a picture: FileNotFoundError"):
        data.images[1]


def read_one(path: Path, preprocess: Preprocess | None = None) -> NDArray[np.float32]:
    return np.asarray(open_data(f"named:{path}", preprocess).images[0])


def test_grey_pictures_are_shown_in_the_channels_that_the_model_has(tmp_path: Path) -> None:
    path = save(PIXELS[0, :1], tmp_path / "0.png")
    np.testing.assert_array_equal(read_one(path), scaled(np.repeat(PIXELS[0, :1], 3, axis=0)))
    np.testing.assert_array_equal(read_one(path, Preprocess(channels=1)), scaled(PIXELS[0, :1]))
    colour = read_one(save(PIXELS[0], tmp_path / "1.png"), Preprocess(channels=1))
    luma = np.tensordot([0.299, 0.587, 0.114], PIXELS[0], 1)
    np.testing.assert_allclose(colour[0] * 255, luma, atol=0.51)


@pytest.mark.parametrize("mode", ["1", "P", "CMYK"])
def test_other_kinds_of_pixels_become_colours(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("0.jpg" if mode == "CMYK" else "0.png")
    PIL.Image.fromarray(PIXELS[0].transpose(1, 2, 0)).convert(mode).save(path)
    with PIL.Image.open(path) as picture:
        expected = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(read_one(path), scaled(expected))


def test_an_alpha_channel_is_dropped_if_it_hides_nothing_and_refused_otherwise(tmp_path: Path) -> None:
    opaque = np.concatenate([PIXELS[0], np.full((1, 32, 32), 255, np.uint8)])
    np.testing.assert_array_equal(read_one(save(opaque, tmp_path / "0.png")), scaled(PIXELS[0]))
    opaque[3, 4, 5] = 254
    palette = PIL.Image.fromarray(PIXELS[0, 0]).convert("P")
    palette.save(tmp_path / "2.png", transparency=int(np.asarray(palette)[0, 0]))
    for path in (save(opaque, tmp_path / "1.png"), tmp_path / "2.png"):
        with pytest.raises(InputError, match=rf"{path.name}: it has transparent pixels.*save it without alpha"):
            read_one(path)


def sixteen_bit_png(path: Path, channels: int) -> Path:
    """Pillow writes no 16-bit colours, so this is a PNG by hand."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 4, 4, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    rows = (b"\0" + bytes(range(4 * channels * 2))) * 4
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    return path


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_sixteen_bits_are_not_cut_to_eight_unasked(tmp_path: Path, channels: int) -> None:
    path = sixteen_bit_png(tmp_path / "0.png", channels)
    with PIL.Image.open(path) as picture:
        picture.load()  # it is a valid one
    with pytest.raises(InputError, match=r"0\.png: pictures must have 8 bits a channel; it has .*: convert it"):
        read_one(path)


def test_wide_pixels_of_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    PIL.Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "0.tif")
    (tmp_path / "1.ppm").write_bytes(b"P6 2 2 65535\n" + bytes(24))
    for path in (tmp_path / "0.tif", tmp_path / "1.ppm"):
        with pytest.raises(InputError, match="pictures must have 8 bits a channel"):
            read_one(path)


def test_a_picture_of_many_frames_is_refused(tmp_path: Path) -> None:
    frames = [PIL.Image.fromarray(image.transpose(1, 2, 0)) for image in PIXELS[:3]]
    frames[0].save(tmp_path / "0.webp", save_all=True, append_images=frames[1:])
    with pytest.raises(InputError, match="a picture must have one frame; it has 3"):
        read_one(tmp_path / "0.webp")


def test_a_cameras_second_picture_is_passed_over(tmp_path: Path) -> None:
    frames = [PIL.Image.fromarray(image.transpose(1, 2, 0)) for image in PIXELS[:2]]
    frames[0].save(tmp_path / "0.jpg", format="MPO", save_all=True, append_images=frames[1:])
    assert read_one(tmp_path / "0.jpg").shape == (3, 32, 32)


def test_an_exif_orientation_is_not_applied(tmp_path: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # to be shown turned by a quarter
    path = save(PIXELS[0, :, :8], tmp_path / "0.png", exif=exif)
    np.testing.assert_array_equal(read_one(path), scaled(PIXELS[0, :, :8]))


# --- preprocessing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "preprocess", "expected"),
    [
        ((30, 50), Preprocess(), (30, 50)),
        ((30, 50), Preprocess(resize=20), (20, 33)),  # 20 * 50 / 30 = 33.3
        ((50, 30), Preprocess(resize=20), (33, 20)),
        ((30, 50), Preprocess(resize=40), (40, 66)),
        ((30, 50), Preprocess(resize=(7, 9)), (7, 9)),
        ((30, 50), Preprocess(crop=(10, 20)), (10, 20)),
        ((30, 50), Preprocess(resize=20, crop=16), (16, 16)),
    ],
)
def test_sizes_after_preprocessing(
    tmp_path: Path, shape: tuple[int, int], preprocess: Preprocess, expected: tuple[int, int]
) -> None:
    path = save(RNG.integers(0, 256, (3, *shape), np.uint8), tmp_path / "0.png")
    assert read_one(path, preprocess).shape == (3, *expected)


def test_a_crop_is_taken_from_the_centre(tmp_path: Path) -> None:
    path = save(PIXELS[0, :, :31], tmp_path / "0.png")
    # 31 - 20 leaves 11 rows, 5.5 above, rounded to the even 6; 32 - 20 leaves 12 columns.
    np.testing.assert_array_equal(read_one(path, Preprocess(crop=20)), scaled(PIXELS[0, :, 6:26, 6:26]))


def test_a_crop_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = save(PIXELS[0], tmp_path / "0.png")
    with pytest.raises(InputError, match=r"0\.png: the crop of 33 x 8 does not fit into 32 x 32: set resize"):
        read_one(path, Preprocess(crop=(33, 8)))


def test_halving_averages_and_leaves_eight_bits(tmp_path: Path) -> None:
    path = save(np.repeat(np.repeat(PIXELS[0], 8, axis=1), 8, axis=2), tmp_path / "0.png")
    smaller = {kind: read_one(path, Preprocess(resize=128, interpolation=kind)) for kind in ("bilinear", "bicubic")}
    assert not np.array_equal(smaller["bilinear"], smaller["bicubic"])
    for image in smaller.values():
        np.testing.assert_array_equal(image[:, 2::4, 2::4].shape, (3, 32, 32))
        np.testing.assert_allclose(image.mean(), scaled(PIXELS[0]).mean(), atol=0.01)
        np.testing.assert_array_equal(np.round(image * 255) / np.float32(255), image)


# --- ImageNet and names ---------------------------------------------------------------------------------------------


def imagenet(folder: Path, text: str, count: int = 3) -> str:
    for index in range(count):
        save(PIXELS[index], folder / "val" / f"ILSVRC2012_val_{index + 1:08}.png")
    (folder / "val.txt").write_text(text)
    return f"imagenet:{folder / 'val'}"


def test_the_list_sets_order_labels_and_choice(tmp_path: Path) -> None:
    text = imagenet(tmp_path, "ILSVRC2012_val_00000003.png 65\r\n\r\nILSVRC2012_val_00000001.png\t999\r\n")
    (tmp_path / "val" / "list.txt").write_text("\ufeffILSVRC2012_val_00000002.png 0", encoding="utf-8")
    data = open_data(text)
    assert data.labels.tolist() == [65, 999]
    np.testing.assert_array_equal(all_of(data), scaled(PIXELS[[2, 0]]))
    data = open_data(f"{text}:{tmp_path / 'val' / 'list.txt'}")
    assert data.labels.tolist() == [0]


def test_the_list_may_stand_among_the_pictures(tmp_path: Path) -> None:
    text = imagenet(tmp_path, "ILSVRC2012_val_00000003.png 65")
    (tmp_path / "val" / "val.txt").write_text("ILSVRC2012_val_00000002.png 1")
    assert open_data(text).labels.tolist() == [1]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("490\n361\n171\n", ("line 1 of", "development kit", "another order", "folder:")),
        ("ILSVRC2012_val_00000001.png 1000", ("line 1 of", "a label from 0 to 999", "1000'")),
        ("ILSVRC2012_val_00000001.png -1", ("a label from 0 to 999",)),
        ("\nILSVRC2012_val_00000001.png cat", ("line 2 of", "a label from 0 to 999")),
        ("ILSVRC2012_val_00000001.png", ("a picture's name and a label",)),
        ("ILSVRC2012_val_00000001.png 1\n" * 2, ("line 2 of", "a second time")),
        ("lost.png 1", ("there is no picture", "lost.png")),
        (" \n", ("names no pictures",)),
    ],
)
def test_a_list_that_cannot_be_used_is_told_why(tmp_path: Path, lines: str, words: tuple[str, ...]) -> None:
    refused(imagenet(tmp_path, lines), *words)


def test_imagenet_without_a_list_is_told_what_to_do(tmp_path: Path) -> None:
    text = imagenet(tmp_path, "")
    (tmp_path / "val.txt").unlink()
    refused(text, "are not known", f"{text}:LIST", "val.txt")
    refused(f"{text}:lost.txt", "the list lost.txt cannot be read: FileNotFoundError")
    (tmp_path / "val" / "n01440764").mkdir()
    refused(text, f"If its 1 folders are the classes, use folder:{tmp_path / 'val'}")
    refused(f"imagenet:{tmp_path / 'lost'}", "there is no folder")
    (tmp_path / "val.txt").write_bytes(b"\xff\xfe")
    refused(text, "cannot be read: UnicodeDecodeError")


def test_labels_are_read_from_the_ends_of_names(tmp_path: Path) -> None:
    for index, name in enumerate(["imagenet_01_559.png", "imagenet_00_243.jpg", "cifar10_00_3.png", "7.bmp"]):
        save(PIXELS[index], tmp_path / name)
    assert open_data(f"named:{tmp_path}").labels.tolist() == [7, 3, 243, 559]
    data = open_data(f"named:{tmp_path}/imagenet_*.png")
    np.testing.assert_array_equal(all_of(data), scaled(PIXELS[:1]))
    refused(f"named:{tmp_path}/mnist_*", "a pattern that fits some")
    refused(f"named:{tmp_path}/lost/*", "there is no folder")
    path = save(PIXELS[0], tmp_path / "cat.png")
    refused(f"named:{tmp_path}", f"the name of {path} must end in its label")
    path.rename(tmp_path / "cat_20240131123456789012.png")
    refused(f"named:{tmp_path}", "must end in its label")


# --- fingerprints ---------------------------------------------------------------------------------------------------


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


# --- Hugging Face ---------------------------------------------------------------------------------------------------


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"this needs datasets.*pip install 'parsimon\[huggingface\]'"):
        open_data("hf:cifar10")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return datasets


def table(library: Any, **more: Any) -> Any:
    """A dataset of ten pictures with class labels, and more columns."""
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
    refused(f"hf:{tmp_path / 'saved'}:train", "is saved as one split", f"use hf:{tmp_path / 'saved'} alone")
    refused(f"hf:{tmp_path / 'saved'}::text", "labels must be whole numbers; the column text")


def test_a_split_is_named_or_called_test_or_the_only_one(tmp_path: Path, library: Any) -> None:
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


def test_columns_that_leave_a_choice_are_listed(tmp_path: Path, library: Any) -> None:
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


def test_datasets_that_cannot_be_used_are_refused(tmp_path: Path, library: Any) -> None:
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


# --- choosing -------------------------------------------------------------------------------------------------------

CORRECT = arrays(np.bool_, st.integers(0, 40))


@given(CORRECT, st.none() | st.integers(1, 50), st.none() | st.integers(0, 2**32))
def test_a_choice_is_of_correct_images_in_order(
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


def test_models_that_differ_in_one_image_are_attacked_on_nearly_the_same() -> None:
    correct = np.ones(100, bool)
    before = choose(correct, 30, 0)
    correct[before[0]] = False
    assert set(before[1:]) < set(choose(correct, 30, 0))


def test_every_image_is_as_likely_to_be_chosen() -> None:
    counts = np.zeros(10, int)
    for seed in range(3000):
        counts[choose(np.arange(10) != 4, 3, seed)] += 1
    assert counts[4] == 0
    np.testing.assert_allclose(np.delete(counts, 4), 1000, atol=150)  # a deviation of six standard errors


def test_a_choice_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1 image must be attacked, or None for all of them; got 0"):
        choose(np.ones(3, bool), 0, None)
    with pytest.raises(InputError, match="seed of a sample must be 0 or more"):
        choose(np.ones(3, bool), 1, -1)

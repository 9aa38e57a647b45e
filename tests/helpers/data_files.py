"""Write data files in every form for tests."""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from parsimon import InputError
from parsimon.data import Data, Preprocess, open_data

Bytes = NDArray[np.uint8]

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (10, 3, 32, 32), np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])


def all_of(data: Data) -> NDArray[np.float32]:
    return np.stack([np.asarray(data.images[index]) for index in range(len(data.images))])


def scaled(pixels: Bytes) -> NDArray[np.float32]:
    return (pixels / 255).astype(np.float32)


def refused(text: str, *words: str, preprocess: Preprocess | None = None) -> None:
    """Check that the data are refused in one sentence with the words."""
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


def write_npz(folder: Path, **content: Any) -> str:
    np.savez(folder / "images.npz", **content)
    return str(folder / "images.npz")


def write_npy(folder: Path, **content: Any) -> str:
    for name, array in content.items():
        np.save(folder / f"{name}.npy", array)
    return str(folder / "images.npy")


Writer = Callable[..., str]
both_kinds = pytest.mark.parametrize("write", [write_npz, write_npy])


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


def write_folder(root: Path, pixels: Bytes, labels: NDArray[Any], suffix: str = ".png") -> str:
    """Class folders 0 to 9, the pictures numbered."""
    for index, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        save(image, root / str(label) / f"{index}{suffix}")
    return f"folder:{root}"


def imagenet(folder: Path, text: str, count: int = 3) -> str:
    for index in range(count):
        save(PIXELS[index], folder / "val" / f"ILSVRC2012_val_{index + 1:08}.png")
    (folder / "val.txt").write_text(text)
    return f"imagenet:{folder / 'val'}"


class Trap:
    """A pickle that writes a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)

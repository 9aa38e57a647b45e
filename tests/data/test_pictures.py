"""Tests of folders of pictures: lazy reading, resizing, cropping, refusal."""

from __future__ import annotations

import pickle
import struct
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from data_files import (
    LABELS,
    PIXELS,
    RNG,
    Bytes,
    all_of,
    imagenet,
    refused,
    save,
    scaled,
    write_binary,
    write_folder,
)
from parsimon import InputError
from parsimon.core.threat import Threat
from parsimon.data import Preprocess, open_data
from parsimon.data.validate import as_images, check_image


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of the picture files that Pillow opens."""
    names: list[str] = []
    real = PIL.Image.open

    def spy(file: Any, *rest: Any, **options: Any) -> Any:
        names.append(Path(file).name)
        return real(file, *rest, **options)

    monkeypatch.setattr(PIL.Image, "open", spy)
    return names


# --- pictures ---------------------------------------------------------------------------------------------------------


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


def test_a_run_accepts_lazy_images(tmp_path: Path) -> None:
    data = open_data(write_folder(tmp_path, PIXELS, LABELS))
    images = as_images(data.images)
    assert len(images) == len(data.images)
    for index, image in enumerate(images):
        np.testing.assert_array_equal(image, data.images[index])
        check_image(image, index, Threat(0.1, eight_bit=True))


@pytest.mark.parametrize("name", ["with space", "ünïcødé 画像", "a:b", "a[0-9]*?"])
def test_paths_may_contain_any_characters(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    save(PIXELS[0], root / "classes" / f"{name} class" / f"{name} 7.png")
    picture = save(PIXELS[0], root / f"{name} 7.png")
    (root / "the list.txt").write_text(f"{picture.name} 7\n", encoding="utf-8")
    write_binary(root, PIXELS, LABELS)
    assert open_data(f"folder:{root}/classes").classes == (f"{name} class",)
    assert open_data(f"named:{root}").labels.tolist() == [7]
    assert open_data(f"imagenet:{root}:{root}/the list.txt").labels.tolist() == [7]
    assert len(open_data(f"cifar10:{root}").labels) == 10


def test_folders_without_classes_raise_an_error_with_a_remedy(tmp_path: Path) -> None:
    refused(f"folder:{tmp_path / 'lost'}", f"the folder {tmp_path / 'lost'} cannot be read")
    refused(f"folder:{tmp_path}", "must have one folder of pictures per class; it has no folders")
    save(PIXELS[0], tmp_path / "1.png")
    refused(f"folder:{tmp_path / '1.png'}", "cannot be read")
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
        with pytest.raises(InputError, match=r"cannot be read as a picture: .*Download it again") as caught:
            data.images[1]
        assert str(path) in str(caught.value)
    path.unlink()
    with pytest.raises(InputError, match="cannot be read as a picture: FileNotFoundError"):
        data.images[1]


def read_one(path: Path, preprocess: Preprocess | None = None) -> NDArray[np.float32]:
    return np.asarray(open_data(f"named:{path}", preprocess).images[0])


def test_grey_and_colour_are_converted_to_the_requested_channels(tmp_path: Path) -> None:
    path = save(PIXELS[0, :1], tmp_path / "0.png")
    np.testing.assert_array_equal(read_one(path), scaled(np.repeat(PIXELS[0, :1], 3, axis=0)))
    np.testing.assert_array_equal(read_one(path, Preprocess(channels=1)), scaled(PIXELS[0, :1]))
    colour = read_one(save(PIXELS[0], tmp_path / "1.png"), Preprocess(channels=1))
    luma = np.tensordot([0.299, 0.587, 0.114], PIXELS[0], 1)
    np.testing.assert_allclose(colour[0] * 255, luma, atol=0.51)


@pytest.mark.parametrize("mode", ["1", "P", "CMYK"])
def test_other_pixel_modes_are_converted_to_colour(tmp_path: Path, mode: str) -> None:
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
def test_sixteen_bit_pictures_are_refused(tmp_path: Path, channels: int) -> None:
    path = sixteen_bit_png(tmp_path / "0.png", channels)
    with PIL.Image.open(path) as picture:
        picture.load()  # it is a valid one
    with pytest.raises(InputError, match=r"0\.png: pictures must have 8 bits per channel; got .*: convert it"):
        read_one(path)


def test_wide_pixels_of_other_file_formats_are_refused(tmp_path: Path) -> None:
    PIL.Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "0.tif")
    (tmp_path / "1.ppm").write_bytes(b"P6 2 2 65535\n" + bytes(24))
    for path in (tmp_path / "0.tif", tmp_path / "1.ppm"):
        with pytest.raises(InputError, match="pictures must have 8 bits per channel"):
            read_one(path)


def test_a_picture_of_many_frames_is_refused(tmp_path: Path) -> None:
    frames = [PIL.Image.fromarray(image.transpose(1, 2, 0)) for image in PIXELS[:3]]
    frames[0].save(tmp_path / "0.webp", save_all=True, append_images=frames[1:])
    with pytest.raises(InputError, match="a picture must have one frame; it has 3"):
        read_one(tmp_path / "0.webp")


def test_the_second_picture_of_a_camera_file_is_ignored(tmp_path: Path) -> None:
    frames = [PIL.Image.fromarray(image.transpose(1, 2, 0)) for image in PIXELS[:2]]
    frames[0].save(tmp_path / "0.jpg", format="MPO", save_all=True, append_images=frames[1:])
    assert read_one(tmp_path / "0.jpg").shape == (3, 32, 32)


def test_an_exif_orientation_is_not_applied(tmp_path: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # to be shown turned by a quarter
    path = save(PIXELS[0, :, :8], tmp_path / "0.png", exif=exif)
    np.testing.assert_array_equal(read_one(path), scaled(PIXELS[0, :, :8]))


# --- preprocessing ----------------------------------------------------------------------------------------------------


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
def test_preprocessing_gives_the_expected_size(
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


# --- ImageNet and names -----------------------------------------------------------------------------------------------


def test_the_list_sets_order_labels_and_choice(tmp_path: Path) -> None:
    text = imagenet(tmp_path, "ILSVRC2012_val_00000003.png 65\r\n\r\nILSVRC2012_val_00000001.png\t999\r\n")
    (tmp_path / "val" / "list.txt").write_text("\ufeffILSVRC2012_val_00000002.png 0", encoding="utf-8")
    data = open_data(text)
    assert data.labels.tolist() == [65, 999]
    np.testing.assert_array_equal(all_of(data), scaled(PIXELS[[2, 0]]))
    data = open_data(f"{text}:{tmp_path / 'val' / 'list.txt'}")
    assert data.labels.tolist() == [0]


def test_the_list_may_be_in_the_folder_of_pictures(tmp_path: Path) -> None:
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
        ("ILSVRC2012_val_00000001.png 1\n" * 2, ("line 2 of", "repeats ILSVRC2012_val_00000001.png")),
        ("lost.png 1", ("there is no picture", "lost.png")),
        (" \n", ("names no pictures",)),
    ],
)
def test_an_invalid_list_raises_an_error_that_says_why(tmp_path: Path, lines: str, words: tuple[str, ...]) -> None:
    refused(imagenet(tmp_path, lines), *words)


def test_imagenet_without_a_list_raises_an_error_with_a_remedy(tmp_path: Path) -> None:
    text = imagenet(tmp_path, "")
    (tmp_path / "val.txt").unlink()
    refused(text, "are unknown", f"{text}:LIST", "val.txt")
    refused(f"{text}:lost.txt", "there is no list lost.txt")
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
    refused(f"named:{tmp_path}/mnist_*", "a pattern that matches some")
    refused(f"named:{tmp_path}/lost/*", "cannot be read")
    path = save(PIXELS[0], tmp_path / "cat.png")
    refused(f"named:{tmp_path}", f"the name of {path} must end in its label")
    path.rename(tmp_path / "cat_20240131123456789012.png")
    refused(f"named:{tmp_path}", "must end in its label")

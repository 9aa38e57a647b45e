"""JPEG compression against the same file written and read by Pillow from the disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from parsimon.defences import Jpeg
from parsimon.errors import InputError


def smooth_images(count: int, channels: int, rows: int = 16, columns: int = 24) -> NDArray[np.float32]:
    """Images with gradients and a little texture, which JPEG keeps roughly."""
    rng = np.random.default_rng(count)
    vertical, horizontal = np.linspace(0, 1, rows)[:, None], np.linspace(0, 1, columns)
    base = rng.random((count, channels, 1, 1)) * vertical + rng.random((count, channels, 1, 1)) * (1 - horizontal)
    return np.clip(base + rng.normal(0, 0.02, (count, channels, rows, columns)), 0, 1).astype(np.float32)


@pytest.mark.parametrize("quality", [10, 75, 100])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_those_of_a_file_on_disk(tmp_path: Path, quality: int, channels: int) -> None:
    images = smooth_images(3, channels)
    shown = Jpeg(quality).transform(images, [])
    assert shown.shape == images.shape
    assert shown.dtype == np.float32
    for number, image in enumerate(images):
        levels = [[[round(float(value) * 255) for value in row] for row in channel] for channel in image]
        planes = [Image.fromarray(np.array(channel, np.uint8)) for channel in levels]
        picture = planes[0] if channels == 1 else Image.merge("RGB", planes)
        picture.save(tmp_path / f"{number}.jpg", quality=quality)
        with Image.open(tmp_path / f"{number}.jpg") as read:
            for plane, result in zip(read.split(), shown[number], strict=True):
                np.testing.assert_array_equal(np.rint(result * 255), np.asarray(plane))


def test_lower_quality_changes_an_image_more() -> None:
    images = smooth_images(4, 3)
    errors = [float(np.abs(Jpeg(quality).transform(images, []) - images).mean()) for quality in (100, 75, 30, 5)]
    assert errors == sorted(errors)
    assert 0 < errors[0] < 0.02 < errors[-1]


def test_pixels_outside_the_range_are_clipped() -> None:
    images = np.stack([np.full((3, 8, 8), -0.5), np.full((3, 8, 8), 1.5)]).astype(np.float32)
    np.testing.assert_array_equal(Jpeg().transform(images, []), np.clip(images, 0, 1))


def test_no_images_give_no_images() -> None:
    assert Jpeg().transform(np.zeros((0, 3, 8, 8), np.float32), []).shape == (0, 3, 8, 8)


@pytest.mark.parametrize("channels", [2, 4])
def test_other_channel_counts_are_refused(channels: int) -> None:
    with pytest.raises(InputError, match=f"JPEG takes images of 1 or 3 channels; these have {channels}"):
        Jpeg().transform(np.zeros((1, channels, 8, 8), np.float32), [])


@pytest.mark.parametrize("quality", [0, 101, 75.0, True])
def test_an_invalid_quality_is_refused(quality: int) -> None:
    with pytest.raises(InputError, match="quality must be a whole number"):
        Jpeg(quality)

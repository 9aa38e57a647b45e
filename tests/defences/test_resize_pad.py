"""Random resizing and padding against a slow twin."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from parsimon.defences import ResizePad
from parsimon.errors import InputError


def slow_resize_pad(image: NDArray[np.float32], rows: int, columns: int, top: int, left: int) -> NDArray[np.float32]:
    """Every pixel of the result by itself."""
    result = np.zeros_like(image)
    channels, height, width = image.shape
    for channel in range(channels):
        for row in range(rows):
            for column in range(columns):
                source = image[channel, int(row * height / rows), int(column * width / columns)]
                result[channel, top + row, left + column] = source
    return result


def positive_images(count: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return (0.1 + 0.9 * np.random.default_rng(count).random((count, *shape))).astype(np.float32)


def placed(shown: NDArray[np.float32]) -> tuple[int, int, int, int]:
    """The box of a resized image without zeros: its rows, columns, top and left."""
    rows, columns = np.flatnonzero(shown[0].any(axis=1)), np.flatnonzero(shown[0].any(axis=0))
    return len(rows), len(columns), int(rows[0]), int(columns[0])


@pytest.mark.parametrize("shape", [(3, 12, 12), (1, 10, 15), (2, 15, 10)])
@pytest.mark.parametrize("smallest", [0.5, 299 / 331])
def test_every_pixel_is_the_nearest_one(shape: tuple[int, ...], smallest: float) -> None:
    images = positive_images(20, shape)
    shown = ResizePad(smallest).transform(images, [np.random.default_rng(seed) for seed in range(20)])
    for image, result in zip(images, shown, strict=True):
        np.testing.assert_array_equal(result, slow_resize_pad(image, *placed(result)))


def test_torch_resizes_alike() -> None:
    images = positive_images(30, (3, 32, 32))
    shown = ResizePad(0.5).transform(images, [np.random.default_rng(seed) for seed in range(30)])
    for image, result in zip(images, shown, strict=True):
        rows, columns, top, left = placed(result)
        resized = functional.interpolate(torch.from_numpy(image)[None], (rows, columns), mode="nearest")[0]
        np.testing.assert_array_equal(result[:, top : top + rows, left : left + columns], resized.numpy())


def test_sides_and_places_are_uniform() -> None:
    count = 6000
    images = np.ones((count, 1, 32, 32), np.float32)
    shown = ResizePad().transform(images, [np.random.default_rng([7, seed]) for seed in range(count)])
    boxes = [placed(result) for result in shown]
    sides = Counter(rows for rows, *_ in boxes)
    assert sorted(sides) == [29, 30, 31]  # 299 of 331 is 28.9 of 32; the paper never takes the padded size itself
    assert all(rows == columns for rows, columns, *_ in boxes)
    for side in sides:
        places = Counter((top, left) for rows, _, top, left in boxes if rows == side)
        assert len(places) == (33 - side) ** 2
        assert max(places.values()) < 2 * min(places.values())
    assert max(sides.values()) < 1.15 * min(sides.values())


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 2), (1, 1, 5), (1, 5, 1)])
def test_tiny_images_pass(shape: tuple[int, ...]) -> None:
    images = positive_images(4, shape)
    shown = ResizePad().transform(images, [np.random.default_rng(seed) for seed in range(4)])
    assert shown.shape == images.shape
    assert all(result.any() for result in shown)


@pytest.mark.parametrize("smallest", [0, 1.1, "small"])
def test_an_invalid_fraction_is_refused(smallest: float) -> None:
    with pytest.raises(InputError, match="smallest must be a number"):
        ResizePad(smallest)

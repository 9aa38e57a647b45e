"""Fewer bits per pixel against the nearest of all levels."""

from __future__ import annotations

import numpy as np
import pytest

from parsimon.defences import BitDepth
from parsimon.errors import InputError


@pytest.mark.parametrize("bits", range(1, 9))
def test_every_pixel_becomes_the_nearest_level(bits: int) -> None:
    images = np.random.default_rng(bits).random((2, 3, 8, 8), dtype=np.float32)
    levels = np.linspace(0, 1, 2**bits)
    nearest = levels[np.abs(images[..., None].astype(np.float64) - levels).argmin(axis=-1)]
    shown = BitDepth(bits).transform(images, [])
    np.testing.assert_allclose(shown, nearest, atol=1e-6)
    assert shown.dtype == np.float32


def test_8_bits_keep_8_bit_images_and_1_bit_keeps_two_levels() -> None:
    images = (np.arange(256, dtype=np.float32) / np.float32(255)).reshape(1, 1, 16, 16)
    np.testing.assert_array_equal(BitDepth(8).transform(images, []), images)
    assert set(BitDepth(1).transform(images, []).ravel().tolist()) == {0.0, 1.0}


def test_small_changes_within_a_level_disappear() -> None:
    centres = np.rint(np.random.default_rng(0).random((1, 3, 8, 8)) * 7) / 7
    changed = centres + np.random.default_rng(1).uniform(-0.07, 0.07, centres.shape)  # less than half a step
    shown = BitDepth(3).transform(changed.astype(np.float32), [])
    np.testing.assert_allclose(shown, centres, atol=1e-6)


@pytest.mark.parametrize("bits", [0, 9, 2.0, "4"])
def test_an_invalid_number_of_bits_is_refused(bits: int) -> None:
    with pytest.raises(InputError, match="bits must be a whole number"):
        BitDepth(bits)

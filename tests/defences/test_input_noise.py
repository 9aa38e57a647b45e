"""Gaussian noise on the images: its distribution, its bounds and its keys."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats

from parsimon.defences import InputNoise
from parsimon.errors import InputError

GREY = np.full((40, 3, 16, 16), 0.5, np.float32)


def generators(count: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([seed, number]) for number in range(count)]


@pytest.mark.parametrize("sigma", [0.02, 0.05])
def test_noise_is_gaussian_with_the_right_mean_and_variance(sigma: float) -> None:
    noise = (InputNoise(sigma).transform(GREY, generators(40)) - 0.5).ravel() / sigma
    assert stats.kstest(noise, "norm").pvalue > 0.01
    assert abs(noise.mean()) < 5 / np.sqrt(noise.size)
    assert abs(noise.var() - 1) < 5 * np.sqrt(2 / noise.size)


def test_noise_of_different_pixels_channels_and_images_is_independent() -> None:
    noise = InputNoise(0.02).transform(GREY, generators(40)) - 0.5
    for left, right in [(noise[1:], noise[:-1]), (noise[:, 1:], noise[:, :-1]), (noise[..., 1:], noise[..., :-1])]:
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 5 / np.sqrt(left.size)


def test_noise_is_that_of_the_generator_added_pixel_by_pixel() -> None:
    images = np.random.default_rng(3).random((2, 1, 3, 4), dtype=np.float32)
    shown = InputNoise(0.3).transform(images, generators(2))
    for number, generator in enumerate(generators(2)):
        for index in np.ndindex(1, 3, 4):
            drawn = float(generator.standard_normal(dtype=np.float32))
            expected = min(max(float(images[number][index]) + 0.3 * drawn, 0.0), 1.0)
            assert shown[number][index] == pytest.approx(expected, abs=1e-6)


def test_pixels_stay_between_0_and_1() -> None:
    images = np.stack([np.zeros((3, 16, 16)), np.ones((3, 16, 16))]).astype(np.float32)
    shown = InputNoise(0.1).transform(images, generators(2))
    assert shown.dtype == np.float32
    assert (shown.min(), shown.max()) == (0, 1)
    assert 0.4 < (shown[0] == 0).mean() < 0.6  # half of the noise is negative


@pytest.mark.parametrize("sigma", [0, -0.1, 1.5, float("nan"), "0.1", True])
def test_an_invalid_sigma_is_refused(sigma: float) -> None:
    with pytest.raises(InputError, match=re.escape("sigma must be a number from 1e-09 to 1; got")):
        InputNoise(sigma)

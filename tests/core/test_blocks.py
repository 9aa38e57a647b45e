"""Grids of blocks, against definitions written out in full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsimon.core.grid import Grid, first_grid


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    block = draw(st.sampled_from([1, 2, 4]))
    noise = draw(st.integers(1, 4)) * block, draw(st.integers(1, 4)) * block
    stretch = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    channels = draw(st.sampled_from([1, 3]))
    return Grid((channels, noise[0] + stretch[0], noise[1] + stretch[1]), noise, block)


def members_of(grid: Grid, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(grid.count) < 0.5


@given(grids(), st.integers(0, 99))
def test_a_pixel_follows_the_block_that_is_stretched_over_it(grid: Grid, seed: int) -> None:
    members = members_of(grid, seed)
    channels, height, width = grid.shape
    columns_of_blocks = grid.noise[1] // grid.block
    drawn = grid.stretch(members)
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                block_row = row * grid.noise[0] // height // grid.block
                block_column = column * grid.noise[1] // width // grid.block
                number = (block_row * columns_of_blocks + block_column) * channels + channel
                assert drawn[channel, row, column] == members[number]


@given(grids())
def test_the_pixels_of_blocks_are_those_that_change_when_they_flip(grid: Grid) -> None:
    pixels, lengths = grid.pixels_of(np.arange(grid.count))
    for block, covered in zip(range(grid.count), np.split(pixels, np.cumsum(lengths)[:-1]), strict=True):
        alone = np.zeros(grid.count, np.bool_)
        alone[block] = True
        assert np.array_equal(np.sort(covered), np.flatnonzero(grid.stretch(alone)))
        rows, columns, channels = grid.window(block)
        window = np.zeros(grid.shape, np.bool_)
        window[channels, rows, columns] = True
        assert np.array_equal(window, grid.stretch(alone))


@given(grids(), st.integers(0, 99))
def test_splitting_keeps_the_picture(grid: Grid, seed: int) -> None:
    if grid.block == 1:
        return
    members = members_of(grid, seed)
    finer = grid.halved()
    assert finer.count == 4 * grid.count
    assert np.array_equal(finer.stretch(grid.split(members)), grid.stretch(members))


@pytest.mark.parametrize(
    ("shape", "noise", "block"),
    [
        ((3, 32, 32), (32, 32), 4),  # the paper's CIFAR-10
        ((3, 299, 299), (256, 256), 32),  # the paper's ImageNet
        ((3, 224, 224), (224, 224), 32),
        ((1, 28, 28), (28, 28), 4),
        ((3, 33, 47), (32, 32), 4),
        ((3, 5, 7), (5, 7), 1),
        ((1, 1, 1), (1, 1), 1),
        ((3, 480, 640), (256, 640), 64),
    ],
)
def test_the_first_grid_has_about_eight_blocks_along_the_shorter_side(
    shape: tuple[int, int, int], noise: tuple[int, int], block: int
) -> None:
    assert first_grid(shape) == Grid(shape, noise, block)


@given(st.integers(1, 80), st.integers(1, 80))
def test_the_first_grid_fits_any_image(height: int, width: int) -> None:
    grid = first_grid((3, height, width))
    assert grid.noise[0] <= height
    assert grid.noise[1] <= width
    while grid.block > 1:
        assert grid.noise[0] % grid.block == grid.noise[1] % grid.block == 0
        grid = grid.halved()
    assert (grid.pixels_of(np.arange(grid.count))[1] > 0).all(), "a block without pixels would waste queries"

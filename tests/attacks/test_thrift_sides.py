"""Which pixels Thrift takes for lighter and darker, against a loop over all of them, and what it does with either."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driving import (
    Pixels,
    Shape,
    asked_images,
    context_of,
    converse,
    linear_loss,
    random_image,
    smooth_loss,
)
from parsimon import Thrift
from parsimon.attacks.blocks import lighter_pixels
from thrift_blocks import EPS, EVERYTHING, check_first_pass, flips_of, levels, signs


@settings(max_examples=30)
@given(
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9)),
    values=st.sampled_from([2, 3, 256]),
    seed=st.integers(0, 99),
)
def test_a_pixel_is_lighter_if_it_is_above_the_mean_of_those_around_it(shape: Shape, values: int, seed: int) -> None:
    numbers = np.random.default_rng(seed).integers(values, size=shape)  # of few values, many pixels are the mean
    light = lighter_pixels((numbers / 255).astype(np.float32))
    channels, height, width = shape
    for channel, row, column in itertools.product(range(channels), range(height), range(width)):
        down, along = height // 4, width // 4
        around = numbers[channel, max(0, row - down) : row + down + 1, max(0, column - along) : column + along + 1]
        assert light[row, column, channel] == (numbers[channel, row, column] * around.size > around.sum())


def pieces(image: Pixels) -> list[set[frozenset[int]]]:
    """What a query flips, level by level: the lighter or darker pixels of all channels, then those of a block."""
    light = np.moveaxis(lighter_pixels(image), 2, 0)
    sides = [frozenset(np.flatnonzero(side).tolist()) for side in (light, ~light)]
    cut = [{block & side for block in blocks for side in sides} - {frozenset()} for blocks in levels(image.shape)]
    return [set(sides), *cut]


@pytest.mark.parametrize("deduce", [True, False])
@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 5, 3), (4, 6, 6)])
def test_of_a_coloured_picture_each_query_flips_lighter_or_darker_pixels_of_a_block(shape: Shape, deduce: bool) -> None:
    image = random_image(shape, margin=0.2)
    image[:, : shape[1] // 2] = 0.5  # in which no pixel is lighter than another, but at the edge
    less_contrast = ~np.moveaxis(lighter_pixels(image), 2, 0)
    smooth = smooth_loss(shape)

    def loss(shown: Pixels) -> float:
        """Return less where either side is flipped as a whole, so that contrast matters."""
        return smooth(shown) - (999 if (signs(shown, image) == signs(shown, image)[0, 0, 0]).all() else 0)

    attack = Thrift(texture=False, deduce=deduce, combine=False)
    exchanges = converse(attack, context_of(image, EPS), loss, asks=EVERYTHING)
    np.testing.assert_array_equal(signs(exchanges[0].images[0], image), less_contrast)
    flips = flips_of(exchanges, image)
    assert set(flips) <= set().union(*pieces(image))
    if not deduce:
        check_first_pass(flips, pieces(image))


@pytest.mark.parametrize(
    ("losses", "dropped"),
    [
        ((1.0, 0.0, 0.0), False),
        ((1.0, 2.0, 3.0), False),  # both sides are flipped: more contrast
        ((1.0, 2.0, 2.0), True),  # one of them is: one sign everywhere
        ((1.0, 1.0, 2.0), True),
    ],
)
def test_contrast_is_dropped_if_the_sides_leave_one_sign_everywhere(losses: tuple[float, ...], dropped: bool) -> None:
    image = random_image((3, 4, 4), margin=0.2)
    replies = iter(losses)
    attack = Thrift(texture=False, deduce=False, combine=False)
    exchanges = converse(attack, context_of(image, EPS), lambda _: next(replies, -99.0), asks=60)
    sides, *by_side = pieces(image)
    first, second, *flips = flips_of(exchanges, image)
    assert {first, second} == sides
    expected = levels((3, 4, 4)) if dropped else by_side
    assert len(flips) == 57
    check_first_pass(flips, expected[: 2 if dropped else 1])
    assert set(flips) <= set().union(*expected)
    assert any(flip not in set().union(*by_side) for flip in flips) == dropped


@pytest.mark.parametrize("image", [np.full((3, 4, 4), 0.5, np.float32), random_image((3, 4, 4), margin=0.2)])
@pytest.mark.parametrize("contrast", [True, False])
def test_where_there_are_no_sides_to_drop_no_query_is_repeated(image: Pixels, contrast: bool) -> None:
    attack = Thrift(contrast=contrast, texture=False, deduce=False, combine=False)
    exchanges = converse(attack, context_of(image, EPS), lambda _: 0.0, asks=1 + 3 + 12)
    assert len({shown.tobytes() for shown in asked_images(exchanges)}) == 16


def test_what_the_last_channel_of_a_side_brings_is_known_from_the_side_and_the_others() -> None:
    """Of a linear loss that falls with every flip, two channels are asked for of each side."""
    image = random_image((3, 4, 4), margin=0.2)
    light = np.moveaxis(lighter_pixels(image), 2, 0)
    loss = linear_loss(np.where(light, -1.0, 1.0) * np.random.default_rng(1).uniform(1, 2, (3, 4, 4)))
    exchanges = converse(Thrift(texture=False), context_of(image, EPS), loss, asks=7)
    above = signs(asked_images(exchanges), image)
    flipped = above[1:] != above[0]
    touched = [(each & light).any(axis=(1, 2)) | (each & ~light).any(axis=(1, 2)) for each in flipped]
    assert [channels.sum() for channels in touched] == [3, 3, 1, 1, 1, 1]
    assert sum((each & light).any() for each in flipped[2:]) == 2


def test_a_picture_of_one_colour_has_no_sides() -> None:
    image = np.full((3, 4, 4), 0.5, np.float32)
    exchanges = converse(Thrift(texture=False), context_of(image, EPS), lambda _: 0.0, asks=4)
    above = signs(asked_images(exchanges), image)
    assert above[0].all()
    assert [each.any(axis=(1, 2)).sum() for each in above[0] != above[1:]] == [1, 1, 1]

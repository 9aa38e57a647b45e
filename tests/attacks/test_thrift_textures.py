"""The patterns that Thrift begins with, when it goes on with textures, and in which order, against a plain account."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from driving import (
    Shape,
    asked_images,
    context_of,
    converse,
    linear_loss,
    random_image,
)
from parsimon import Thrift
from parsimon.attacks.blocks import lighter_pixels
from thrift_blocks import EPS, EVERYTHING, FLAT, signs


@pytest.mark.parametrize(
    ("shape", "side"), [((3, 6, 5), 1), ((3, 135, 140), 1), ((3, 136, 140), 2), ((3, 299, 299), 4)]
)
def test_it_asks_first_for_two_patterns_for_less_contrast_and_its_sides_and_then_for_a_checkerboard(
    shape: Shape, side: int
) -> None:
    image = random_image(shape, margin=0.2)
    replies = iter([1.0])  # the columns have a higher loss than any other corner
    exchanges = converse(Thrift(combine=False), context_of(image, EPS), lambda _: next(replies, 0.0), asks=6)
    corners = signs(asked_images(exchanges), image)
    down, along = np.indices(shape[1:]) // side
    columns = np.broadcast_to(along % 2 == 0, shape)
    light = np.moveaxis(lighter_pixels(image), 2, 0)
    np.testing.assert_array_equal(corners[0], columns)
    np.testing.assert_array_equal(corners[1], np.stack([columns[0], columns[1], ~columns[2]]))
    np.testing.assert_array_equal(corners[2], ~light)
    flipped = [corner ^ corners[2] for corner in corners[3:5]]
    first, second = flipped if (flipped[0] == light).all() else flipped[::-1]
    np.testing.assert_array_equal(first, light)
    np.testing.assert_array_equal(second, ~light)
    np.testing.assert_array_equal(corners[5], np.broadcast_to((down + along) % 2 == 0, shape))


def test_of_a_grey_image_it_asks_for_uniform_corners_and_quarters_before_it_asks_for_patterns() -> None:
    image = random_image((1, 6, 6), margin=0.2)
    exchanges = converse(Thrift(deduce=False), context_of(image, EPS), lambda _: 0.0, asks=8)
    low, high, *quarters, columns, checkerboard = signs(asked_images(exchanges), image)[:, 0]
    down, along = np.indices((6, 6))
    assert not low.any()
    assert high.all()
    assert np.sum(quarters, axis=0).tolist() == np.ones((6, 6)).tolist()
    assert [quarter.sum() for quarter in quarters] == [9] * 4
    np.testing.assert_array_equal(columns, along % 2 == 0)
    np.testing.assert_array_equal(checkerboard, (down + along) % 2 == 0)


NONE = [-99.0] * 6  # of the lighter and darker pixels of each channel
THREE = [-99.0] * 3  # of the channels, where the sides leave one sign everywhere


@pytest.mark.parametrize(
    ("losses", "start", "textured"),
    [
        # The patterns, less contrast and its sides, any plain blocks, the checkerboard.
        # The sides have effects of 1 each, so the reach is 2.
        ([3.1, 0.0, 1.0, 2.0, 1.0, 0.0], 3, True),
        ([4.1, 0.0, 1.0, 2.0, 1.0, 0.0], 0, True),
        ([0.0, 4.1, 1.0, 2.0, 1.0, 0.0], 1, True),
        ([4.1, 4.2, 1.0, 2.0, 1.0, 0.0], 1, True),
        ([2.5, 0.0, 1.0, 2.0, 1.0, 4.1], 5, True),
        ([2.5, 2.6, 1.0, 2.0, 1.0, 3.0], 3, False),  # by half of the reach, but not by more
        ([2.0, 2.0, 1.0, 2.0, 1.0, *THREE, 2.0], 3, False),
        ([2.0, 0.0, 1.0, 2.0, 1.0, *THREE, 3.1], 3, True),
        ([2.0, 0.0, 1.0, 2.0, 1.0, *THREE, 4.1], 8, True),
        ([0.0, 0.0, 1.0, 2.0, 3.0, *NONE, 4.0], 4, False),
        ([0.0, 0.0, 1.0, 2.0, 3.0, *NONE, 4.1], 4, True),
        ([0.0, 0.0, 1.0, 2.0, 3.0, *NONE, 5.1], 11, True),
        ([0.0, 0.0, 0.0, 0.0, 0.0, *NONE, 0.0], 2, False),
        ([0.0, 0.0, 2.0, 1.0, 1.0, -99.0, 5.0, *NONE[2:], 3.1], 6, True),  # plain blocks lead to the best corner
        ([0.0, 0.0, 2.0, 1.0, 1.0, -99.0, 5.0, *NONE[2:], 7.0], 6, True),
        ([0.0, 0.0, 2.0, 1.0, 1.0, -99.0, 5.0, *NONE[2:], 7.1], 11, True),
        ([0.0, 0.0, 2.0, 1.0, 1.0, -99.0, 5.0, *NONE[2:], 2.9], 6, False),
    ],
)
def test_textures_matter_if_a_pattern_is_well_above_the_plain_corner_and_far_above_it_is_the_start(
    losses: list[float], start: int, textured: bool
) -> None:
    image = random_image((3, 4, 4), margin=0.2)
    replies, number = iter(losses), len(losses)
    attack = Thrift(deduce=False, combine=False)
    exchanges = converse(attack, context_of(image, EPS), lambda _: next(replies, -99.0), asks=number + 1)
    above = signs(asked_images(exchanges), image)
    squares = np.indices((4, 4)).sum(axis=0) % 2 == 0
    assert [(corner == squares).all() for corner in above] == [*[False] * (number - 1), True, False]
    # Next is the whole of all channels, or a block of one where textures do not matter.
    flipped = above[-1] != above[start]
    assert flipped.all() if textured else flipped.any(axis=(1, 2)).sum() == 1


@pytest.mark.parametrize(
    ("losses", "start", "textured"),
    [
        # The low corner, the high one, the quarters, the columns and the checkerboard.
        # The quarters have effects of 1, 1, 1 and 2, so the reach is 5.
        ([1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 7.1, 0.0], 6, True),
        ([1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 7.1], 7, True),
        ([1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 4.6, 0.0], 4, True),
        ([1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 4.5, 1.9], 4, False),
    ],
)
def test_the_same_of_a_grey_image(losses: list[float], start: int, textured: bool) -> None:
    image = random_image((1, 4, 4), margin=0.2)
    replies = iter(losses)
    attack = Thrift(deduce=False, combine=False)
    exchanges = converse(attack, context_of(image, EPS), lambda _: next(replies, -99.0), asks=9)
    above = signs(asked_images(exchanges), image)
    # Next are all even rows, or a single pixel.
    assert (above[-1] != above[start]).sum() == (8 if textured else 1)


def kinds(side: int) -> dict[str, NDArray[np.bool_]]:
    """The pixels that each kind of change flips of an image."""
    rows, columns = np.indices((side, side)) % 2 == 0
    return {"all": np.ones((side, side), bool), "rows": rows, "columns": columns, "squares": rows == columns}


def kind_of(flipped: NDArray[np.bool_]) -> str:
    """By which kind of change, on which block, these pixels may have been flipped: in one channel or in all."""
    in_channels = flipped.any(axis=(1, 2)).sum()
    side = flipped.shape[1]
    across = 1
    while across <= (side if in_channels == 1 else side // 2):
        width = side // across
        for row, column in itertools.product(range(across), repeat=2):
            block = np.zeros((side, side), bool)
            block[row * width : (row + 1) * width, column * width : (column + 1) * width] = True
            for kind, pixels in kinds(side).items():
                if in_channels == 1 and kind == "all" and (flipped.any(axis=0) == block).all():
                    return "channel"
                if in_channels == len(flipped) and (flipped == (block & pixels)).all():
                    return kind
        across *= 2
    raise AssertionError("no block of any kind")


def test_where_textures_count_the_kind_of_change_is_asked_for_next_that_has_gained_most_of_late() -> None:
    shape, asks = (3, 16, 16), 190  # before any of them has been everywhere
    image = random_image(shape, margin=0.2)
    rng = np.random.default_rng(3)
    # Where the rows of the left half and the squares of the right half are flipped, that gains; the rest is noise.
    wanted = np.where(np.arange(16) < 8, kinds(16)["rows"], kinds(16)["squares"])
    weights = 2 * (wanted - 0.5) + rng.normal(size=shape) * 0.5
    attack = Thrift(contrast=False, deduce=False, combine=False)
    exchanges = converse(attack, context_of(image, EPS), linear_loss(weights), asks=asks)
    losses = [float(exchange.losses[0]) for exchange in exchanges]
    above = signs(asked_images(exchanges), image)
    plain, effects = losses[2], []
    for loss in losses[3:6]:  # of the channels
        effects.append(abs(loss - plain))
        plain = max(plain, loss)
    number = 7 if max(losses[:2]) > plain else 19  # quarters of the channels come before the checkerboard
    best, highest = above[number - 1], losses[number - 1]
    assert (best == kinds(16)["squares"]).all()
    assert highest == max(losses[:number])  # so that it begins there
    worth = dict.fromkeys(("all", "rows", "columns", "squares", "channel"), sum(effects) / 3 / 10)
    asked = dict.fromkeys(worth, 0)
    while number + 4 <= asks:
        kind = max(worth, key=lambda each: worth[each])
        whole = 3 if kind == "channel" else 1  # which comes first
        for _ in range(4 if asked[kind] else whole):
            assert kind_of(above[number] != best) == kind
            gain = losses[number] - highest
            worth[kind] += (max(gain, 0) - worth[kind]) / 10
            if gain > 0:
                best, highest = above[number], losses[number]
            number += 1
        asked[kind] += 1
    assert min(asked.values()) >= 2


def test_where_nothing_has_gained_every_kind_of_change_is_tried_before_any_goes_to_the_finest_blocks() -> None:
    image = random_image((3, 16, 16), margin=0.2)
    replies = iter([1.0])  # of the columns; all other corners are equal, and lower
    exchanges = converse(FLAT, context_of(image, EPS), lambda _: next(replies, 0.0), asks=31)
    above = signs(asked_images(exchanges), image)
    assert {kind_of(corner != above[0]) for corner in above[7:]} == {*kinds(16), "channel"}


def test_a_texture_needs_two_lines_each_way() -> None:
    """Of smaller blocks it would be a flip, or nothing."""
    image = random_image((3, 4, 6), margin=0.2)
    weights = np.random.default_rng(0).normal(size=(3, 4, 6)) + 20 * kinds(6)["squares"][:4]
    exchanges = converse(Thrift(), context_of(image, EPS), linear_loss(weights), asks=EVERYTHING)
    asked = [image.tobytes() for image in asked_images(exchanges)]
    assert len(exchanges) < EVERYTHING
    assert all(one != other for one, other in itertools.pairwise(asked))


def test_without_textures_no_pattern_is_asked_for() -> None:
    image = random_image((1, 4, 4), margin=0.2)
    exchanges = converse(Thrift(texture=False), context_of(image, EPS), lambda _: 0.0, asks=2)
    above = signs(asked_images(exchanges), image)
    assert not above[0].any()
    assert above[1].all()

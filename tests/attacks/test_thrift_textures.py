"""The patterns that Thrift begins with, when it goes on with textures, and in which order, against a plain account."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator

import numpy as np
import pytest
from numpy.typing import NDArray

from driving import (
    Exact,
    Pixels,
    Shape,
    asked_images,
    context_of,
    converse,
    linear_loss,
    random_image,
)
from parsimon import Thrift
from parsimon.attacks.blocks import Level, PixelGroup
from parsimon.attacks.mutable_corner import MutableCorner
from parsimon.attacks.thrift import BlockRefiner
from parsimon.core.types import Ask, Reply
from thrift_blocks import EPS, EVERYTHING, FLAT, signs


@pytest.mark.parametrize(
    ("shape", "side"), [((3, 6, 5), 1), ((3, 135, 140), 1), ((3, 136, 140), 2), ((3, 299, 299), 4)]
)
def test_it_asks_first_for_columns_for_a_checkerboard_for_the_low_corner_and_its_channels(
    shape: Shape, side: int
) -> None:
    image = random_image(shape, margin=0.2)
    exchanges = converse(FLAT, context_of(image, EPS), lambda _: 0.0, asks=6)
    corners = signs(asked_images(exchanges), image)
    down, along = np.indices(shape[1:]) // side
    np.testing.assert_array_equal(corners[0], np.broadcast_to(along % 2 == 0, shape))
    np.testing.assert_array_equal(corners[1], np.broadcast_to((down + along) % 2 == 0, shape))
    assert not corners[2].any()
    of_channels = corners[3:].reshape(3, 3, -1)
    assert (of_channels.all(axis=2) | ~of_channels.any(axis=2)).all()
    assert (of_channels.any(axis=2).sum(axis=0) == 1).all()


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


@pytest.mark.parametrize(
    ("losses", "start", "textured"),
    [
        ((0.0, 5.1, 1.0, 2.0, 1.0, 1.0), 1, True),  # further above 2 than what the channels bring, 3
        ((0.0, 4.9, 1.0, 2.0, 1.0, 1.0), 3, True),
        ((0.0, 2.1, 1.0, 2.0, 1.0, 1.0), 3, True),
        ((0.0, 1.9, 1.0, 2.0, 1.0, 1.0), 3, False),  # where corners of plain channels lie, too
        ((0.0, -0.9, 1.0, 2.0, 1.0, 1.0), 3, False),
        ((0.0, -1.1, 1.0, 2.0, 1.0, 1.0), 3, True),
        ((0.0, 5.1, 2.0, 1.0, 1.0, 1.0), 1, True),
        ((0.0, 4.9, 2.0, 1.0, 1.0, 1.0), 2, True),
        ((6.0, 5.1, 1.0, 2.0, 1.0, 1.0), 0, True),  # the higher of two patterns
        ((5.1, 2.1, 1.0, 2.0, 1.0, 1.0), 0, True),
        ((9.0, 0.0, 2.0, 1.0, 1.0, 1.0), 2, False),  # whether textures count is for the checkerboard to say
        ((0.0, 0.0, 0.0, 0.0, 0.0, 0.0), 2, False),
    ],
)
def test_the_first_losses_tell_where_it_begins_and_whether_textures_count(
    losses: tuple[float, ...], start: int, textured: bool
) -> None:
    shape = (3, 4, 4)
    image = random_image(shape, margin=0.2)
    replies = iter(losses)
    exchanges = converse(FLAT, context_of(image, EPS), lambda _: next(replies, -99.0), asks=7)
    above = signs(asked_images(exchanges), image)
    # Next is the whole of all channels, or a quarter of one where nothing but flips of channels is tried.
    assert (above[-1] != above[start]).sum() == (48 if textured else 4)


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
    exchanges = converse(Thrift(contrast=False, deduce=False), context_of(image, EPS), linear_loss(weights), asks=asks)
    losses = [float(exchange.losses[0]) for exchange in exchanges]
    above = signs(asked_images(exchanges), image)
    plain, effects = losses[2], []
    for loss in losses[3:6]:
        effects.append(abs(loss - plain))
        plain = max(plain, loss)
    best, highest = above[1], losses[1]
    assert highest > max(losses[0], plain + sum(effects))  # so that it begins there
    worth = dict.fromkeys(("all", "rows", "columns", "squares", "channel"), sum(effects) / 3 / 10)
    asked = dict.fromkeys(worth, 0)
    number = 6
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
    replies = iter([0.0, 1.0])  # the checkerboard is the second; all other corners are equal, and lower
    exchanges = converse(FLAT, context_of(image, EPS), lambda _: next(replies, 0.0), asks=30)
    above = signs(asked_images(exchanges), image)
    assert {kind_of(corner != above[1]) for corner in above[6:]} == {*kinds(16), "channel"}


def test_a_texture_needs_two_lines_each_way() -> None:
    """Of smaller blocks it would be a flip, or nothing."""
    image = random_image((3, 4, 6), margin=0.2)
    weights = np.random.default_rng(0).normal(size=(3, 4, 6)) + 20 * kinds(6)["squares"][:4]
    exchanges = converse(Thrift(), context_of(image, EPS), linear_loss(weights), asks=EVERYTHING)
    asked = [image.tobytes() for image in asked_images(exchanges)]
    assert len(exchanges) < EVERYTHING
    assert all(one != other for one, other in itertools.pairwise(asked))


def test_a_refiner_forgets_the_effects_of_blocks_that_another_has_changed() -> None:
    refiner = BlockRefiner(
        [Level(across, [PixelGroup(np.ones((8, 8, 1), bool))]) for across in (1, 2, 4, 8)],
        (8, 8),
        deduce=True,
        rank=True,
    )
    best, rng = MutableCorner(np.zeros((8, 8, 3), bool)), np.random.default_rng(0)

    def asking() -> Generator[Ask, Reply, None]:
        yield from best.ask()
        while refiner.across < 4:
            yield from refiner.refine_next(best, rng)

    search = asking()
    next(search)
    with contextlib.suppress(StopIteration):
        for number in itertools.count():
            search.send(Reply(np.array([-float(number)])))
    assert refiner.effects.known.shape == (4, 4, 1)
    assert refiner.effects.known.all()
    refiner.forget([(slice(0, 4), slice(4, 8), slice(0, 1)), (slice(6, 7), slice(0, 2), slice(0, 3))])
    unknown = np.zeros((4, 4), bool)
    unknown[:2, 2:] = True  # the second window is smaller than a block
    np.testing.assert_array_equal(~refiner.effects.known[:, :, 0], unknown)


@pytest.mark.parametrize(
    "effects",
    [
        np.repeat([3.0, -2.0, -1.0], 4).reshape(3, 2, 2) / 4,  # of the channels
        np.array([[[3.0, -3.0], [2.0, -2.0]]]),  # of the only channel's quarters
    ],
)
def test_uniform_corners_that_are_equally_good_by_chance_do_not_make_textures_count(effects: Exact) -> None:
    """What the blocks bring cancels out between -eps and +eps everywhere, but it is not small."""
    image = random_image((len(effects), 4, 4), margin=0.2)

    def share_above(shown: Pixels) -> Exact:
        """Of the pixels of each quarter of each channel."""
        share: Exact = signs(shown, image).reshape(-1, 2, 2, 2, 2).mean(axis=(2, 4))
        return share

    def patterned(shown: Pixels) -> bool:
        return bool(((share_above(shown) > 0) & (share_above(shown) < 1)).all())

    def loss(shown: Pixels) -> float:
        return 2.0 if patterned(shown) else float((effects * share_above(shown)).sum())

    asked = asked_images(converse(FLAT, context_of(image, EPS), loss, asks=10))
    patterns = [number for number, shown in enumerate(asked) if patterned(shown)]
    assert patterns == ([0, 1] if len(effects) == 3 else [5, 6])  # of grey, after three quarters; the fourth is known


def test_without_textures_no_pattern_is_asked_for() -> None:
    image = random_image((1, 4, 4), margin=0.2)
    exchanges = converse(Thrift(texture=False), context_of(image, EPS), lambda _: 0.0, asks=2)
    above = signs(asked_images(exchanges), image)
    assert not above[0].any()
    assert above[1].all()

"""Thrift, against the known optimum of a linear loss, a plain twin of its search, and what it says of its start."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Generator

import numpy as np
import pytest
import scipy.integrate  # type: ignore[import-untyped]
import scipy.stats  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from driving import (
    Exact,
    Pixels,
    Shape,
    Steadfast,
    asked_images,
    converse,
    in_ball,
    linear_loss,
    random_image,
    run,
    scene_of,
    smooth_loss,
)
from parsimon import Threat, Thrift
from parsimon.attacks.brush import Brush, Level, Part
from parsimon.attacks.sketch import Sketch
from parsimon.attacks.thrift import lighter
from parsimon.protocol import Ask, Reply

EPS = 0.1
FLAT = Thrift(contrast=False)  # which does not look at the picture
EVERYTHING = 100_000  # more than any search here has to ask


def signs(images: Pixels, image: Pixels) -> NDArray[np.bool_]:
    """Where each of the images lies above the image."""
    return images > image


def levels(shape: Shape) -> list[set[frozenset[int]]]:
    """The blocks of each level, as sets of flat pixel numbers: cut at the floors of multiples of a side."""
    channels, height, width = shape
    numbers = np.arange(math.prod(shape)).reshape(shape)
    found, across = [], 1
    while True:
        cuts = [[side * part // across for part in range(across + 1)] for side in (height, width)]
        found.append(
            {
                frozenset(numbers[channel, top:bottom, left:right].reshape(-1).tolist())
                for channel in range(channels)
                for top, bottom in itertools.pairwise(cuts[0])
                for left, right in itertools.pairwise(cuts[1])
                if top < bottom and left < right
            }
        )
        if across >= max(height, width):
            return found
        across *= 2


@settings(max_examples=30, deadline=None)
@given(
    shape=st.sampled_from([(1, 1, 1), (3, 1, 1), (1, 1, 2), (3, 4, 4), (1, 8, 8), (3, 5, 3), (1, 7, 11)]),
    seed=st.integers(0, 99),
    deduce=st.booleans(),
)
def test_it_ends_at_the_best_corner_of_a_linear_loss(shape: tuple[int, int, int], seed: int, deduce: bool) -> None:
    weights = np.random.default_rng([seed, 1]).normal(size=shape)
    image = random_image(shape, seed)
    exchanges = converse(Thrift(deduce=deduce), scene_of(image, EPS), linear_loss(weights), asks=EVERYTHING, seed=seed)
    assert len(exchanges) < EVERYTHING
    best = max(exchanges, key=lambda exchange: float(exchange.losses[0])).images[0]
    corner = np.clip(image + np.where(weights > 0, np.float32(EPS), -np.float32(EPS)), 0, 1)
    np.testing.assert_array_equal(best, corner.astype(np.float32))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 4, 4)])
def test_where_flips_add_up_the_last_quarter_costs_nothing(shape: Shape) -> None:
    """Of a linear loss the first pass without deduction asks for every block, with it for about a quarter fewer."""
    image = random_image(shape, margin=0.2)
    weights = np.random.default_rng(5).normal(size=shape)
    full, spared = (
        len(
            converse(
                Thrift(contrast=False, texture=False, deduce=deduce),
                scene_of(image, EPS),
                linear_loss(weights),
                asks=EVERYTHING,
            )
        )
        for deduce in (False, True)
    )
    # The low corner, a pass that climbs, and one that finds nothing left.
    assert full == 1 + 2 * sum(map(len, levels(shape)))
    assert spared < 0.9 * full


@pytest.mark.parametrize("shape", [(3, 4, 4), (1, 8, 8), (3, 5, 3), (2, 6, 6)])
@pytest.mark.parametrize("deduce", [True, False])
def test_each_query_flips_one_block_of_the_best_corner_and_a_gain_is_kept(shape: Shape, deduce: bool) -> None:
    image = random_image(shape, margin=0.2)
    exchanges = converse(
        Thrift(contrast=False, texture=False, deduce=deduce), scene_of(image, EPS), smooth_loss(shape), asks=EVERYTHING
    )
    above = signs(asked_images(exchanges), image).reshape(len(exchanges), -1)
    assert not above[0].any()
    losses = [float(exchange.losses[0]) for exchange in exchanges]
    kept, highest = above[0], losses[0]
    blocks = levels(shape)
    flipped = []
    for corner, loss in zip(above[1:], losses[1:], strict=True):
        flipped.append(frozenset(np.flatnonzero(corner != kept).tolist()))
        if loss > highest:
            kept, highest = corner, loss
    assert set(flipped) <= set().union(*blocks)
    if not deduce:  # then the first pass is every block once, level by level
        new = [level - set().union(*blocks[:number]) for number, level in enumerate(blocks)]
        for level in new:
            assert set(flipped[: len(level)]) == level
            del flipped[: len(level)]


@pytest.mark.parametrize("rank", [True, False])
@pytest.mark.parametrize("across", [4, 8])
def test_what_promises_most_is_cut_first_and_its_quarters_are_asked_for_together(across: int, rank: bool) -> None:
    shape, blocks, side = (3, 16, 16), 3 * across**2, 16 // across
    image = random_image(shape, margin=0.2)
    loss = linear_loss(-np.random.default_rng(3).gamma(0.3, size=shape))
    attack = Thrift(contrast=False, texture=False, deduce=False, rank=rank)
    first = blocks // 3 - 1  # asked for before the blocks that are cut: all coarser ones
    exchanges = converse(attack, scene_of(image, EPS), loss, asks=1 + first + 5 * blocks)
    losses = np.array([exchange.losses[0] for exchange in exchanges])
    above = signs(asked_images(exchanges), image)[1:]  # of a loss that no flip raises: the flipped blocks
    effects = np.zeros((across, across, 3))
    for block, after in zip(above[first : first + blocks], losses[1 + first :], strict=False):
        channel, row, column = (int(places[0]) for places in block.nonzero())
        effects[row // side, column // side, channel] = after - losses[0]
    promised, cut = [], set()
    for four in np.logical_or.reduce(above[first + blocks :].reshape(-1, 4, *shape), axis=1):
        channels, rows, columns = four.nonzero()
        assert len(rows) == (np.ptp(rows) + 1) * (np.ptp(columns) + 1) == side**2
        cut.add((rows[0] // side, columns[0] // side, channels[0]))
        if across == 4:
            promised.append(-np.hypot(rows.mean() - 7.5, columns.mean() - 7.5).round(6))
        else:
            promised.append(promise(effects, rows[0] // side, columns[0] // side, channels[0]))
    assert len(cut) == blocks
    assert (promised == sorted(promised, reverse=True)) == rank


def promise(effects: Exact, row: int, column: int, channel: int) -> float:
    """The mean gain of a quarter, integrated: a quarter of the effect, give or take half of those around."""
    within = [[min(max(each + step, 0), len(effects) - 1) for step in (-1, 0, 1)] for each in (row, column)]
    spread = np.sqrt(np.square(effects[np.ix_(*within)]).mean()) / 2
    mean = effects[row, column, channel] / 4
    density = scipy.stats.norm(mean, spread).pdf
    gain: float = scipy.integrate.quad(lambda each: each * density(each), 0, mean + 12 * spread, epsabs=1e-13)[0]
    return gain


def brute_force(shape: Shape, image: Pixels, weights: Exact) -> float:
    """The highest value over all corners."""
    low, high = (np.clip(image + sign * np.float32(EPS), 0, 1) for sign in (-1, 1))
    return max(
        linear_loss(weights)(np.where(np.reshape(corner, shape), high, low).astype(np.float32))
        for corner in itertools.product([False, True], repeat=math.prod(shape))
    )


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_what_trying_all_corners_finds(seed: int) -> None:
    shape = (1, 3, 3)
    weights = np.random.default_rng(seed).normal(size=shape)
    image = random_image(shape, seed)
    exchanges = converse(Thrift(), scene_of(image, EPS), linear_loss(weights), asks=EVERYTHING)
    assert max(float(exchange.losses[0]) for exchange in exchanges) == pytest.approx(brute_force(shape, image, weights))


@pytest.mark.parametrize(
    ("shape", "side"), [((3, 6, 5), 1), ((3, 135, 140), 1), ((3, 136, 140), 2), ((3, 299, 299), 4)]
)
def test_it_asks_first_for_columns_for_a_checkerboard_for_the_low_corner_and_its_channels(
    shape: Shape, side: int
) -> None:
    image = random_image(shape, margin=0.2)
    exchanges = converse(FLAT, scene_of(image, EPS), lambda _: 0.0, asks=6)
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
    exchanges = converse(Thrift(deduce=False), scene_of(image, EPS), lambda _: 0.0, asks=8)
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
    exchanges = converse(FLAT, scene_of(image, EPS), lambda _: next(replies, -99.0), asks=7)
    above = signs(asked_images(exchanges), image)
    # Next is the whole of all channels, or a quarter of one where nothing but flips of channels is tried.
    assert (above[-1] != above[start]).sum() == (48 if textured else 4)


# --- lighter and darker pixels --------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9)),
    values=st.sampled_from([2, 3, 256]),
    seed=st.integers(0, 99),
)
def test_a_pixel_is_lighter_if_it_is_above_the_mean_of_those_around_it(shape: Shape, values: int, seed: int) -> None:
    numbers = np.random.default_rng(seed).integers(values, size=shape)  # of few values, many pixels are the mean
    light = lighter((numbers / 255).astype(np.float32))
    channels, height, width = shape
    for channel, row, column in itertools.product(range(channels), range(height), range(width)):
        down, along = height // 4, width // 4
        around = numbers[channel, max(0, row - down) : row + down + 1, max(0, column - along) : column + along + 1]
        assert light[row, column, channel] == (numbers[channel, row, column] * around.size > around.sum())


def pieces(image: Pixels) -> list[set[frozenset[int]]]:
    """What a query flips, level by level: the lighter or darker pixels of all channels, then those of a block."""
    light = np.moveaxis(lighter(image), 2, 0)
    sides = [frozenset(np.flatnonzero(side).tolist()) for side in (light, ~light)]
    cut = [{block & side for block in blocks for side in sides} - {frozenset()} for blocks in levels(image.shape)]
    return [set(sides), *cut]


@pytest.mark.parametrize("deduce", [True, False])
@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 5, 3), (4, 6, 6)])
def test_of_a_coloured_picture_each_query_flips_lighter_or_darker_pixels_of_a_block(shape: Shape, deduce: bool) -> None:
    image = random_image(shape, margin=0.2)
    image[:, : shape[1] // 2] = 0.5  # in which no pixel is lighter than another, but at the edge
    attack = Thrift(texture=False, deduce=deduce)
    exchanges = converse(attack, scene_of(image, EPS), smooth_loss(shape), asks=EVERYTHING)
    above = signs(asked_images(exchanges), image)
    np.testing.assert_array_equal(above[0], ~np.moveaxis(lighter(image), 2, 0))  # less contrast
    losses = [float(exchange.losses[0]) for exchange in exchanges]
    kept, highest = above[0], losses[0]
    flipped = []
    for corner, loss in zip(above[1:], losses[1:], strict=True):
        flipped.append(frozenset(np.flatnonzero(corner != kept).tolist()))
        if loss > highest:
            kept, highest = corner, loss
    by_level = pieces(image)
    assert set(flipped) <= set().union(*by_level)
    if not deduce:  # then the first pass is every piece once, and those that cannot be cut are not asked for again
        for number, level in enumerate(by_level):
            new = level - set().union(*by_level[:number])
            assert set(flipped[: len(new)]) == new
            del flipped[: len(new)]


def test_what_the_last_channel_of_a_side_brings_is_known_from_the_side_and_the_others() -> None:
    """Of a linear loss that falls with every flip, two channels are asked for of each side."""
    image = random_image((3, 4, 4), margin=0.2)
    light = np.moveaxis(lighter(image), 2, 0)
    loss = linear_loss(np.where(light, -1.0, 1.0) * np.random.default_rng(1).uniform(1, 2, (3, 4, 4)))
    exchanges = converse(Thrift(texture=False), scene_of(image, EPS), loss, asks=7)
    above = signs(asked_images(exchanges), image)
    flipped = above[1:] != above[0]
    touched = [(each & light).any(axis=(1, 2)) | (each & ~light).any(axis=(1, 2)) for each in flipped]
    assert [channels.sum() for channels in touched] == [3, 3, 1, 1, 1, 1]
    assert sum((each & light).any() for each in flipped[2:]) == 2


def test_a_picture_of_one_colour_has_no_sides() -> None:
    image = np.full((3, 4, 4), 0.5, np.float32)
    exchanges = converse(Thrift(texture=False), scene_of(image, EPS), lambda _: 0.0, asks=4)
    above = signs(asked_images(exchanges), image)
    assert above[0].all()
    assert [each.any(axis=(1, 2)).sum() for each in above[0] != above[1:]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("losses", "start", "textured"),
    [
        ((0.0, 4.1, 1.0, 2.0, 1.0), 1, True),  # further above 2 than what the sides bring, 2
        ((0.0, 3.9, 1.0, 2.0, 1.0), 3, True),
        ((0.0, 1.9, 1.0, 2.0, 1.0), 3, False),
        ((0.0, 0.1, 1.0, 2.0, 1.0), 3, False),
        ((0.0, -0.1, 1.0, 2.0, 1.0), 3, True),
    ],
)
def test_the_sides_tell_whether_textures_count(losses: tuple[float, ...], start: int, textured: bool) -> None:
    image = random_image((3, 4, 4), margin=0.2)
    replies = iter(losses)
    exchanges = converse(Thrift(), scene_of(image, EPS), lambda _: next(replies, -99.0), asks=6)
    above = signs(asked_images(exchanges), image)
    flipped = above[-1] != above[start]
    if textured:  # the whole of all channels
        assert flipped.all()
    else:  # of one channel, a side
        assert flipped.any(axis=(1, 2)).sum() == 1


# --- textures -------------------------------------------------------------------------------------------------------


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
    exchanges = converse(Thrift(contrast=False, deduce=False), scene_of(image, EPS), linear_loss(weights), asks=asks)
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
    exchanges = converse(FLAT, scene_of(image, EPS), lambda _: next(replies, 0.0), asks=30)
    above = signs(asked_images(exchanges), image)
    assert {kind_of(corner != above[1]) for corner in above[6:]} == {*kinds(16), "channel"}


def test_a_texture_needs_two_lines_each_way() -> None:
    """Of smaller blocks it would be a flip, or nothing."""
    image = random_image((3, 4, 6), margin=0.2)
    weights = np.random.default_rng(0).normal(size=(3, 4, 6)) + 20 * kinds(6)["squares"][:4]
    exchanges = converse(Thrift(), scene_of(image, EPS), linear_loss(weights), asks=EVERYTHING)
    asked = [image.tobytes() for image in asked_images(exchanges)]
    assert len(exchanges) < EVERYTHING
    assert all(one != other for one, other in itertools.pairwise(asked))


def test_a_brush_forgets_what_blocks_bring_that_another_has_changed() -> None:
    brush = Brush([Level(across, [Part(np.ones((8, 8, 1), bool))]) for across in (1, 2, 4, 8)], deduce=True, rank=True)
    best, rng = Sketch(np.zeros((8, 8, 3), bool)), np.random.default_rng(0)

    def asking() -> Generator[Ask, Reply, None]:
        yield from best.ask()
        for _ in range(3):
            yield from brush.level(best, rng)

    search = asking()
    next(search)
    with contextlib.suppress(StopIteration):
        for number in itertools.count():
            search.send(Reply(np.array([-float(number)])))
    assert brush.known.shape == (4, 4, 1)
    brush.forget([(slice(0, 4), slice(4, 8), slice(0, 1)), (slice(6, 7), slice(0, 2), slice(0, 3))])
    unknown = np.zeros((4, 4), bool)
    unknown[:2, 2:] = True  # the second window is smaller than a block
    np.testing.assert_array_equal(np.isnan(brush.known[:, :, 0]), unknown)


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

    asked = asked_images(converse(FLAT, scene_of(image, EPS), loss, asks=10))
    patterns = [number for number, shown in enumerate(asked) if patterned(shown)]
    assert patterns == ([0, 1] if len(effects) == 3 else [5, 6])  # of grey, after three quarters; the fourth is known


def test_without_textures_no_pattern_is_asked_for() -> None:
    image = random_image((1, 4, 4), margin=0.2)
    exchanges = converse(Thrift(texture=False), scene_of(image, EPS), lambda _: 0.0, asks=2)
    above = signs(asked_images(exchanges), image)
    assert not above[0].any()
    assert above[1].all()


def test_a_seed_decides_everything_and_nothing_leaves_the_ball() -> None:
    image, loss = random_image((3, 8, 8)), smooth_loss((3, 8, 8))
    one, again, other = (
        asked_images(converse(Thrift(), scene_of(image, EPS), loss, asks=200, seed=seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert in_ball(scene_of(image, EPS), one).all()


def test_it_ends_when_a_pass_has_raised_nothing() -> None:
    outcome = run(Thrift(), Steadfast((1, 4, 4)), random_image((1, 4, 4)), Threat(EPS), budget=5000)
    assert outcome.ended == "exhausted"


def test_its_losses() -> None:
    assert (Thrift().own_loss(False), Thrift().own_loss(True)) == ("margin", "cross-entropy")

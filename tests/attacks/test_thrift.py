"""Thrift, against the known optimum of a linear loss, brute force, and a plain account of its blocks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st

from driving import (
    Exact,
    Pixels,
    Shape,
    Steadfast,
    asked_images,
    ball,
    context_of,
    converse,
    in_ball,
    linear_loss,
    random_image,
    run,
    smooth_loss,
)
from parsimon import Threat, Thrift
from thrift_blocks import EPS, EVERYTHING, check_first_pass, flips_of, levels, signs


@settings(max_examples=30, deadline=None)
@given(
    shape=st.sampled_from([(1, 1, 1), (3, 1, 1), (1, 1, 2), (3, 4, 4), (1, 8, 8), (3, 5, 3), (1, 7, 11)]),
    seed=st.integers(0, 99),
    deduce=st.booleans(),
)
@example(shape=(1, 1, 2), seed=17, deduce=False)  # whose patterns count, while no texture has room
def test_it_ends_at_the_best_corner_of_a_linear_loss(shape: tuple[int, int, int], seed: int, deduce: bool) -> None:
    weights = np.random.default_rng([seed, 1]).normal(size=shape)
    image = random_image(shape, seed)
    exchanges = converse(
        Thrift(deduce=deduce), context_of(image, EPS), linear_loss(weights), asks=EVERYTHING, seed=seed
    )
    assert len(exchanges) < EVERYTHING
    best = max(exchanges, key=lambda exchange: float(exchange.losses[0])).images[0]
    low, high = ball(image, EPS)
    np.testing.assert_array_equal(best, np.where(weights > 0, high, low))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 4, 4)])
def test_where_flips_add_up_the_last_quarter_costs_nothing(shape: Shape) -> None:
    """Of a linear loss the first pass without deduction asks for every block, with it for about a quarter fewer."""
    image = random_image(shape, margin=0.2)
    weights = np.random.default_rng(5).normal(size=shape)
    full, spared = (
        len(
            converse(
                Thrift(contrast=False, texture=False, deduce=deduce, combine=False),
                context_of(image, EPS),
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
        Thrift(contrast=False, texture=False, deduce=deduce, combine=False),
        context_of(image, EPS),
        smooth_loss(shape),
        asks=EVERYTHING,
    )
    assert not signs(exchanges[0].images[0], image).any()
    flips = flips_of(exchanges, image)
    assert set(flips) <= set().union(*levels(shape))
    if not deduce:
        check_first_pass(flips, levels(shape))


@pytest.mark.parametrize("rank", [True, False])
@pytest.mark.parametrize("across", [4, 8])
def test_what_promises_most_is_cut_first_and_its_quarters_are_asked_for_together(across: int, rank: bool) -> None:
    shape, blocks, side = (3, 16, 16), 3 * across**2, 16 // across
    image = random_image(shape, margin=0.2)
    loss = linear_loss(-np.random.default_rng(3).gamma(0.3, size=shape))
    attack = Thrift(contrast=False, texture=False, deduce=False, rank=rank, combine=False)
    first = blocks // 3 - 1  # asked for before the blocks that are cut: all coarser ones
    exchanges = converse(attack, context_of(image, EPS), loss, asks=1 + first + 5 * blocks)
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
    exchanges = converse(Thrift(), context_of(image, EPS), linear_loss(weights), asks=EVERYTHING)
    assert max(float(exchange.losses[0]) for exchange in exchanges) == pytest.approx(brute_force(shape, image, weights))


def test_a_seed_decides_everything_and_nothing_leaves_the_ball() -> None:
    image, loss = random_image((3, 8, 8)), smooth_loss((3, 8, 8))
    one, again, other = (
        asked_images(converse(Thrift(), context_of(image, EPS), loss, asks=200, seed=seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert in_ball(context_of(image, EPS), one).all()


def test_it_ends_when_a_pass_has_raised_nothing() -> None:
    outcome = run(Thrift(), Steadfast((1, 4, 4)), random_image((1, 4, 4)), Threat(EPS), budget=5000)
    assert outcome.ended == "exhausted"


def test_its_losses() -> None:
    assert (Thrift().own_loss(False), Thrift().own_loss(True)) == ("margin", "cross-entropy")

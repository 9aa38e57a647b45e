"""SignHunter, against the known optimum of a linear loss and the paper's order of flips."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from driving import (
    Pixels,
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
from parsimon import Threat
from parsimon.attacks import SignHunter

EPS = 0.1


def cut(pixels: int, length: int) -> list[range]:
    """All pixels in pieces of a length, the last perhaps shorter."""
    return [range(begin, min(begin + length, pixels)) for begin in range(0, pixels, length)]


def first_pass(pixels: int) -> list[range]:
    """The whole, then pieces of half its length, of a quarter ... rounded up, until they are single pixels."""
    pieces, length, level = cut(pixels, pixels), pixels, 0
    while length > 1:
        level += 1
        length = -(-pixels // 2**level)
        pieces += cut(pixels, length)
    return pieces


def signs(images: Pixels, image: Pixels) -> NDArray[np.bool_]:
    """Where each of the images lies above the image, in one row for each."""
    up: NDArray[np.bool_] = (images > image).reshape(len(images), -1)
    return up


@settings(max_examples=30)
@given(
    shape=st.sampled_from([(1, 1, 1), (1, 1, 2), (3, 4, 4), (1, 8, 8), (3, 5, 3), (1, 7, 11)]), seed=st.integers(0, 99)
)
def test_one_pass_finds_the_best_corner_of_a_linear_loss(shape: tuple[int, int, int], seed: int) -> None:
    weights = np.random.default_rng([seed, 1]).normal(size=shape)
    image = random_image(shape, seed)
    pixels = image.size
    queries = 1 + len(first_pass(pixels))
    assert queries <= 3 * pixels
    if pixels in (1, 2, 64):
        assert queries == 2 * pixels
    exchanges = converse(SignHunter(), context_of(image, EPS), linear_loss(weights), asks=queries)
    best = max(exchanges, key=lambda exchange: float(exchange.losses[0])).images[0]
    corner = image + np.where(weights > 0, np.float32(EPS), -np.float32(EPS))
    np.testing.assert_array_equal(best, np.clip(corner, *ball(image, EPS)))


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 5, 3), (1, 1, 13)])
def test_it_flips_the_whole_then_halves_then_quarters(shape: tuple[int, int, int]) -> None:
    """Where nothing is kept, each candidate differs from the start by one flip."""
    image = random_image(shape, margin=0.2)
    expected = first_pass(image.size)
    losses = iter([1.0])
    exchanges = converse(SignHunter(), context_of(image, EPS), lambda _: next(losses, 0.0), asks=1 + len(expected))
    start, *candidates = signs(asked_images(exchanges), image)
    assert start.all()
    flipped = [np.flatnonzero(candidate != start).tolist() for candidate in candidates]
    assert flipped == [list(piece) for piece in expected]


def test_the_pieces_of_sixteen_pixels_by_hand() -> None:
    lengths = [len(piece) for piece in first_pass(16)]
    assert lengths == [16] + [8] * 2 + [4] * 4 + [2] * 8 + [1] * 16


@pytest.mark.parametrize("seed", range(3))
def test_a_flip_is_kept_if_the_loss_is_no_lower_and_the_best_loss_never_falls(seed: int) -> None:
    shape = (3, 4, 4)
    image = random_image(shape, margin=0.2)
    pieces = first_pass(48)
    noise = np.random.default_rng(seed)
    # Few different values, so that there are ties.
    exchanges = converse(SignHunter(), context_of(image, EPS), lambda _: float(noise.integers(5)), asks=1 + len(pieces))
    kept, *candidates = signs(asked_images(exchanges), image)
    highest = exchanges[0].losses[0]
    ties = 0
    for candidate, piece, exchange in zip(candidates, pieces, exchanges[1:], strict=True):
        assert np.flatnonzero(candidate != kept).tolist() == list(piece)
        if exchange.losses[0] >= highest:
            ties += exchange.losses[0] == highest
            kept, highest = candidate, exchange.losses[0]
    assert ties


def test_the_second_pass_tries_the_pixels_own_values() -> None:
    shape = (1, 4, 4)
    image, loss = random_image(shape, margin=0.2), smooth_loss(shape)
    pieces = first_pass(16)
    exchanges = converse(SignHunter(), context_of(image, EPS), loss, asks=1 + 2 * len(pieces))
    of_first, of_second = exchanges[: 1 + len(pieces)], exchanges[1 + len(pieces) :]
    best = max(of_first, key=lambda exchange: float(exchange.losses[0]))
    kept, highest = best.images[0].reshape(-1), best.losses[0]
    for exchange, piece in zip(of_second, pieces, strict=True):
        candidate = exchange.images[0].reshape(-1)
        within = np.isin(np.arange(16), list(piece))
        np.testing.assert_array_equal(candidate[~within], kept[~within])
        untouched = within & (np.abs(kept - image.reshape(-1)) > EPS / 2)
        np.testing.assert_allclose(candidate[untouched], image.reshape(-1)[untouched], atol=1e-6)
        if exchange.losses[0] >= highest:
            kept, highest = candidate, exchange.losses[0]


def test_an_optimum_within_the_ball_is_found_on_the_second_pass() -> None:
    """A loss whose best image is the clean one at half of the pixels."""
    shape = (1, 4, 4)
    image = random_image(shape, margin=0.2)
    towards = np.where(np.arange(16).reshape(shape) % 2, EPS, 0) + image.astype(np.float64)

    exchanges = converse(
        SignHunter(),
        context_of(image, EPS),
        lambda shown: -float(((shown.astype(np.float64) - towards) ** 2).sum()),
        asks=1 + 2 * len(first_pass(16)),
    )
    best = max(exchanges, key=lambda exchange: float(exchange.losses[0])).images[0]
    np.testing.assert_allclose(best, towards, atol=1e-6)


def test_it_draws_nothing_at_random() -> None:
    image, loss = random_image((3, 4, 4)), smooth_loss((3, 4, 4))
    one, other = (
        asked_images(converse(SignHunter(), context_of(image, EPS), loss, asks=250, seed=seed)) for seed in (0, 1)
    )
    np.testing.assert_array_equal(one, other)
    assert in_ball(context_of(image, EPS), one).all()


def test_it_goes_on_until_its_budget_is_gone() -> None:
    outcome = run(SignHunter(), Steadfast((1, 4, 4)), random_image((1, 4, 4)), Threat(EPS), budget=500)
    assert (outcome.ended, outcome.queries, outcome.uncharged, outcome.outside) == ("budget", 500, 0, 0)

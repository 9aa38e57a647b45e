"""Square Attack, against a literal twin over images and the paper's schedule as a table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from driving import Loss, Pixels, Shape, asked_images, ball, context_of, converse, in_ball, random_image, smooth_loss
from parsimon import InputError
from parsimon.attacks import NES, Square
from parsimon.core.types import Corners

# By the last of 10,000 iterations for which it holds: the divisor of p_init.
SCHEDULE = [(10, 1), (50, 2), (200, 4), (500, 8), (1000, 16), (2000, 32), (4000, 64), (6000, 128), (8000, 256)]
# The sides that follow from it on 32 x 32 pixels with p_init = 0.8: the roots of 819.2, 409.6, 204.8 ...
SIDES = [29, 20, 14, 10, 7, 5, 4, 3, 2, 1]


def expected_p(p_init: float, iteration: int, budget: int) -> float:
    rescaled = int(iteration / budget * 10_000)
    return p_init / next((divisor for last, divisor in SCHEDULE if rescaled <= last), 512)


def expected_side(p_init: float, iteration: int, budget: int, height: int, width: int) -> int:
    side = round(math.sqrt(expected_p(p_init, iteration, budget) * height * width))
    return max(1, min(side, height - 1, width - 1))


def twin(attack: Square, image: Pixels, eps: float, loss: Loss, budget: int, rng: np.random.Generator) -> Pixels:
    """All images that the attack asks for, drawn pixel by pixel."""
    channels, height, width = image.shape

    low, high = ball(image, eps)

    def clipped(noise: NDArray[np.float32]) -> Pixels:
        return np.where(noise > 0, high, low)

    def signs(draws: NDArray[np.float64]) -> NDArray[np.float32]:
        return np.where(draws < 0.5, np.float32(eps), -np.float32(eps))

    stripes = signs(rng.random((1, width, channels)))  # by column, and then by channel
    noise = np.empty(image.shape, np.float32)
    for channel in range(channels):
        for row in range(height):
            noise[channel, row] = stripes[0, :, channel]
    best, highest = clipped(noise), loss(clipped(noise))
    asked = [best]
    for iteration in range(budget - 1):
        side = expected_side(attack.p_init, iteration, budget, height, width)
        top = int(rng.integers(max(1, height - side)))
        left = int(rng.integers(max(1, width - side)))
        while True:
            repainted = noise.copy()
            for channel, sign in enumerate(signs(rng.random((channels,)))):
                repainted[channel, top : top + side, left : left + side] = sign
            if np.abs(clipped(repainted) - best).max() > 1e-7:
                break
        candidate = clipped(repainted)
        asked.append(candidate)
        if loss(candidate) > highest:
            noise, best, highest = repainted, candidate, loss(candidate)
    return np.stack(asked)


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 9, 6), (3, 5, 12), (2, 1, 7)])
@pytest.mark.parametrize("p_init", [0.8, 0.05])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_asks_what_the_twin_asks(shape: Shape, p_init: float, seed: int) -> None:
    image, loss, budget = random_image(shape, seed), smooth_loss(shape, seed), 150
    image.flat[::5], image.flat[1::5] = 0, 1  # where the ball is cut off
    expected = twin(Square(p_init), image, 0.1, loss, budget, np.random.default_rng(seed))
    asked = asked_images(converse(Square(p_init), context_of(image, 0.1, budget), loss, budget, seed))
    np.testing.assert_array_equal(asked, expected)


@pytest.mark.parametrize("budget", [10_000, 5_000, 1_000, 73])
def test_windows_shrink_on_the_papers_schedule(budget: int) -> None:
    """Where nothing is kept, a repainted stretch of a vertical stripe is as long as the window's side."""
    image = np.full((3, 32, 32), 0.5, np.float32)
    losses = iter([1.0])
    stripes, *candidates = converse(
        Square(0.8), context_of(image, 0.1, budget), lambda _: next(losses, 0.0), asks=min(budget, 700)
    )
    for iteration, candidate in enumerate(candidates):
        rescaled = int(iteration / budget * 10_000)
        passed = sum(rescaled > last for last, _ in SCHEDULE)
        rows = np.flatnonzero((candidate.images[0] != stripes.images[0]).any(axis=(0, 2)))
        assert len(rows) == SIDES[passed] == rows[-1] - rows[0] + 1


def test_the_whole_schedule_is_gone_through() -> None:
    assert [expected_side(0.8, last, 10_000, 32, 32) for last, _ in [*SCHEDULE, (10_000, 512)]] == SIDES
    assert [expected_side(0.8, last + 1, 10_000, 32, 32) for last, _ in SCHEDULE] == SIDES[1:]


def test_it_starts_from_vertical_stripes() -> None:
    image = random_image((3, 40, 50), margin=0.2)
    (start,) = converse(Square(), context_of(image, 0.1), smooth_loss((3, 40, 50)), asks=1)
    noise = start.images[0] - image
    up = noise > 0
    np.testing.assert_allclose(np.abs(noise), 0.1, atol=1e-6)
    assert (up == up[:, :1, :]).all()
    assert 0.3 < up[:, 0].mean() < 0.7
    assert not (up[0, 0] == up[1, 0]).all()  # each channel has its own


def is_one_repainted_window(best: NDArray[np.bool_], candidate: NDArray[np.bool_], side: int) -> bool:
    """Whether there is a window outside which nothing differs, and in which every channel has one sign."""
    _, height, width = best.shape
    for top in range(height - side + 1):
        for left in range(width - side + 1):
            outside = np.ones((height, width), np.bool_)
            outside[top : top + side, left : left + side] = False
            window = candidate[:, ~outside]
            if (candidate == best)[:, outside].all() and (window == window[:, :1]).all():
                return True
    return False


@pytest.mark.parametrize("p_init", [0.8, 0.1])
def test_every_candidate_is_the_best_so_far_with_one_window_repainted(p_init: float) -> None:
    shape, budget = (3, 7, 9), 200
    image = random_image(shape, margin=0.2)
    noise = np.random.default_rng(5)
    exchanges = converse(Square(p_init), context_of(image, 0.1, budget), lambda _: float(noise.random()), asks=budget)
    best, highest = exchanges[0].images[0] > image, exchanges[0].losses[0]
    for iteration, exchange in enumerate(exchanges[1:]):
        candidate = exchange.images[0] > image
        side = expected_side(p_init, iteration, budget, 7, 9)
        assert (candidate != best).any()
        assert is_one_repainted_window(best, candidate, side)
        if exchange.losses[0] > highest:
            best, highest = candidate, exchange.losses[0]


def test_a_candidate_that_is_only_as_good_is_not_kept() -> None:
    image = random_image((3, 6, 6), margin=0.2)
    first, *others = converse(Square(), context_of(image, 0.1, 60), lambda _: 1.0, asks=60)
    for iteration, exchange in enumerate(others):
        side = expected_side(0.8, iteration, 60, 6, 6)
        assert is_one_repainted_window(first.images[0] > image, exchange.images[0] > image, side)


def test_it_asks_for_corners_one_at_a_time_and_pays_for_each() -> None:
    context = context_of(random_image((3, 6, 6)), 0.1, 50)
    exchanges = converse(Square(), context, smooth_loss((3, 6, 6)), asks=50)
    assert all(isinstance(exchange.ask.points, Corners) and exchange.ask.points.size == 1 for exchange in exchanges)
    assert all(exchange.ask.charged and exchange.ask.eligible_from == -math.inf for exchange in exchanges)
    assert in_ball(context, asked_images(exchanges)).all()


def test_it_has_something_to_ask_for_its_whole_budget() -> None:
    exchanges = converse(Square(), context_of(random_image((3, 6, 6)), 0.1, 50), smooth_loss((3, 6, 6)), asks=10**6)
    assert len(exchanges) >= 50


def test_its_own_loss_is_the_margin_to_leave_a_class_and_cross_entropy_to_reach_one() -> None:
    assert Square().own_loss(targeted=False) == "margin"
    assert Square().own_loss(targeted=True) == "cross-entropy"
    assert NES().own_loss(targeted=False) == "cross-entropy"


def test_presets_are_those_of_the_authors() -> None:
    assert {name: Square.preset(name).p_init for name in Square.presets} == {
        "cifar10": 0.8,
        "imagenet": 0.05,
        "imagenet-targeted": 0.01,
    }


@pytest.mark.parametrize("p_init", [0, -0.1, 1.01])
def test_settings_that_cannot_be_are_refused(p_init: Any) -> None:
    with pytest.raises(InputError, match=f"p_init must be a number from 1e-09 to 1; got {p_init}"):
        Square(p_init)

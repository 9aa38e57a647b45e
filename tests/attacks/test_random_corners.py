"""Random corners: the floor that every attack must beat."""

from __future__ import annotations

import numpy as np
import pytest

from driving import Shape, Steadfast, asked_images, context_of, converse, random_image, run, smooth_loss
from parsimon import InputError, Threat
from parsimon.attacks import RandomCorners


@pytest.mark.parametrize(("shape", "block", "side"), [((3, 8, 8), 2, 2), ((1, 4, 12), 4, 4), ((3, 32, 32), None, 4)])
def test_each_query_is_a_corner_that_is_constant_on_blocks(shape: Shape, block: int | None, side: int) -> None:
    image = random_image(shape, margin=0.2)
    channels, height, width = shape
    exchanges = converse(RandomCorners(block), context_of(image, 0.1), smooth_loss(shape), asks=20)
    for exchange in exchanges:
        assert exchange.ask.charged
        assert len(exchange.images) == 1
        noise = exchange.images[0] - image
        np.testing.assert_allclose(np.abs(noise), 0.1, atol=1e-6)
        blocks = (noise > 0).reshape(channels, height // side, side, width // side, side)
        assert (blocks == blocks[:, :, :1, :, :1]).all()


def test_corners_are_cut_off_where_the_range_of_pixels_ends() -> None:
    image = np.array([0, 0.05, 0.95, 1], np.float32).reshape(1, 2, 2)
    asked = asked_images(converse(RandomCorners(1), context_of(image, 0.1), smooth_loss((1, 2, 2)), asks=60))
    np.testing.assert_allclose(asked.min(axis=0).reshape(-1), [0, 0, 0.85, 0.9], atol=1e-6)
    np.testing.assert_allclose(asked.max(axis=0).reshape(-1), [0.1, 0.15, 1, 1], atol=1e-6)


def test_every_block_is_up_about_half_of_the_time_whatever_the_others_are() -> None:
    """4.5 standard deviations of a fair coin, for each block and for each pair of blocks."""
    image, draws = random_image((1, 6, 6), margin=0.2), 4000
    asked = asked_images(converse(RandomCorners(2), context_of(image, 0.1), lambda _: 0.0, asks=draws))
    up = (asked > image)[:, 0, ::2, ::2].reshape(draws, 9) * 2.0 - 1
    agreement = up.T @ up / draws
    bound = 4.5 / np.sqrt(draws)
    assert np.abs(up.mean(axis=0)).max() < bound
    assert np.abs(agreement - np.eye(9)).max() < bound


def test_what_it_asks_depends_on_the_seed_alone() -> None:
    image = random_image((3, 8, 8))
    one, same, other = (
        asked_images(converse(RandomCorners(2), context_of(image), loss, asks=30, seed=seed))
        for seed, loss in ((0, smooth_loss((3, 8, 8))), (0, lambda _: 0.0), (1, smooth_loss((3, 8, 8))))
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_it_goes_on_until_its_budget_is_gone() -> None:
    model = Steadfast((1, 4, 4))
    outcome = run(RandomCorners(), model, random_image((1, 4, 4)), Threat(0.1), budget=70)
    assert (outcome.ended, outcome.queries, outcome.uncharged, outcome.outside) == ("budget", 70, 0, 0)
    assert len(model.shown) == 70


@pytest.mark.parametrize("block", [3, 0, -2, 16])
def test_a_block_that_cannot_be_is_refused(block: int) -> None:
    with pytest.raises(InputError, match="block"):
        converse(RandomCorners(block), context_of(random_image((3, 8, 8))), lambda _: 0.0, asks=1)

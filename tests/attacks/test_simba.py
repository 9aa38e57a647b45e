"""SimBA, against scipy's discrete cosine transform and the paper's Algorithm 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft

from driving import (
    Exact,
    Shape,
    Steadfast,
    asked_images,
    context_of,
    converse,
    in_ball,
    random_image,
    run,
    smooth_loss,
)
from parsimon import InputError, Threat
from parsimon.attacks import SimBA

SHAPES = [(3, 8, 8), (1, 6, 10), (2, 9, 4)]


def visited_directions(attack: SimBA, shape: Shape, count: int, seed: int = 0) -> Exact:
    """The first directions along which it steps back and forth, of length 1, where no step is kept.

    In the middle of the widest ball, so that nothing is projected.
    """
    image = np.full(shape, 0.5, np.float32)
    losses = iter([1.0])
    exchanges = converse(attack, context_of(image, 0.5), lambda _: next(losses, 0.0), asks=1 + 2 * count, seed=seed)
    clean, *candidates = asked_images(exchanges).astype(np.float64)
    np.testing.assert_array_equal(clean, image)
    back, forth = np.stack(candidates[::2]) - clean, np.stack(candidates[1::2]) - clean
    np.testing.assert_allclose(back, -forth, atol=1e-6)
    directions: Exact = forth / attack.step
    return directions


def wave(shape: Shape, channel: int, row: int, column: int) -> Exact:
    """One orthonormal wave: the image whose cosine transform is 1 at one frequency."""
    spectrum = np.zeros(shape)
    spectrum[channel, row, column] = 1
    image: Exact = scipy.fft.idctn(spectrum, axes=(1, 2), norm="ortho")
    return image


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("frequencies", [1 / 8, 0.5, 1.0])
def test_cosine_directions_are_scipys_and_each_is_visited_once_in_a_pass(shape: Shape, frequencies: float) -> None:
    channels, height, width = shape
    rows, columns = (max(1, round(frequencies * side)) for side in (height, width))
    every = {(c, r, k) for c in range(channels) for r in range(rows) for k in range(columns)}
    visited = visited_directions(SimBA("dct", 0.2, frequencies), shape, 2 * len(every))
    numbers = []
    for direction in visited:
        spectrum = scipy.fft.dctn(direction, axes=(1, 2), norm="ortho")
        channel, row, column = map(int, np.unravel_index(np.abs(spectrum).argmax(), shape))
        np.testing.assert_allclose(direction, wave(shape, channel, row, column), atol=2e-6)
        numbers.append((channel, row, column))
    first, second = numbers[: len(every)], numbers[len(every) :]
    assert len(first) == len(set(first))
    assert len(second) == len(set(second))
    assert set(first) == set(second) == every
    if len(every) > 8:
        assert first != second


@pytest.mark.parametrize("shape", SHAPES)
def test_pixel_directions_are_single_pixels_and_each_is_visited_once_in_a_pass(shape: Shape) -> None:
    pixels = int(np.prod(shape))
    visited = visited_directions(SimBA("pixel"), shape, 2 * pixels).reshape(2, pixels, pixels)
    for of_pass in visited:
        np.testing.assert_allclose(np.sort(of_pass, axis=1)[:, :-1], 0, atol=1e-6)
        np.testing.assert_allclose(of_pass.max(axis=1), 1, atol=1e-6)
        assert sorted(of_pass.argmax(axis=1).tolist()) == list(range(pixels))
    assert visited[0].argmax(axis=1).tolist() != visited[1].argmax(axis=1).tolist()


@pytest.mark.parametrize("attack", [SimBA("pixel"), SimBA("dct", frequencies=1.0)], ids=str)
def test_directions_are_orthonormal(attack: SimBA) -> None:
    directions = visited_directions(attack, (2, 6, 5), 60).reshape(60, -1)
    np.testing.assert_allclose(directions @ directions.T, np.eye(60), atol=1e-5)


@pytest.mark.parametrize("attack", [SimBA("pixel", 0.05), SimBA("dct", 0.3, 1.0)], ids=str)
def test_it_steps_back_then_forth_and_keeps_a_step_only_if_the_loss_has_risen(attack: SimBA) -> None:
    shape = (2, 6, 5)
    image, eps = np.full(shape, 0.5, np.float32), 0.5  # wide enough for no step to leave it, in less than a pass
    noise = np.random.default_rng(2)
    losses = iter(noise.integers(0, 5, 60) + np.arange(60) // 4)  # on the rise, with ties
    exchanges = converse(attack, context_of(image, eps), lambda _: float(next(losses)), asks=60)
    kept, highest = exchanges[0].images[0].astype(np.float64), exchanges[0].losses[0]
    np.testing.assert_array_equal(kept, image)
    tried: list[Exact] = []
    back: Exact | None = None
    kept_back = kept_forth = 0
    for exchange in exchanges[1:]:
        move = exchange.images[0] - kept
        assert np.linalg.norm(move) == pytest.approx(attack.step, rel=1e-4)
        if back is None:  # a direction that was not tried before, whatever became of the last one
            assert all(abs((move * former).sum()) < 1e-5 for former in tried)
            tried.append(move)
            back = move
        else:
            np.testing.assert_allclose(move, -back, atol=1e-6)
            back = None
        if exchange.losses[0] > highest:
            kept_back += back is not None
            kept_forth += back is None
            kept, highest, back = exchange.images[0].astype(np.float64), exchange.losses[0], None
    assert min(kept_back, kept_forth) > 2


def test_the_first_step_along_a_pixel_is_down() -> None:
    image = random_image((3, 4, 4), margin=0.3)
    clean, first, second = asked_images(
        converse(SimBA("pixel"), context_of(image, 0.1), smooth_loss((3, 4, 4), scale=0.0), asks=3)
    )
    assert (first - clean).min() == pytest.approx(-0.1, abs=1e-6)  # a step of 0.2, projected
    assert (second - clean).max() == pytest.approx(0.1, abs=1e-6)
    assert (first - clean).argmin() == (second - clean).argmax()


@pytest.mark.parametrize("attack", [SimBA("pixel"), SimBA("dct"), SimBA("dct", 1.0, 1.0)], ids=str)
def test_candidates_stay_in_the_ball_and_the_best_loss_rises(attack: SimBA) -> None:
    shape = (3, 8, 8)
    context = context_of(random_image(shape), 0.05)
    exchanges = converse(attack, context, smooth_loss(shape), asks=400)
    assert in_ball(context, asked_images(exchanges)).all()
    losses = [exchange.losses[0] for exchange in exchanges]
    assert max(losses) > losses[0]


def test_it_goes_on_until_its_budget_is_gone() -> None:
    shape = (1, 4, 4)
    outcome = run(SimBA("dct", frequencies=0.5), Steadfast(shape), random_image(shape), Threat(0.1), budget=300)
    assert (outcome.ended, outcome.queries, outcome.uncharged, outcome.outside) == ("budget", 300, 0, 0)


def test_the_order_is_that_of_the_seed() -> None:
    one, same, other = (visited_directions(SimBA("pixel"), (1, 5, 5), 25, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_presets_are_those_of_the_paper() -> None:
    assert SimBA.preset("imagenet-pixel") == SimBA("pixel", 0.2)
    assert SimBA.preset("imagenet-dct") == SimBA("dct", 0.2, 28 / 224)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"basis": "wavelet"}, "basis must be one of pixel, dct; got 'wavelet'"),
        ({"step": 0}, "step must be a number from 1e-09"),
        ({"frequencies": 0}, "frequencies must be a number from 1e-09 to 1; got"),
        ({"frequencies": 1.1}, "frequencies must be a number from 1e-09 to 1; got"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        SimBA(**settings)

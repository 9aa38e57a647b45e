"""Bandits, against a literal twin with the exponentiated gradient of the textbook and torch's own stretching."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from driving import (
    Exact,
    Loss,
    Pixels,
    Shape,
    Startled,
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
from parsimon.attacks import Bandits

SHAPE = (3, 8, 8)


def exponentiated_gradient_step(prior: Exact, gradient: Exact, rate: float) -> Exact:
    """Of a prior in [-1, 1]: each entry is a probability of +1, and is weighed against that of -1."""
    chance = (prior + 1) / 2
    up, down = chance * np.exp(rate * gradient), (1 - chance) * np.exp(-rate * gradient)
    stepped: Exact = 2 * up / (up + down) - 1
    return stepped


def twin(attack: Bandits, image: Pixels, eps: float, loss: Loss, steps: int, rng: np.random.Generator) -> Exact:
    """All images that the attack asks for: two probes and the new image in each step (Algorithms 2 and 3)."""
    channels, height, width = image.shape
    clean = image.astype(np.float64)
    stretch = torch.nn.Upsample(size=(height, width), mode="nearest")
    prior = np.zeros((channels, min(attack.tile, height), min(attack.tile, width)))
    current, asked = clean, []

    def stretched(small: Exact) -> Exact:
        return np.asarray(stretch(torch.from_numpy(small)[None])[0])

    def ask(shown: Exact) -> float:
        asked.append(shown)
        return loss(shown.astype(np.float32))

    for _ in range(steps):
        noise = np.asarray(rng.standard_normal(prior.shape, np.float32), np.float64)
        exploring = attack.exploration * noise / math.sqrt(noise.size)
        directions = stretched(prior + exploring), stretched(prior - exploring)
        above, below = (ask(current + attack.probe * each / np.sqrt((each**2).sum())) for each in directions)
        gradient = (above - below) / (attack.probe * attack.exploration) * exploring
        prior = exponentiated_gradient_step(prior, gradient, attack.online_step)
        current = current + attack.step * np.sign(stretched(prior))
        current = np.clip(np.clip(current, clean - eps, clean + eps), 0, 1)
        ask(current)
    return np.stack(asked)


@pytest.mark.parametrize("attack", [Bandits(tile=4), Bandits(1.0, 0.005, 1.0, 1.0, tile=4)], ids=str)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_asks_what_the_twin_asks(attack: Bandits, seed: int) -> None:
    compare(attack, SHAPE, seed)


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((3, 8, 8), 3),
        ((3, 9, 7), 5),
        ((1, 6, 13), 4),
        ((3, 12, 5), 7),  # higher than the tile and narrower
        ((3, 8, 8), 8),
        ((3, 6, 9), 50),  # clipped to the image
        ((1, 1, 1), 1),
        ((3, 32, 32), 20),
    ],
)
def test_tiles_of_any_size_are_stretched_to_images_of_any_shape(shape: Shape, tile: int) -> None:
    compare(Bandits(tile=tile), shape, seed=3)


def compare(attack: Bandits, shape: Shape, seed: int) -> None:
    image, eps, steps = random_image(shape, seed), 0.1, 50
    loss = smooth_loss(shape, seed, scale=0.1)
    expected = twin(attack, image, eps, loss, steps, np.random.default_rng(seed))
    asked = asked_images(converse(attack, context_of(image, eps), loss, 2 * steps, seed))
    assert asked.shape == expected.shape == (3 * steps, *shape)
    np.testing.assert_allclose(asked, expected, atol=1e-5)


@given(
    prior=st.floats(-0.999, 0.999),
    gradient=st.floats(-3, 3),
    rate=st.sampled_from([0.01, 0.1, 1.0]),
    more=st.floats(-3, 3),
)
def test_exponentiated_gradient_steps_are_plain_steps_of_the_inverse_hyperbolic_tangent(
    prior: float, gradient: float, rate: float, more: float
) -> None:
    """The form that the attack takes its steps in."""
    textbook = np.array(prior)
    for each in (gradient, more):
        textbook = exponentiated_gradient_step(textbook, np.array(each), rate)
    assert math.tanh(math.atanh(prior) + rate * gradient + rate * more) == pytest.approx(float(textbook), abs=1e-9)


def test_a_prior_that_was_certain_can_still_change_its_mind() -> None:
    """With a learning rate of 100 the textbook's form is soon at +1 or -1 in floating point, and stays there."""
    image = np.full((1, 1, 1), 0.5, np.float32)
    attack = Bandits.preset("imagenet-0.05")
    exchanges = converse(attack, context_of(image, 0.5), lambda shown: -abs(float(shown.item()) - 0.6), asks=400)
    places = [exchange.images.item() for exchange in exchanges[1::2]]
    assert max(places) > 0.75  # it goes on for a while
    assert min(places[places.index(max(places)) :]) < 0.7


@pytest.mark.parametrize(
    ("preset", "table"),
    [
        ("cifar10", (0.1, 0.01, 0.1, 0.1, 16)),
        ("imagenet-0.05", (100, 0.01, 1, 0.1, 50)),
        ("imagenet-0.03", (100, 0.005, 1, 1, 50)),
        ("imagenet-0.01", (100, 0.001, 0.1, 1, 50)),
        ("imagenet-targeted", (1, 0.001, 1, 0.1, 50)),
    ],
)
def test_presets_are_the_papers_table(preset: str, table: tuple[float, ...]) -> None:
    attack = Bandits.preset(preset)
    assert (attack.online_step, attack.step, attack.exploration, attack.probe, attack.tile) == table
    assert not attack.strict
    assert len(Bandits.presets) == 5


def test_as_published_a_step_is_two_queries_and_a_free_check() -> None:
    model = Steadfast(SHAPE)
    outcome = run(Bandits(tile=4), model, random_image(SHAPE), Threat(0.1), budget=40)
    assert (outcome.ended, outcome.queries, outcome.uncharged) == ("budget", 40, 20)
    assert len(model.shown) == 60


def test_a_strict_one_pays_for_its_checks() -> None:
    model = Steadfast(SHAPE)
    outcome = run(Bandits(tile=4, strict=True), model, random_image(SHAPE), Threat(0.1), budget=40)
    assert (outcome.ended, outcome.queries, outcome.uncharged) == ("budget", 40, 0)
    assert len(model.shown) == 40


def test_probes_outside_the_ball_are_counted() -> None:
    model, image = Steadfast(SHAPE), random_image(SHAPE)
    outcome = run(Bandits(tile=4, probe=0.5), model, image, Threat(0.05), budget=60)
    outside = ~in_ball(context_of(image, 0.05), np.stack(model.shown))
    assert not outside[2::3].any()  # the checks
    assert outcome.outside == np.count_nonzero(outside)
    assert outcome.outside > 40


@pytest.mark.parametrize(("strict", "queries"), [(False, 2), (True, 3)])
def test_only_a_check_can_be_a_success(strict: bool, queries: int) -> None:
    image = random_image(SHAPE, margin=0.1)
    outcome = run(Bandits(tile=4, strict=strict), Startled(image), image, Threat(0.1), budget=100)
    assert (outcome.success, outcome.predicted, outcome.queries) == (True, 1, queries)
    assert (outcome.uncharged, outcome.outside) == (1 - strict, 0)


@pytest.mark.parametrize("name", ["online_step", "step", "exploration", "probe", "tile"])
@pytest.mark.parametrize("value", [0, -1])
def test_settings_that_cannot_be_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"{name} must be a .*; got {value}"):
        Bandits(**{name: value})

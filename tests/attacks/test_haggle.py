"""Haggle: its estimates against numerical integration, its order against a slow twin, and linear models."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from driving import Exchange, Pixels, Steadfast, asked_images, converse, drawn, random_image, run
from parsimon import Threat
from parsimon.attacks import Haggle, RayS
from parsimon.attacks.blocks import levels_across, lighter_pixels, plain_levels
from parsimon.attacks.haggle import Bargain, Refiner, _block_sums, _hazard
from parsimon.core.threat import to_eight_bit
from parsimon.core.types import ImageContext, Images, Reply, next_ask

LABEL = Threat(0.05, loss="label")
SHAPES = [(3, 8, 8), (1, 8, 8), (3, 9, 7), (2, 5, 6), (1, 1, 5), (1, 1, 1), (3, 16, 5)]


def context_of(image: Pixels, threat: Threat = LABEL, example: Pixels | None = None) -> ImageContext:
    return ImageContext(0, image, threat, 10_000, example)


class Linear:
    """A linear decision whose boundary lies at this L-infinity distance from the image; some weights are smooth."""

    def __init__(self, image: Pixels, radius: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        coarse = rng.normal(size=(image.shape[0], 2, 2)).repeat(image.shape[1] // 2, 1).repeat(image.shape[2] // 2, 2)
        fine = rng.normal(size=image.shape)
        self.weights = coarse + fine + 0.2 * np.sign(coarse + fine)  # none is near 0
        self._image, self._level = image, radius * np.abs(self.weights).sum()

    def margin(self, shown: Pixels) -> float:
        return float((self.weights * (shown.astype(np.float64) - self._image)).sum() - self._level)

    def loss(self, shown: Pixels) -> float:
        return 0.0 if self.margin(shown) > 0 else -np.inf

    def __call__(self, images: Pixels) -> Any:
        return np.array([[0, self.margin(image)] for image in images])


def radii_of(image: Pixels, exchanges: list[Exchange]) -> Any:
    return np.abs(asked_images(exchanges).astype(np.float64) - image).max(axis=(1, 2, 3))


# --- estimates --------------------------------------------------------------------------------------------------------


def moments(density: Any, low: float, high: float) -> tuple[float, float]:
    """Mean and variance of a density that need not integrate to 1, by numerical integration."""
    total, first, second = (
        integrate.quad(lambda at, power=power: at**power * density(at), low, high, epsabs=0, epsrel=1e-9, limit=500)[0]
        for power in range(3)
    )
    return first / total, second / total - (first / total) ** 2


@pytest.mark.parametrize("z", np.linspace(-5.5, 3.5, 10))
def test_the_hazard_is_the_mean_of_a_truncated_normal_variable(z: float) -> None:
    mean, _ = moments(stats.norm.pdf, -z, 14)
    assert _hazard(z) == pytest.approx(mean, rel=1e-7, abs=1e-10)


@pytest.mark.parametrize("z", [-6.1, -9.0, -35.0, -300.0])
def test_far_out_the_hazard_is_nearly_that(z: float) -> None:
    exact = np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z))
    assert _hazard(z) == pytest.approx(exact, rel=0.03)


CASES = [(mean, effect) for mean in (17.0, 20.0, 22.0) for effect in (None, (-1.0, 2.0), (0.5, 4.0), (0.0, 0.5))]


def estimate(mean: float, deviation: float) -> Bargain:
    image = random_image((3, 8, 8))
    bargain = Bargain(context_of(image, replace(LABEL, until_budget=True)), np.zeros((8, 8, 3), np.bool_))
    bargain.mean, bargain._variance = mean, deviation**2
    return bargain


@pytest.mark.parametrize(("mean", "effect"), CASES)
@pytest.mark.parametrize("adversarial", [True, False])
def test_an_answer_changes_the_estimate_to_the_mean_and_variance_of_what_is_left(
    mean: float, effect: tuple[float, float] | None, adversarial: bool
) -> None:
    """If a flip is kept, of value and effect together; if not, of the value alone."""
    deviation, asked = 2.5, 20.0
    bargain = estimate(mean, deviation)
    effects = [] if effect is None else [NormalDist(*effect)]
    bargain._learn(asked, adversarial, *effects)
    shift, spread = effect or (0.0, 0.0)
    if adversarial:
        after = stats.norm(mean + shift, np.hypot(deviation, spread))
        expected = moments(after.pdf, asked, asked + 60)
    elif effect is None:
        expected = moments(stats.norm(mean, deviation).pdf, asked - 60, asked)
    else:
        declined = stats.norm(shift, spread)
        expected = moments(lambda v: stats.norm.pdf(v, mean, deviation) * declined.cdf(asked - v), mean - 40, mean + 40)
    assert bargain.mean == pytest.approx(expected[0])
    assert bargain._variance == pytest.approx(expected[1], rel=1e-5)


@pytest.mark.parametrize("adversarial", [True, False])
@pytest.mark.parametrize("mean", [1.0, 400.0])
def test_a_surprising_answer_leaves_an_estimate_to_continue_from(mean: float, adversarial: bool) -> None:
    bargain = estimate(mean, 0.01)
    bargain._learn(20.0, adversarial)
    assert bargain.mean == pytest.approx(20 if (mean < 20) == adversarial else mean)
    assert 0 < bargain._variance <= 0.01**2


def test_after_a_decline_at_the_goal_the_mean_is_below_the_goal() -> None:
    bargain = Bargain(context_of(random_image((3, 8, 8))), np.zeros((8, 8, 3), np.bool_))
    bargain.mean, bargain._variance = 1.5 * bargain.goal, 0.01
    bargain._learn(bargain.goal, False)
    assert bargain.mean < bargain.goal


# --- blocks -----------------------------------------------------------------------------------------------------------


def block(number: int, across: int, side: int) -> slice:
    return slice(number * side // across, (number + 1) * side // across)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("across", [1, 2, 4, 8, 16])
def test_sums_over_blocks_are_those_of_each_block(shape: tuple[int, int, int], across: int) -> None:
    channels, height, width = shape
    values = np.random.default_rng(0).integers(-9, 10, (height, width, channels))
    expected = [
        [values[block(row, across, height), block(column, across, width)].sum() for column in range(across)]
        for row in range(across)
    ]
    np.testing.assert_array_equal(_block_sums(values, across), expected)


Place = tuple[int, int, int]  # group, row, column


def next_block(refiner: Refiner, signs: Any, tested: set[Place]) -> tuple[Place, Any]:
    """Return the block to test next, and its pixels: by loops over all blocks, with all means computed anew."""
    across, groups = refiner._levels[refiner._depth]
    height, width, _ = signs.shape
    flips: dict[Place, Any] = {}
    for group, row, column in np.ndindex(len(groups), across, across):
        pixels, channels = groups[group]
        window = block(row, across, height), block(column, across, width)
        flip = np.zeros_like(signs)
        flip[(*window, channels)] = pixels[window]
        if flip.any():
            flips[group, row, column] = flip
    means = {place: float(np.where(signs[flip], 1, -1).mean()) for place, flip in flips.items()}

    def priority(place: Place) -> float:
        group, row, column = place
        beside = [(group, row + down, column + right) for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1))]
        other_groups = [(other, row, column) for other in range(len(groups)) if other != group]
        own = means[place]
        around = sum(means.get(other, 0.0) if max(other[1:]) < across and min(other) >= 0 else own for other in beside)
        around += sum(means.get(other, 0.0) for other in other_groups)
        return float(refiner._ties[place]) - own * around

    chosen = max((place for place in flips if place not in tested), key=priority)
    return chosen, flips[chosen]


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 9, 7), (1, 4, 6)])
def test_blocks_are_tested_in_the_order_of_a_slow_twin(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    context = context_of(random_image(shape, margin=0.1))
    image, light = context.image.transpose(1, 2, 0), lighter_pixels(context.image)
    corner = Bargain(context, ~light)
    refiner = Refiner(plain_levels(light, levels_across(*shape[1:])), corner)
    tested: set[Place] = set()
    depths: list[int] = []
    while not refiner.done:
        before, expected, flipped = corner.signs.copy(), None, np.zeros(image.shape, np.bool_)
        search, reply = refiner.test_next(rng), None
        while (ask := next_ask(search, reply)) is not None:
            if depths[-1:] != [refiner._depth]:
                depths.append(refiner._depth)
                tested.clear()
            if expected is None:
                place, expected = next_block(refiner, before, tested)
                tested.add(place)
            if not flipped.any():
                flipped = (drawn(context, ask)[0].transpose(1, 2, 0) > image) != before
            reply = Reply(np.array([0.0 if rng.random() < 0.4 else -np.inf]))
        if expected is not None:
            np.testing.assert_array_equal(flipped, expected)
    assert depths == list(range(len(refiner._levels)))


# --- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("until_budget", [False, True])
def test_every_ask_is_one_point_in_range_and_none_is_closer_than_needed(
    shape: tuple[int, int, int], until_budget: bool
) -> None:
    image = random_image(shape, margin=0.4)
    rng = np.random.default_rng(2)

    def at_random(shown: Pixels) -> float:
        """Answer at random outside the ball, and decline within it unless the attack is to continue there."""
        inside = float(np.abs(shown - image).max()) <= LABEL.eps + 1e-6
        return 0.0 if (until_budget or not inside) and rng.random() < 0.5 else -np.inf

    threat = replace(LABEL, until_budget=until_budget)
    exchanges = converse(Haggle(), context_of(image, threat), at_random, asks=300)
    assert len(exchanges) == 300
    assert {exchange.ask.points.size for exchange in exchanges} == {1}
    shown = asked_images(exchanges)
    assert shown.min() >= 0
    assert shown.max() <= 1
    closest = radii_of(image, exchanges).min()
    assert closest < LABEL.eps - 1e-3 if until_budget else closest >= LABEL.eps - 1e-6


@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_that_is_never_fooled_costs_exactly_the_budget(shape: tuple[int, int, int]) -> None:
    model = Steadfast(shape)
    outcome = run(Haggle(), model, random_image(shape), LABEL, budget=173)
    assert (outcome.ended, outcome.queries, outcome.radius, len(model.shown)) == ("budget", 173, None, 173)


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 7, 6)])
@pytest.mark.parametrize("until_budget", [False, True])
def test_in_8_bit_mode_all_pixels_move_by_the_same_number_of_levels(
    shape: tuple[int, int, int], until_budget: bool
) -> None:
    image = to_eight_bit(random_image(shape))
    threat = Threat(6.5 / 255, loss="label", eight_bit=True, until_budget=until_budget)
    rng = np.random.default_rng(3)
    exchanges = converse(Haggle(), context_of(image, threat), lambda _: rng.choice([0.0, -np.inf]), asks=200)
    before = np.rint(255 * image.astype(np.float64))
    radii = set()
    for shown in asked_images(exchanges):
        levels = np.rint(255 * shown.astype(np.float64))
        np.testing.assert_array_equal(shown, (levels / 255).astype(np.float32))
        radius = np.abs(levels - before).max()
        moved = np.abs(levels - before) == radius
        assert (moved | (levels == 0) | (levels == 255)).all()
        radii.add(int(radius))
    assert len(radii) > 5
    assert (min(radii) == 6) != until_budget


# --- linear models ----------------------------------------------------------------------------------------------------


def test_on_a_linear_model_it_comes_close_to_the_best_corner() -> None:
    for seed in range(3):
        image = random_image((3, 8, 8), seed, margin=0.4)
        model = Linear(image, 0.02, seed)
        threat = replace(LABEL, until_budget=True)
        exchanges = converse(Haggle(), context_of(image, threat), model.loss, asks=1000, seed=seed)
        adversarial = np.array([np.isfinite(exchange.losses[0]) for exchange in exchanges])
        radii = np.where(adversarial, radii_of(image, exchanges), np.inf)
        assert 0.02 <= radii.min() < 1.2 * 0.02
        closest = asked_images(exchanges)[radii.argmin()]
        wrong = (closest > image) != (model.weights > 0)
        assert np.abs(model.weights)[wrong].sum() < 0.1 * np.abs(model.weights).sum()


def test_on_linear_models_it_needs_far_fewer_queries_than_rays() -> None:
    queries: dict[str, list[int]] = {"haggle": [], "rays": []}
    for seed in range(4):
        image = random_image((3, 8, 8), seed, margin=0.4)
        model = Linear(image, 0.05 / 1.4, seed)
        for name, attack in (("haggle", Haggle()), ("rays", RayS())):
            outcome = run(attack, model, image, LABEL, budget=2000, seed=seed)
            queries[name].append(outcome.queries)
    assert np.mean(queries["haggle"]) < 0.6 * np.mean(queries["rays"])


def test_until_the_budget_is_spent_the_radius_keeps_shrinking() -> None:
    image = random_image((3, 8, 8), margin=0.4)
    model, threat = Linear(image, 0.02, 0), replace(LABEL, until_budget=True)
    short, long = (run(Haggle(), model, image, threat, budget=budget) for budget in (200, 800))
    assert short.success
    assert short.queries == long.queries
    assert (short.charged, long.charged) == (200, 800)
    assert long.radii[: len(short.radii)] == short.radii
    assert short.radius is not None
    assert long.radius is not None
    assert long.radius < 0.9 * short.radius < 0.9 * LABEL.eps


# --- targeted ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eight_bit", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_targeted_attack_approaches_its_image_from_the_example(shape: tuple[int, int, int], eight_bit: bool) -> None:
    """Until a flip, every point is the example, clipped to a ball; the example itself is not asked for."""
    image, example = (to_eight_bit(random_image(shape, seed)) for seed in (0, 1))
    image.flat[0], example.flat[0] = 0, 1
    threat = Threat(8 / 255, targeted=True, loss="label", eight_bit=eight_bit)
    search = Haggle().search(context := context_of(image, threat, example), np.random.default_rng(0))
    shown: list[Pixels] = []
    reply: Reply | None = None
    while (ask := next_ask(search, reply)) is not None and len(shown) < 100:
        if isinstance(ask.points, Images):
            shown.append(drawn(context, ask)[0])
        reply = Reply(np.array([-np.inf]))
    radii = []
    for point in shown[:4]:  # 16, 32, 64 and 128 levels
        radius = np.abs(point - image).max()
        np.testing.assert_allclose(point, image + np.clip(example - image, -radius, radius), atol=1e-6)
        radii.append(float(radius))
    assert all(radius <= 2 * 8 / 255 * 2**number + 1e-6 for number, radius in enumerate(radii))
    assert not any(np.array_equal(point, example) for point in shown[:4])

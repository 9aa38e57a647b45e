"""Attacks on random models: how often they err, against simulated models whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from driving import drawn, random_image, smooth_loss
from parsimon.attacks import ATTACKS
from parsimon.attacks.registry import parse_attack
from parsimon.core.grid import Grid
from parsimon.core.random_search import RandomSearch
from parsimon.core.threat import LEAST_ERROR_RATE, Sampling, Threat
from parsimon.core.types import (
    Ask,
    Attack,
    Corner,
    Corners,
    Ended,
    ImageContext,
    Images,
    Reply,
    Search,
    next_ask,
)
from parsimon.errors import InputError

Pixels = NDArray[np.float32]
Losses = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Losses]
Draw = Callable[[Pixels, np.random.Generator], Losses]  # one loss per image

SURE = 1e-6  # a test that is right fails with at most this probability
RATES = [0.05, 0.2]
SCORE_BASED = [name for name, kind in ATTACKS.items() if kind.needs not in ("label", "gradient")]
NOISES: dict[str, Noise] = {
    "gaussian": lambda rng, size: rng.normal(size=size),
    "laplace": lambda rng, size: rng.laplace(size=size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "two values": lambda rng, size: rng.choice([-1.0, 1.0], size=size),
}


def context_of(error_rate: float = 0.05, budget: int = 10**9, draws: int = 1, repeats: int = 1) -> ImageContext:
    sampling = Sampling(repeats=repeats, draws=draws, error_rate=error_rate)
    return ImageContext(0, np.full((1, 4, 4), 0.5, np.float32), Threat(0.1, loss="margin", sampling=sampling), budget)


def converse(attack: Attack, context: ImageContext, draw: Draw, seed: int) -> tuple[Ended | None, int]:
    """Run an attack on a simulated model. Return how it ended before its fresh draws, and the queries."""
    rng = np.random.default_rng([seed, 1])
    search = RandomSearch(attack, context, np.random.default_rng(seed)).run()
    queries = 0
    ask = next_ask(search, None)
    while ask is not None and ask.verdict is None:
        assert isinstance(ask.points, Images)
        queries += ask.points.size
        ask = next_ask(search, Reply(draw(ask.points.pixels, rng)))
    return (None if ask is None else ask.verdict), queries


@dataclass(frozen=True)
class Proposals(Attack):
    """Changes one pixel of the best image at a time, and keeps the change if its loss is reported to be higher.

    Pixel 0 carries the loss of a simulated model; the others carry none.
    """

    count: int
    pixel: int = 1
    step: float = 0.001
    accepted: list[bool] = field(default_factory=list)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        best = context.image.copy()
        loss = (yield Ask(Images(best[None]))).loss[0]
        for _ in range(self.count):
            changed = best.copy()
            changed.flat[self.pixel] += self.step
            found = (yield Ask(Images(changed[None]))).loss[0]
            self.accepted.append(found > loss)
            if found > loss:
                best, loss = changed, found


@dataclass(frozen=True)
class Flips(Attack):
    """Asks for sets that differ from one base in one block, all in one ask, as a greedy search does."""

    blocks: Sequence[int]
    accepted: list[bool] = field(default_factory=list)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        grid = Grid(context.shape, context.shape[1:], 1)
        base = np.zeros(grid.count, np.bool_)
        loss = (yield Ask(Corners(grid, base))).loss[0]
        reply = yield Ask(Corners(grid, base, list(self.blocks)))
        self.accepted.extend((reply.loss > loss).tolist())


def noisy(images: Pixels, rng: np.random.Generator, noise: Noise, slope: float = 0.0) -> Losses:
    """The loss is linear in pixel 0, below 0, plus noise."""
    return slope * (images[:, 0, 0, 0].astype(np.float64) - 0.5) - 1e6 + noise(rng, len(images))


def spreading(images: Pixels, rng: np.random.Generator) -> Losses:
    """The noise grows with pixel 1, about a median that does not change: above another draw in half of all pairs."""
    spread = np.exp(1000 * (images[:, 0, 0, 1].astype(np.float64) - 0.5))
    return rng.normal(size=len(images)) * spread - 1e6


def lucky(images: Pixels, rng: np.random.Generator) -> Losses:
    """A change of pixel 1 raises the mean of the loss, by rare high draws, but lowers the loss in most pairs."""
    changed = np.rint(1000 * (images[:, 0, 0, 1].astype(np.float64) - 0.5))
    high = rng.random(len(images)) < 0.1
    return np.where(high, 100 * changed, -0.2 * changed) + rng.normal(size=len(images)) - 1e6


SIMULATED: dict[str, Draw] = {
    **{name: partial(noisy, noise=noise) for name, noise in NOISES.items()},
    "spreading": spreading,
    "lucky": lucky,
}


# --- changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error_rate", RATES)
@pytest.mark.parametrize("simulated", SIMULATED)
def test_a_change_that_does_not_raise_the_loss_is_accepted_with_at_most_the_error_rate(
    simulated: str, error_rate: float
) -> None:
    """One change per search, so that all comparisons are independent."""
    attack, trials = Proposals(1), 2500
    for seed in range(trials):
        converse(attack, context_of(error_rate), SIMULATED[simulated], seed)
    share = np.mean(attack.accepted)
    assert len(attack.accepted) == trials
    assert sum(attack.accepted) <= binom.isf(SURE, trials, error_rate)
    if simulated in NOISES:
        assert share > error_rate / 10  # the bound is not met by accepting nothing


@pytest.mark.parametrize("simulated", ["gaussian", "spreading"])
def test_in_a_long_search_the_share_of_wrong_changes_is_at_most_the_error_rate(simulated: str) -> None:
    """Changes of one search share draws of their reference, so the searches are compared, not the changes."""
    shares = []
    for seed in range(80):
        attack = Proposals(25, step=0.0001)
        converse(attack, context_of(0.1), SIMULATED[simulated], seed)
        shares.append(np.mean(attack.accepted))
    assert 0 < np.mean(shares) <= 0.1 + 4 * np.std(shares) / math.sqrt(len(shares))


def test_wrong_changes_of_one_set_are_accepted_with_at_most_the_error_rate() -> None:
    """Many sets are compared with one base."""
    shares = []
    for seed in range(150):
        attack = Flips(range(1, 16))
        converse(attack, context_of(0.1), SIMULATED["gaussian"], seed)
        shares.append(np.mean(attack.accepted))
    assert 0 < np.mean(shares) <= 0.1 + 4 * np.std(shares) / math.sqrt(len(shares))


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("noise", ["gaussian", "laplace", "exponential"])
def test_a_clear_improvement_is_accepted_nearly_always(noise: str, repeats: int) -> None:
    attack = Proposals(1, pixel=0, step=0.05)
    draw = partial(noisy, noise=NOISES[noise], slope=100.0)  # an improvement of 5 standard deviations
    for seed in range(300):
        converse(attack, context_of(0.05, repeats=repeats), draw, seed)
    assert np.mean(attack.accepted) > 0.95


def test_the_least_error_rate_still_accepts_a_change_without_noise() -> None:
    attack = Proposals(1, pixel=0, step=0.05)
    converse(attack, context_of(LEAST_ERROR_RATE), lambda images, _: images[:, 0, 0, 0].astype(np.float64) - 10, 0)
    assert attack.accepted == [True]
    with pytest.raises(InputError, match="error_rate must be a number from 1e-05 to 1"):
        Sampling(error_rate=LEAST_ERROR_RATE / 2)


def test_only_the_sets_that_raise_the_loss_are_accepted_if_noise_is_small() -> None:
    def draw(images: Pixels, rng: np.random.Generator) -> Losses:
        effects = np.array([1.0, -1.0] * 8)
        exact: Losses = 100 * (images.reshape(len(images), -1) @ effects) - 1e6
        return exact + 0.1 * rng.normal(size=len(images))

    for seed in range(20):
        attack = Flips(range(16))
        converse(attack, context_of(), draw, seed)
        assert attack.accepted == [True, False] * 8


def test_averaging_makes_a_small_improvement_clear() -> None:
    """An improvement of one standard deviation is seen more often in means of many draws."""
    shares = []
    for repeats in (1, 16):
        attack = Proposals(1, pixel=0, step=0.05)
        for seed in range(200):
            converse(
                attack,
                context_of(0.05, repeats=repeats),
                partial(noisy, noise=NOISES["gaussian"], slope=20.0),
                seed,
            )
        shares.append(np.mean(attack.accepted))
    assert shares[1] > 0.9 > shares[0] + 0.1


def test_what_a_search_keeps_takes_little_memory() -> None:
    """Hundreds of images are attacked at once: a set is kept as its bits, and an image without the rest of its ask."""
    for attack in (Flips(range(16)), Proposals(5, pixel=0, step=0.05)):
        search = RandomSearch(attack, context_of(), np.random.default_rng(0))
        run = search.run()
        ask = next_ask(run, None)
        while ask is not None and ask.verdict is None:
            assert isinstance(ask.points, Images)
            ask = next_ask(run, Reply(ask.points.pixels.sum(axis=(1, 2, 3)).astype(np.float64) - 1e6))
        kept = [reference.point for _, reference in search._references.values()]
        assert kept
        if isinstance(attack, Flips):
            assert all(isinstance(point, Corner) for point in kept)
        assert search._best is not None
        best = search._best.point
        assert isinstance(best, Corner) or best.base is None


# --- claims -----------------------------------------------------------------------------------------------------------


def erring(images: Pixels, rng: np.random.Generator, probability: float) -> Losses:
    """The model errs with this probability everywhere, by any margin."""
    signs = np.where(rng.random(len(images)) < probability, 1.0, -1.0)
    return signs * rng.exponential(size=len(images))


@pytest.mark.parametrize("name", ["square", "random"])
@pytest.mark.parametrize(("probability", "error_rate"), [(0.5, 0.05), (0.5, 0.2), (0.4, 0.05)])
def test_an_image_that_errs_in_half_of_all_draws_is_claimed_with_at_most_the_error_rate(
    probability: float, error_rate: float, name: str
) -> None:
    """These searches never end by themselves, so one that ends before its budget claims its point."""
    attack, trials = parse_attack(name), 400
    ends = [
        converse(attack, context_of(error_rate, budget=80), partial(erring, probability=probability), seed)[0]
        for seed in range(trials)
    ]
    claims = ends.count("exhausted")
    assert set(ends) <= {"exhausted", "budget"}
    assert claims <= binom.isf(SURE, trials, error_rate)
    assert claims > 0 or probability < 0.5 or error_rate < 0.1


@pytest.mark.parametrize("name", ["square", "random"])
def test_an_image_that_errs_nearly_always_is_claimed_after_few_queries(name: str) -> None:
    ends = [
        converse(parse_attack(name), context_of(0.05, budget=200), partial(erring, probability=0.95), seed)
        for seed in range(200)
    ]
    assert np.mean([ended == "exhausted" for ended, _ in ends]) > 0.97
    assert np.median([queries for _, queries in ends]) < 20


# --- draws that do not vary -------------------------------------------------------------------------------------------


def recorded(attack: Attack, asks: list[bytes], most: int) -> Attack:
    """The same attack, which ends after this many asks and keeps them as they are shown to a model."""

    class Recorded(Attack):
        climbs = attack.climbs

        def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
            search = attack.search(context, rng)
            ask = next_ask(search, None)
            while ask is not None and len(asks) < most:
                asks.append(drawn(context, ask).tobytes())
                ask = next_ask(search, (yield ask))

    return Recorded()


@pytest.mark.parametrize("name", SCORE_BASED)
def test_a_search_takes_the_same_path_on_exact_losses_and_on_draws_that_do_not_vary(name: str) -> None:
    """Every test is then decided alike each time."""
    image = random_image((1, 8, 8))
    threat = Threat(0.1, loss="margin", sampling=Sampling())
    context, loss = ImageContext(0, image, threat, 10**5), smooth_loss(image.shape)
    exact: list[bytes] = []
    search = recorded(parse_attack(name), exact, 80).search(context, np.random.default_rng(0))
    ask = next_ask(search, None)
    while ask is not None:
        ask = next_ask(search, Reply(np.array([loss(each) - 1000 for each in drawn(context, ask)])))
    random: list[bytes] = []
    attack = recorded(parse_attack(name), random, 80)
    converse(attack, context, lambda images, _: np.array([loss(each) - 1000 for each in images]), seed=0)
    assert len(exact) > 1
    assert random == exact

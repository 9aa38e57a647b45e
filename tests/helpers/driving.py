"""Searches driven by hand: what they ask, drawn in full, with losses from a plain function instead of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsimon import Threat
from parsimon.core.canvas import render
from parsimon.core.engine import Engine
from parsimon.core.types import Ask, Attack, ImageContext, Images, Outcome, Reply, Task, next_ask
from parsimon.models import as_model
from parsimon.models.function import ScoreFunction

Pixels = NDArray[np.float32]
Exact = NDArray[np.float64]
Loss = Callable[[Pixels], float]  # of one image
Shape = tuple[int, ...]  # channels, rows, columns


class Exchange(NamedTuple):
    """One question of a search, and what it was told."""

    ask: Ask
    images: Pixels
    losses: Exact


def random_image(shape: Shape, seed: int = 0, margin: float = 0.0) -> Pixels:
    """Pixels in [0, 1], or at least `margin` away from its ends."""
    return np.random.default_rng(seed).uniform(margin, 1 - margin, shape).astype(np.float32)


def context_of(image: Pixels, eps: float = 0.1, budget: int = 1000) -> ImageContext:
    return ImageContext(0, image, Threat(eps), budget)


def pixels_of(ask: Ask) -> Pixels:
    """The one image that is asked for, as it was asked for."""
    assert isinstance(ask.points, Images)
    assert ask.points.size == 1
    return np.asarray(ask.points.pixels[0])


def drawn(context: ImageContext, ask: Ask) -> Pixels:
    """All that is asked, as images."""
    points = [ask.points.point(number) for number in range(ask.points.size)]
    return np.stack([render(context.image, context.threat, point) for point in points])


def converse(attack: Attack, context: ImageContext, loss: Loss, asks: int, seed: int = 0) -> list[Exchange]:
    """The search's first questions, each answered by the loss; fewer if it has no more."""
    search = attack.search(context, np.random.default_rng(seed))
    exchanges: list[Exchange] = []
    reply: Reply | None = None
    while len(exchanges) < asks and (ask := next_ask(search, reply)) is not None:
        images = drawn(context, ask)
        exchanges.append(Exchange(ask, images, np.array([loss(image) for image in images])))
        reply = Reply(exchanges[-1].losses)
    return exchanges


def asked_images(exchanges: Sequence[Exchange]) -> Pixels:
    """One after another, in the order in which they were asked."""
    return np.concatenate([exchange.images for exchange in exchanges])


def smooth_loss(shape: Shape, seed: int = 0, scale: float = 1.0) -> Loss:
    """A loss that bends everywhere, computed exactly enough for two ways to reach an image to be compared."""
    rng = np.random.default_rng([seed, 99])
    weights, phases = rng.normal(size=shape), rng.uniform(0, 6, shape)
    return lambda image: scale * float((weights * np.sin(3 * image.astype(np.float64) + phases)).sum())


def linear_loss(weights: Exact) -> Loss:
    return lambda image: float((weights * image.astype(np.float64)).sum())


def ball(image: Pixels, eps: float) -> tuple[Pixels, Pixels]:
    """The lowest and the highest image in [0, 1] that differ by at most eps, by bisection over all floats."""
    exact = image.astype(np.float64)
    ones = np.ones_like(image).view(np.int32)  # as whole numbers, floats from 0 to 1 keep their order
    middle = image.view(np.int32)
    low_out, low_in, high_in, high_out = np.full_like(ones, -1), middle.copy(), middle.copy(), ones + 1
    for _ in range(32):
        low, high = (low_out + low_in) // 2, (high_in + high_out) // 2
        inside = (low >= 0) & (exact - np.maximum(low, 0).view(np.float32) <= eps)
        low_out, low_in = np.where(inside, low_out, low), np.where(inside, low, low_in)
        inside = (high <= ones) & (np.minimum(high, ones).view(np.float32) - exact <= eps)
        high_in, high_out = np.where(inside, high, high_in), np.where(inside, high_out, high)
    return low_in.view(np.float32), high_in.view(np.float32)


def in_ball(context: ImageContext, images: Pixels) -> NDArray[np.bool_]:
    """Which images lie in the ball, from its definition; a rounding of the last digit is forgiven."""
    distance = np.abs(images.astype(np.float64) - context.image).max(axis=(1, 2, 3))
    in_range = (images.min(axis=(1, 2, 3)) >= 0) & (images.max(axis=(1, 2, 3)) <= 1)
    inside: NDArray[np.bool_] = (distance <= context.threat.eps + 1e-7) & in_range
    return inside


def run(attack: Attack, model: ScoreFunction, image: Pixels, threat: Threat, budget: int, seed: int = 0) -> Outcome:
    """What becomes of one image of class 0 on the engine."""
    (outcome,) = Engine(attack, as_model(model), threat, budget=budget, seed=seed).run([Task(0, image, 0)])
    return outcome


class Steadfast:
    """A model that sees class 0 in every image, with a loss that bends everywhere, and remembers what it was shown."""

    def __init__(self, shape: Shape) -> None:
        self._loss = smooth_loss(shape)
        self.shown: list[Pixels] = []

    def __call__(self, images: Pixels) -> Exact:
        self.shown += list(images.copy())
        return np.array([[100 - self._loss(image), 0.0] for image in images])


class Startled(Steadfast):
    """A model that sees class 0 in the clean image, and class 1 in every other."""

    def __init__(self, clean: Pixels) -> None:
        super().__init__(clean.shape)
        self._clean = clean

    def __call__(self, images: Pixels) -> Exact:
        turned = [not np.array_equal(image, self._clean) for image in images]
        return super().__call__(images) * np.where(turned, -1, 1)[:, None]

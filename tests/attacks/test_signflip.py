"""SignFlip, against a plain loop that draws the same numbers, and torch's bilinear resizing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from driving import Pixels, asked_images, context_of, converse, random_image
from parsimon.attacks import SignFlip
from parsimon.attacks.signflip import _resized

SHAPE = (3, 8, 8)


def far_from(image: Pixels, shown: Pixels) -> bool:
    """A decision with a curved boundary."""
    weights = np.random.default_rng(3).normal(size=(4, *image.shape)) / np.sqrt(image.size)
    change = (weights * (shown.astype(np.float64) - image)).sum(axis=(1, 2, 3))
    return bool(np.abs(change).max() > 0.1)


def resized(values: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.nn.functional.interpolate(values[None], size=shape[1:], mode="bilinear", align_corners=False)[0]


def plain_loop(image: Pixels, resize: int, queries: int) -> list[Pixels]:
    """The first images that SignFlip asks for, in torch."""
    rng, clean = np.random.default_rng(0), torch.from_numpy(image)
    small = (image.shape[0], image.shape[1] // resize, image.shape[2] // resize)
    shown: list[Pixels] = []

    def fooled(point: torch.Tensor) -> bool:
        shown.append(point.clamp(0, 1).numpy())
        return far_from(image, shown[-1])

    def draw(chance: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.from_numpy(rng.random(small, np.float32)) < chance, 1.0, -1.0)

    start = torch.from_numpy(rng.random(image.shape, np.float32))
    while not fooled(start):
        start = torch.from_numpy(rng.random(image.shape, np.float32))
    low, high = 0.0, float((start - clean).abs().max())
    for _ in range(10):
        middle = (low + high) / 2
        if fooled(torch.max(clean - middle, torch.min(start, clean + middle))):
            high = middle
        else:
            low = middle
    delta = torch.max(clean - high, torch.min(start, clean + high)).clamp(0, 1) - clean
    alpha, keep = 0.004, torch.full(small, 0.999)
    while len(shown) < queries:
        rates = [0, 0]
        for _ in range(10):
            radius = delta.abs().max() - alpha
            candidate = (delta + resized(alpha * draw(torch.tensor(0.5)), image.shape)).clamp(-radius, radius)
            if fooled(clean + candidate):
                delta, rates[0] = candidate, rates[0] + 1
            signs = draw(keep)
            candidate = delta * resized(signs, image.shape).sign()
            if fooled(clean + candidate):
                delta, rates[1] = candidate, rates[1] + 1
                keep = (keep - 1e-4 * signs).clamp(0.99, 0.9999)
        alpha *= 1.5 if rates[0] / 10 > 0.7 else 1 / 1.5 if rates[0] / 10 < 0.3 else 1
        keep = (keep - (0.001 if rates[1] / 10 > 0.7 else -0.001 if rates[1] / 10 < 0.3 else 0)).clamp(0.99, 0.9999)
    return shown[:queries]


@pytest.mark.parametrize("resize", [1, 2])
def test_every_query_equals_that_of_a_plain_loop(resize: int) -> None:
    image = random_image(SHAPE)
    exchanges = converse(
        SignFlip(resize=resize),
        context_of(image),
        lambda shown: 0.0 if far_from(image, shown) else -np.inf,
        asks=300,
    )
    np.testing.assert_allclose(asked_images(exchanges), np.stack(plain_loop(image, resize, 300)), atol=1e-6)
    assert {bool(np.isfinite(each.losses[0])) for each in exchanges} == {True, False}


@pytest.mark.parametrize("sizes", [((4, 4), (8, 8)), ((3, 5), (9, 7)), ((1, 2), (1, 5)), ((56, 56), (224, 224))])
def test_resizing_is_that_of_torch(sizes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    small, large = sizes
    values = np.random.default_rng(0).normal(size=(3, *small)).astype(np.float32)
    np.testing.assert_allclose(
        _resized(values, *large), resized(torch.from_numpy(values), (3, *large)).numpy(), atol=1e-6
    )


def test_the_radius_of_adversarial_points_shrinks_after_the_start() -> None:
    image = random_image(SHAPE, margin=0.2)
    exchanges = converse(
        SignFlip(), context_of(image), lambda shown: 0.0 if far_from(image, shown) else -np.inf, asks=600
    )
    radii = [float(np.abs(each.images - image).max()) for each in exchanges if np.isfinite(each.losses[0])]
    assert radii[-1] < radii[0] / 3
    after = radii[12:]  # noise and bisection
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(after))


def test_without_an_adversarial_image_it_gives_up_after_ten_thousand_draws() -> None:
    exchanges = converse(SignFlip(), context_of(random_image((1, 1, 1))), lambda _: -np.inf, asks=10_001)
    assert len(exchanges) == 10_000

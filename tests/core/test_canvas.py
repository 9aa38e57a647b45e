"""Rendering in batches, compared with rendering every point on its own in full."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from parsimon import InputError, Threat
from parsimon.core.canvas import Canvas, Part, pad_batch, render
from parsimon.core.grid import Grid
from parsimon.core.model import Model
from parsimon.core.types import Corners, ImageContext, Images
from parsimon.models import FunctionModel
from parsimon.models.torch import TensorModel
from scripted import brightness

MODELS: dict[str, Model] = {"numpy": FunctionModel(brightness), "torch": TensorModel(torch.nn.Identity(), "cpu")}
SHAPES = [(3, 8, 8), (1, 9, 13), (3, 11, 8)]


def images_of(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return rng.integers(0, 256, (count, *shape)).astype(np.float32) / np.float32(255)


def random_points(rng: np.random.Generator, grid: Grid, base: NDArray[np.bool_]) -> Corners:
    """Return a base near the last one, or far from it, with some flips or none."""
    base = base.copy()
    changes = rng.integers(0, 3) if rng.random() < 0.8 else grid.count
    base[rng.permutation(grid.count)[:changes]] ^= True
    return Corners(grid, base, rng.permutation(grid.count)[: rng.integers(0, 6)].tolist())


@pytest.mark.parametrize("library", MODELS)
@settings(max_examples=40)
@given(st.sampled_from(SHAPES), st.integers(0, 9999), st.booleans())
def test_a_batch_holds_the_requested_points_bit_for_bit(
    library: str, shape: tuple[int, int, int], seed: int, eight_bit: bool
) -> None:
    rng = np.random.default_rng(seed)
    threat = Threat(5 / 255, eight_bit=eight_bit)
    slots = 4
    images = images_of(rng, slots, shape)
    canvas = Canvas(shape, slots, threat, MODELS[library])
    for slot, image in enumerate(images):
        canvas.load(slot, image)
    grids = [Grid(shape, (8, 8), 4)] * slots
    bases = [np.zeros(grid.count, np.bool_) for grid in grids]
    for _ in range(6):
        parts: list[Part] = []
        expected = []
        for slot in rng.permutation(slots)[: rng.integers(1, slots + 1)].tolist():
            if rng.random() < 0.15:  # another image is loaded
                images[slot] = images_of(rng, 1, shape)[0]
                canvas.load(slot, images[slot])
            if rng.random() < 0.2 and grids[slot].block > 1:  # the next level
                bases[slot] = grids[slot].split(bases[slot])
                grids[slot] = grids[slot].halved()
            points: Corners | Images = random_points(rng, grids[slot], bases[slot])
            if isinstance(points, Corners):
                bases[slot] = points.base
            if rng.random() < 0.2:
                points = Images(images_of(rng, 3, shape))
            start = int(rng.integers(0, points.size))
            stop = int(rng.integers(start + 1, points.size + 1))
            parts.append(Part(slot, points, start, stop))
            expected += [render(images[slot], threat, points.point(number)) for number in range(start, stop)]
        batch = np.asarray(canvas.draw(parts).images)
        assert np.array_equal(batch, np.stack(expected))
        if eight_bit:
            assert np.array_equal((batch * 255).round().astype(np.uint8).astype(np.float32) / np.float32(255), batch)


def test_images_are_rounded_in_8_bit_mode() -> None:
    image = np.full((1, 2, 2), 0.3333, np.float32)
    canvas = Canvas((1, 2, 2), 1, Threat(0.1, eight_bit=True), MODELS["numpy"])
    canvas.load(0, image)
    drawn = canvas.draw([Part(0, Images(image[None]), 0, 1)])
    assert np.array_equal(drawn.images, np.full((1, 1, 2, 2), np.float32(85) / np.float32(255)))


def test_images_in_double_precision_are_refused() -> None:
    """Their stored bytes would be read as float32."""
    image = np.full((1, 2, 2), 0.5, np.float32)
    canvas = Canvas((1, 2, 2), 1, Threat(0.1), MODELS["numpy"])
    canvas.load(0, image)
    points: Any = Images(image[None].astype(np.float64))
    with pytest.raises(InputError, match="asks for images of float64: it must ask for float32"):
        canvas.draw([Part(0, points, 0, 1)])
    assert ImageContext(0, image, Threat(0.1), 9).project(image + np.float64(0.3)).dtype == np.float32


@pytest.mark.parametrize("library", MODELS)
def test_a_batch_is_padded_with_copies_of_its_first_image(library: str) -> None:
    namespace = MODELS[library].namespace
    images = namespace.asarray(np.arange(12, dtype=np.float32).reshape(3, 1, 2, 2))
    padded = pad_batch(images, 5, namespace)
    assert np.array_equal(padded, np.concatenate([images, images[:1], images[:1]]))
    assert pad_batch(images, 3, namespace) is images


def test_a_corner_keeps_one_bit_per_block() -> None:
    grid = Grid((3, 32, 32), (32, 32), 4)
    members = np.random.default_rng(0).random(grid.count) < 0.5
    corner = Corners(grid, members, [5]).point(0)
    assert len(corner.bits) == grid.count // 8
    members[5] ^= True
    assert np.array_equal(corner.members, members)

"""The network and the tasks on which the contract is checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from parsimon.testing import LABEL_THREATS, SHAPES, THREATS, Network, tasks_for


@pytest.mark.parametrize("shape", SHAPES)
def test_the_networks_scores_and_gradients_are_a_rows_own_to_the_bit(shape: tuple[int, int, int]) -> None:
    network = Network(shape)
    images = np.random.default_rng(0).random((70, *shape), np.float32)

    def pull(rows: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        return network.vjp(rows, np.cos)

    for size in (1, 3, 64):
        for whole, *parts in zip(
            pull(images), *(pull(images[at : at + size]) for at in range(0, 70, size)), strict=True
        ):
            assert np.array_equal(whole, np.concatenate(parts))
    assert np.array_equal(network(images), pull(images)[0])


def test_the_networks_gradient_is_the_numerical_one() -> None:
    network = Network((1, 2, 3))
    image = np.random.default_rng(0).random((1, 1, 2, 3), np.float32)
    slope = np.array([[1.0, -2.0, 0.5, 3.0]])
    _, gradient = network.vjp(image, lambda _: slope)
    for pixel in np.ndindex(image.shape):
        above, below = image.copy(), image.copy()
        above[pixel] += 1e-3
        below[pixel] -= 1e-3
        rise = (slope * network(above) - slope * network(below)).sum() / float(above[pixel] - below[pixel])
        assert math.isclose(rise, gradient[pixel], rel_tol=1e-3, abs_tol=1e-3)


@pytest.mark.parametrize("threat", [*THREATS, *LABEL_THREATS], ids=str)
@pytest.mark.parametrize("count", [1, 6, 30])
def test_tasks_differ_and_hold_extreme_pixels_and_right_goals(threat: Any, count: int) -> None:
    tasks = tasks_for(SHAPES[0], threat, count)
    assert len({task.index for task in tasks}) == count
    for task in tasks:
        seen = Network(SHAPES[0])(task.image[None]).argmax()
        assert (seen != task.goal) == threat.targeted
        assert (task.image.min(), task.image.max()) == (0, 1)

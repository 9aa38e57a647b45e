"""RayS, against 34 recorded runs of its authors' code and against a plain loop in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from driving import Pixels, asked_images, context_of, converse, random_image
from parsimon.attacks import RayS
from parsimon.core.engine import Engine
from parsimon.models import FunctionModel
from published import RaysCase, rays_cases

CASES = rays_cases()
Decide = Callable[[Pixels], bool]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_equals_the_authors_code(case: RaysCase) -> None:
    (outcome,) = Engine(RayS(), FunctionModel(case.network), case.threat, budget=case.budget).run([case.task])
    if case.queries is None:
        assert (outcome.ended, outcome.queries) == ("budget", case.budget)
    else:
        assert (outcome.ended, outcome.queries) == ("success", case.queries)


def test_there_are_34_cases_of_both_goals_and_both_ends() -> None:
    assert len(CASES) == 34
    assert {(case.threat.targeted, case.queries is None) for case in CASES} >= {
        (False, False),
        (True, False),
        (True, True),
    }


def plain_loop(image: Pixels, adversarial: Decide, queries: int) -> list[Pixels]:
    """The first images that RayS asks for, with the arithmetic of torch in single precision."""
    clean, shown = torch.from_numpy(image), []

    def fooled(direction: torch.Tensor, length: torch.Tensor | int) -> bool:
        shown.append(torch.clamp(clean + length * direction, 0, 1).numpy())
        return adversarial(shown[-1])

    def attempts() -> Iterator[tuple[int, int]]:
        pieces = 1
        while True:
            width = int(np.ceil(image.size / pieces))
            for first in range(0, image.size, width):
                yield first, min(first + width, image.size)
            pieces *= 2

    best, closest = torch.ones(image.size), None
    for first, last in attempts():
        if len(shown) >= queries:
            return shown[:queries]
        signs = best.clone()
        signs[first:last] *= -1
        norm = torch.norm(signs)
        full, unit = signs.view(image.shape), (signs / norm).view(image.shape)
        if closest is None:
            radius = next((radius for radius in range(1, 11) if fooled(full, radius)), None)
            if radius is None:
                continue
            outer = radius * norm
        elif fooled(unit, closest):
            outer = closest
        else:
            continue
        inner = torch.tensor(0.0)
        while outer - inner > 1e-3:
            between = (inner + outer) / 2
            if fooled(unit, between):
                outer = between
            else:
                inner = between
        if closest is None or outer < closest:
            best, closest = signs, outer
    raise AssertionError("the attempts do not end")


@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 28, 28), (3, 9, 7), (1, 1, 5)])
@pytest.mark.parametrize("bias", [0.05, 0.6])  # the first direction is adversarial soon, or not at all
def test_every_query_equals_that_of_a_plain_loop_to_the_bit(shape: tuple[int, int, int], bias: float) -> None:
    image = random_image(shape)
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(6, *shape)) / np.sqrt(image.size)

    def adversarial(shown: Pixels) -> bool:
        change = (weights * (shown.astype(np.float64) - image)).sum(axis=(1, 2, 3))
        return float(np.abs(np.sin(4 * change)).max()) > bias

    exchanges = converse(RayS(), context_of(image), lambda shown: 0.0 if adversarial(shown) else -np.inf, asks=400)
    expected = plain_loop(image, adversarial, 400)
    np.testing.assert_array_equal(asked_images(exchanges), np.stack(expected))
    assert any(exchange.losses[0] == 0 for exchange in exchanges)


def test_without_an_adversarial_point_it_asks_ten_radii_per_run_and_draws_nothing() -> None:
    image = random_image((1, 4, 4), margin=0.1)
    one, other = (
        asked_images(converse(RayS(), context_of(image), lambda _: -np.inf, asks=310, seed=seed)) for seed in (0, 1)
    )
    np.testing.assert_array_equal(one, other)
    assert set(np.unique(one)) == {0, 1}
    up = one[::10].reshape(31, -1) == 1
    # The whole, two halves, four quarters, eight eighths and sixteen pixels, each of them pointing down.
    expected = [
        range(first, first + 16 // pieces) for pieces in (1, 2, 4, 8, 16) for first in range(0, 16, 16 // pieces)
    ]
    assert [np.flatnonzero(~row).tolist() for row in up] == [list(piece) for piece in expected]
    assert all(np.array_equal(one[first], each) for first in range(0, 310, 10) for each in one[first : first + 10])

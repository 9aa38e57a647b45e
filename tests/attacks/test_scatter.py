"""Scatter draws every query anew from a distribution over corners that it learns."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

import parsimon
from parsimon import zoo
from parsimon.attacks import RandomCorners, Scatter
from parsimon.core.threat import Threat
from parsimon.core.types import Corners, ImageContext, Reply
from parsimon.errors import InputError

SHAPE = (1, 8, 8)


def drive(
    attack: Scatter,
    weights: NDArray[np.float64],
    queries: int,
    seed: int = 0,
    infinite: Mapping[int, float] | None = None,
) -> list[NDArray[np.bool_]]:
    """Answer the search by a linear loss, and by infinite ones for some queries; return the sets that it asked for."""
    context = ImageContext(0, np.full(SHAPE, 0.5, np.float32), Threat(0.1, loss="margin"), queries)
    search = attack.search(context, np.random.default_rng(seed))
    ask, asked = next(search), []
    for query in range(queries):
        assert isinstance(ask.points, Corners)
        asked.append(ask.points.base.copy())
        signs = np.where(asked[-1], 1.0, -1.0)
        ask = search.send(Reply(np.array([(infinite or {}).get(query, signs @ weights)])))
    return asked


def twin(weights: NDArray[np.float64], queries: int, limit: float, seed: int = 0) -> list[list[bool]]:
    """The same, number by number."""
    rng, count = np.random.default_rng(seed), len(weights)
    means, sums, recent, asked = [0.0] * count, [0.0] * count, 0.0, []
    for query in range(queries):
        draws = rng.random(count)
        asked.append([bool(draw < (1 + mean) / 2) for draw, mean in zip(draws, means, strict=True)])
        signs = [1.0 if member else -1.0 for member in asked[-1]]
        loss = float(np.array(signs) @ weights)
        advantage = loss - recent if query else 0.0
        recent += (loss - recent) / min(query + 1, 5)
        sums = [each + advantage * (sign - mean) for each, sign, mean in zip(sums, signs, means, strict=True)]
        size = float(np.abs(sums).mean())
        if query >= 7:
            means = [limit * math.tanh(each / size) for each in sums]
    return asked


@pytest.mark.parametrize("limit", [0.3, 0.75, 1.0])
def test_it_asks_what_its_slow_twin_asks(limit: float) -> None:
    weights = np.random.default_rng(3).normal(size=64)
    asked = drive(Scatter(block=1, limit=limit), weights, 60)
    assert [each.tolist() for each in asked] == twin(weights, 60, limit)


def test_it_learns_the_signs_of_a_linear_loss() -> None:
    """Chance agrees with half of the weight."""
    weights = np.random.default_rng(4).normal(size=64)
    asked = drive(Scatter(block=1), weights, 400)
    assert agreement(asked[:20], weights) < 0.6
    assert agreement(asked[-20:], weights) > 0.75


def agreement(asked: list[NDArray[np.bool_]], weights: NDArray[np.float64]) -> float:
    """The share of the weight whose sign the sets have, on average."""
    found = [np.abs(weights)[members == (weights > 0)].sum() for members in asked]
    return float(np.mean(found) / np.abs(weights).sum())


def test_no_two_queries_are_close() -> None:
    """Each pair differs in more than a sixteenth of the blocks, even after all is learnt, and most in over a fifth."""
    weights = np.random.default_rng(5).normal(size=64)
    asked = np.array(drive(Scatter(block=1), weights, 300)[-60:])
    differing = [(one != other).mean() for place, one in enumerate(asked) for other in asked[:place]]
    assert np.median(differing) > 0.2
    assert min(differing) > 1 / 16


def test_a_limit_of_zero_is_blind_search() -> None:
    weights = np.random.default_rng(6).normal(size=64)
    blind = np.array(drive(Scatter(block=1, limit=0), weights, 400)[-200:])
    assert abs(blind.mean() - 0.5) < 0.02


@pytest.mark.parametrize("infinite", [{0: math.inf}, {0: -math.inf}, {9: math.inf, 10: -math.inf}, {30: math.nan}])
def test_it_continues_to_learn_after_infinite_losses(infinite: dict[int, float]) -> None:
    """A margin may be infinite."""
    weights = np.random.default_rng(4).normal(size=64)
    asked = drive(Scatter(block=1), weights, 400, infinite=infinite)
    assert agreement(asked[-20:], weights) > 0.75


def test_infinite_losses_alone_are_blind_search() -> None:
    weights = np.random.default_rng(4).normal(size=64)
    endless = {query: math.inf if query % 3 else -math.inf for query in range(400)}
    asked = np.array(drive(Scatter(block=1), weights, 400, infinite=endless))
    assert abs(asked.mean() - 0.5) < 0.02


def test_a_detector_sees_nothing_and_it_fools_more_than_blind_search() -> None:
    images, labels = (array[:40] for array in zoo.images())
    settings = {"eps": 8 / 255, "budget": 200, "defence": "blacklight:cifar10", "loss": "margin"}
    found = parsimon.attack("standard", images, labels, attack=Scatter(), **settings)  # type: ignore[arg-type]
    blind = parsimon.attack("standard", images, labels, attack=RandomCorners(), **settings)  # type: ignore[arg-type]
    assert found.summary.flagged is not None
    assert len(found.summary.first_flags) <= 2
    assert found.summary.successes > blind.summary.successes + 4


@pytest.mark.parametrize("settings", [{"block": 0}, {"limit": -0.1}, {"limit": 1.1}])
def test_bad_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Scatter(**settings)  # type: ignore[arg-type]

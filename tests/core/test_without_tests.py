"""Attackers who take every response of a random model as exact: an error rate of 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noisy_models import SCORE_BASED, SHAPE, asks_near, attacked, keyed_noise, some_tasks
from parsimon.attacks.registry import parse_attack
from parsimon.core.canvas import render
from parsimon.core.draws import Purpose
from parsimon.core.engine import Engine
from parsimon.core.model import Keys, Model
from parsimon.core.threat import Sampling, Threat
from parsimon.core.types import Outcome, Picture, Reply, Task
from parsimon.testing import Network, tasks_for
from scripted import Scripted, results

QUICK = [name.replace("nes", "nes,samples=10") for name in SCORE_BASED]  # which succeed within few queries
UNAWARE = Sampling(draws=10, error_rate=1)


def with_and_without_draws(
    name: str, exact: Threat, model: Model, tasks: Sequence[Task], budget: int
) -> tuple[dict[int, Outcome], dict[int, Outcome]]:
    """Return the outcomes of an engine that takes the model for exact, and of one that knows it is random."""
    unaware, aware = (
        results(Engine(parse_attack(name), model, threat, budget=budget).run(tasks))
        for threat in (exact, replace(exact, sampling=UNAWARE))
    )
    return unaware, aware


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("name", QUICK)
def test_an_exact_model_is_attacked_as_by_the_engine(name: str, targeted: bool) -> None:
    """Query by query, up to the same adversarial image."""
    exact = Threat(0.05, targeted, "margin")
    tasks = tasks_for(SHAPE, exact, 40)
    expected, found = with_and_without_draws(name, exact, Network(SHAPE), tasks, budget=150)
    assert 0 < sum(outcome.success for outcome in expected.values()) < len(tasks)
    for task in tasks:
        one, other = expected[task.index], found[task.index]
        assert (one.queries, one.uncharged, one.ended) == (other.queries, other.uncharged, other.ended)
        if one.point is not None:
            assert one.predicted == other.predicted
            assert isinstance(other.point, Picture)
            np.testing.assert_array_equal(render(task.image, exact, one.point), other.point.pixels)


@pytest.mark.parametrize("name", QUICK)
def test_a_search_ends_at_the_first_draw_that_errs(name: str) -> None:
    """An engine that does not know that the model is random sees the same draws, and queries as much."""
    unaware, aware = with_and_without_draws(
        name, Threat(0.03, loss="margin"), keyed_noise(), some_tasks(40), budget=100
    )
    assert any(outcome.success for outcome in unaware.values())
    assert {index: (outcome.queries, outcome.uncharged) for index, outcome in aware.items()} == {
        index: (outcome.queries, outcome.uncharged) for index, outcome in unaware.items()
    }


@dataclass(frozen=True)
class Listed(Model):
    """Returns losses from a list, by the number of the query. It never errs in fresh draws, and keeps their images."""

    losses: tuple[float, ...]
    returned: list[NDArray[np.float32]] = field(default_factory=list, compare=False)

    random = True

    def __call__(self, images: Any) -> NDArray[Any]:  # noqa: ARG002
        raise AssertionError("a random model is drawn by keys")

    def draw(self, images: Any, keys: Keys) -> NDArray[Any]:
        self.returned.extend(images[keys[:, 2] == Purpose.FRESH])
        loss = [-1.0 if key[2] == Purpose.FRESH else self.losses[key[3]] for key in keys.tolist()]
        return np.stack([np.zeros(len(images)), np.array(loss)], axis=1)


# Three draws of each of six points. The second has few errors, the third a lower mean than the second.
DRAWN = ((-3, -3, -3), (9, -1, -2), (1, 1, 1), (2, 5, 2), (1, 1, 1), (-1, -1, -1))


@pytest.mark.parametrize(("eligible_from", "ends", "best"), [(-math.inf, 3, 3), (3, 3, 3), (3.5, 5, None), (2, 3, 3)])
@pytest.mark.parametrize("batch_size", [1, 64])
def test_averages_end_at_the_highest_that_errs_in_most_draws(
    eligible_from: float, ends: int, best: int | None, batch_size: int
) -> None:
    """A mean below `eligible_from` is never returned. Without any other, the clean image is."""
    model = Listed(tuple(float(loss) for row in DRAWN for loss in row))
    attack = Scripted(asks_near(1, 4, 1, eligible_from=eligible_from))
    sampling = replace(UNAWARE, repeats=3, draws=2)
    outcome = attacked(model, sampling, attack, budget=30, batch_size=batch_size)
    assert outcome.queries == 3 * (ends + 1)
    assert outcome.draws == len(model.returned) == 2
    points = np.concatenate([ask.points.pixels for ask in asks_near(1, 4, 1)])  # type: ignore[union-attr]
    for image in model.returned:
        np.testing.assert_array_equal(image, np.full(SHAPE, 0.5, np.float32) if best is None else points[best])


class WhiteBox(Scripted):
    needs = "gradient"


def test_a_search_receives_what_it_receives_from_the_engine() -> None:
    """Losses, gradients and margins of asks whose points are drawn one by one."""
    exact, tasks = Threat(0.1, loss="margin"), some_tasks(40)[-1:]  # far from the border: nothing errs
    heard: list[list[Reply]] = []
    for threat in (exact, replace(exact, sampling=UNAWARE)):
        attack = WhiteBox(asks_near(1, 3, 2, gradient=True, margins=True))
        (outcome,) = Engine(attack, Network(SHAPE), threat, budget=30).run(tasks)
        assert outcome.queries == 6
        heard.append(attack.heard)
    assert [len(reply.loss) for reply in heard[1]] == [1, 3, 2]
    for one, other in zip(*heard, strict=True):
        for part, same in zip(one, other, strict=True):
            assert part is not None
            np.testing.assert_array_equal(part, same)

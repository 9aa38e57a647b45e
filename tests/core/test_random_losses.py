"""Losses of random models that are infinite or tied, and margins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noisy_models import SCORE_BASED, SHAPE, asks_near, attacked
from parsimon.attacks.registry import parse_attack
from parsimon.core.engine import Engine
from parsimon.core.model import Keys, Model
from parsimon.core.threat import Sampling, Threat
from parsimon.core.types import Attack, ImageContext, Outcome, Reply, Search, Task, next_ask
from parsimon.errors import InputError
from scripted import Scripted

QUICK = [name.replace("nes", "nes,samples=10") for name in SCORE_BASED]
ERROR_RATES = [0.05, 1]


@dataclass(frozen=True)
class Drawn(Model):
    """Returns scores that depend on the keys alone."""

    scores: Callable[[Keys], NDArray[np.float64]]

    random = True

    def __call__(self, images: Any) -> NDArray[Any]:  # noqa: ARG002
        raise AssertionError("a random model is drawn by keys")

    def draw(self, images: Any, keys: Keys) -> NDArray[Any]:  # noqa: ARG002
        return self.scores(keys)


def often_infinite(keys: Keys, classes: tuple[int, ...]) -> NDArray[np.float64]:
    """The scores of these classes are -inf in most draws. No other class comes close to class 0."""
    numbers = np.array([np.random.default_rng(key).random(2) for key in keys.tolist()])
    scores = np.stack([np.ones(len(keys)), numbers[:, 0] / 2, np.zeros(len(keys))], axis=1)
    for number in classes:
        scores[numbers[:, 1] < 0.7, number] = -np.inf
    return scores


def checked(attack: Attack, heard: list[Reply]) -> Attack:
    """The same attack, which keeps its replies and refuses NaN and infinite numbers."""

    class Checked(Attack):
        needs, climbs = attack.needs, attack.climbs

        def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
            search = attack.search(context, rng)
            ask = next_ask(search, None)
            while ask is not None:
                heard.append(reply := (yield ask))
                assert np.isfinite(reply.loss).all()
                assert reply.margins is None or np.isfinite(reply.margins).all()
                ask = next_ask(search, reply)

    return Checked()


@pytest.mark.parametrize("error_rate", ERROR_RATES)
@pytest.mark.parametrize("classes", [(1, 2), (0,), (2,)], ids=["loss -inf", "loss inf", "a margin -inf"])
@pytest.mark.parametrize("name", QUICK)
def test_infinite_scores_become_finite_losses(name: str, classes: tuple[int, ...], error_rate: float) -> None:
    """Their differences would be NaN. A warning of numpy is an error here."""
    heard: list[Reply] = []
    model = Drawn(partial(often_infinite, classes=classes))
    sampling = Sampling(draws=15, error_rate=error_rate)
    outcome = attacked(model, sampling, checked(parse_attack(name), heard), budget=60)
    assert heard or outcome.queries == 1
    errors = sum(not np.isfinite(often_infinite(np.array([[0, 7, 1, number]]), (0,))[0, 0]) for number in range(15))
    assert outcome.errors == (errors if classes == (0,) else 0)


@pytest.mark.parametrize("error_rate", ERROR_RATES)
@pytest.mark.parametrize(("goal", "targeted"), [(0, False), (1, False), (0, True), (1, True)])
def test_a_tie_counts_as_the_class_that_is_predicted(goal: int, targeted: bool, error_rate: float) -> None:
    """All classes have the same score, so the first is predicted. If that is an error, few queries show it."""
    model = Drawn(lambda keys: np.zeros((len(keys), 3)))
    threat = Threat(0.1, targeted, "margin", sampling=Sampling(draws=5, error_rate=error_rate))
    task = Task(0, np.full(SHAPE, 0.5, np.float32), goal)
    (outcome,) = Engine(parse_attack("square"), model, threat, budget=50).run([task])
    errs = (goal == 0) == targeted
    assert outcome.success == errs
    assert outcome.errors == (5 if errs else 0)
    if not errs:
        assert outcome.queries > 40
    elif error_rate == 1:
        assert outcome.queries == 1
    else:
        assert outcome.queries < 10


@pytest.mark.parametrize("wanted", list(product([False, True], repeat=2)))
def test_an_attack_that_wants_margins_in_some_asks_is_refused(wanted: tuple[bool, ...]) -> None:
    """What it receives is relative to earlier replies. Without tests, each reply stands alone."""
    model = Drawn(partial(often_infinite, classes=()))
    attack = Scripted(tuple(asks_near(2, margins=margins)[0] for margins in wanted))

    def run(error_rate: float) -> Outcome:
        return attacked(model, Sampling(draws=5, error_rate=error_rate), attack, budget=100)

    if wanted[0] == wanted[1]:
        run(0.05)
    else:
        with pytest.raises(InputError, match="asks for margins in some asks and not in others"):
            run(0.05)
    attack.heard.clear()
    run(1)
    assert [reply.margins is not None for reply in attack.heard] == list(wanted)

"""The published behaviour against 86 recorded runs of the authors' code, and against a plain loop."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from parsimon.core.canvas import render
from parsimon.core.engine import Engine
from parsimon.core.types import Outcome
from parsimon.models import FunctionModel
from published import Case, cases, hash_of
from published_loop import Loop

CASES = cases()


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """All cases of a network, a goal and a loss are attacked together: that must not change any of them."""
    together = defaultdict(list)
    for case in CASES:
        together[case.name.rsplit("-", 1)[0]].append(case)
    found: dict[str, Outcome] = {}
    for group in together.values():
        first = group[0]
        engine = Engine(first.attack, FunctionModel(first.network), first.threat, budget=first.budget, batch_size=50)
        by_index = {outcome.index: outcome for outcome in engine.run(case.task for case in group)}
        found |= {case.name: by_index[case.task.index] for case in group}
    return found


def test_there_are_86_cases() -> None:
    assert len(CASES) == 86
    assert sum(case.name.startswith("imagenet") for case in CASES) == 6


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_equals_the_published_code(case: Case, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[case.name]
    assert outcome.success == case.success
    if not case.success:
        assert (outcome.ended, outcome.queries) == ("budget", case.budget)
        return
    assert outcome.queries == case.queries
    assert outcome.point is not None
    image = render(case.task.image, case.threat, outcome.point)
    if case.final_image is not None:
        assert hash_of(image) == case.final_image
    goal_reached = case.network(image[None]).argmax() == case.task.goal
    assert goal_reached == case.threat.targeted


@pytest.mark.parametrize("case", CASES[:80:8] + CASES[80::3], ids=lambda case: case.name)
def test_case_equals_the_plain_loop(case: Case, outcomes: dict[str, Outcome]) -> None:
    attack = case.attack
    noise_side = attack.noise[0] if attack.noise else case.task.image.shape[1]
    assert attack.block is not None
    loop = Loop(
        case.network,
        case.threat,
        case.task.image,
        case.task.goal,
        case.task.index,
        case.budget,
        noise_side,
        attack.block,
        delete_zero=attack.delete_zero,
    )
    success = loop.run()
    outcome = outcomes[case.name]
    assert (outcome.success, outcome.queries) == (success, loop.queries)
    if outcome.point is not None:
        assert loop.adversarial is not None
        assert np.array_equal(render(case.task.image, case.threat, outcome.point), loop.adversarial)

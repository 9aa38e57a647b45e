"""The margins of the contenders: against plain loops, and from the engine against its twin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsimon import Threat, Thrift
from parsimon.core.engine import Engine, Step
from parsimon.core.threat import Scores
from parsimon.core.types import Ask, Attack, ImageContext, Images, JournalEntry, Reply, Search
from parsimon.runs.packing import join_entries
from parsimon.testing import Network
from parsimon.testing.twin import Case
from scripted import SHAPE, results

MARGIN = Threat(0.02, loss="margin")
NO_MARGINS = [Threat(0.02), Threat(0.02, targeted=True), Threat(0.02, targeted=True, loss="margin")]

values = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75])  # few, so that many are equal


def by_loops(row: Sequence[float], goal: int, scores: str) -> tuple[list[int], list[float]]:
    """Return the ten highest classes but the goal, the first of equals first, and their margins."""
    left = [number for number in range(len(row)) if number != goal]
    classes: list[int] = []
    while left and len(classes) < 10:
        highest = left[0]
        for number in left:
            if row[number] > row[highest]:
                highest = number
        classes.append(highest)
        left.remove(highest)
    logits = [math.log(max(score, 1e-30)) if scores == "probabilities" else score for score in row]
    return classes, [logits[number] - logits[goal] for number in classes]


@given(st.lists(values, min_size=2, max_size=14), st.sampled_from(["logits", "probabilities"]), st.data())
def test_contenders_and_margins_are_those_of_plain_loops(row: list[float], scores: Scores, data: st.DataObject) -> None:
    goal = data.draw(st.integers(0, len(row) - 1))
    threat = Threat(0.1, loss="margin", scores=scores)
    contenders = threat.contenders(np.array(row), goal)
    classes, expected = by_loops(row, goal, scores)
    assert contenders.tolist() == classes
    found = threat.margins(np.array([row]), np.array([goal]), contenders[None])
    assert found.dtype == np.float32
    assert found[0].tolist() == pytest.approx(expected, rel=1e-6)
    (loss,), _, _ = threat.judge(np.array([row]), np.array([goal]))
    assert found.max() == pytest.approx(loss, rel=1e-6)  # even with more classes: the highest is a contender


@given(st.integers(0, 99), st.sampled_from([2, 5, 11]))
def test_where_all_classes_are_contenders_the_highest_margin_is_the_loss(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    scores, goals = rng.normal(size=(20, classes)).astype(np.float32), rng.integers(0, classes, 20)
    contenders = np.array([MARGIN.contenders(rng.normal(size=classes), goal) for goal in goals])
    assert contenders.shape == (20, classes - 1)
    margins = MARGIN.margins(scores, goals, contenders)
    for row, goal in enumerate(goals):
        expected = [float(scores[row, each]) - float(scores[row, goal]) for each in contenders[row]]
        assert margins[row].tolist() == np.array(expected, np.float32).tolist()
    np.testing.assert_array_equal(margins.max(axis=1), MARGIN.judge(scores, goals)[0].astype(np.float32))


def test_infinite_scores_give_finite_margins_of_the_right_sign() -> None:
    scores = np.array([[0.0, np.inf, -np.inf], [np.inf, np.inf, 0.0], [-np.inf, 1e300, -np.inf]])
    contenders = np.array([[1, 2]] * 3, np.int32)
    margins = MARGIN.margins(scores, np.zeros(3, np.intp), contenders)
    assert np.isfinite(margins).all()
    assert np.sign(margins).tolist() == [[1, -1], [0, -1], [1, 0]]
    assert Threat(0.1, scores="probabilities").contenders(np.array([0.0, np.inf, -np.inf]), 0).tolist() == [1, 2]


def test_only_an_untargeted_margin_has_margins() -> None:
    assert MARGIN.has_margins
    assert not any(threat.has_margins for threat in NO_MARGINS)


@dataclass(frozen=True)
class Listening(Attack):
    """Asks for random corners of the ball, several at once, and keeps its replies by image."""

    with_margins: tuple[bool, ...] = (True, True, True, True)
    heard: dict[int, list[Reply]] = field(default_factory=dict, compare=False)

    needs: ClassVar = "scores"

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        heard = self.heard.setdefault(context.index, [])
        low, high = context.bounds
        for size, margins in zip((5, 1, 4, 2), self.with_margins, strict=True):
            corners = np.where(rng.random((size, *context.shape)) < 0.5, high, low)
            heard.append((yield Ask(Images(corners), eligible_from=math.inf, margins=margins)))


def by_twin(case: Case, attack: Listening) -> dict[int, list[Reply]]:
    return {task.index: [reply for _, reply in case.by_hand(attack, task) if reply is not None] for task in case.tasks}


def plain(heard: dict[int, list[Reply]]) -> dict[int, list[Any]]:
    """Return replies as values that can be compared."""
    return {
        image: [(each.loss.tolist(), None if each.margins is None else each.margins.tolist()) for each in replies]
        for image, replies in heard.items()
    }


@pytest.mark.parametrize("classes", [4, 13])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize("with_margins", [(True,) * 4, (False, True, True, True), (True, False, False, True)])
def test_the_engine_delivers_the_margins_of_its_twin_also_for_an_ask_in_several_batches(
    classes: int, batch_size: int, with_margins: tuple[bool, ...]
) -> None:
    case = Case(network=Network(SHAPE, classes), threat=MARGIN)
    attack = Listening(with_margins)
    expected = plain(by_twin(case, Listening(with_margins)))
    list(Engine(attack, case.network, MARGIN, budget=99, batch_size=batch_size, in_flight=4).run(case.tasks))
    assert plain(attack.heard) == expected
    margins = [reply.margins for replies in attack.heard.values() for reply in replies if reply.margins is not None]
    assert len(margins) == sum(with_margins) * len(case.tasks)
    assert {each.shape[1] for each in margins} == {min(classes - 1, 10)}


@pytest.mark.parametrize("threat", NO_MARGINS, ids=str)
def test_another_loss_has_no_margins_and_thrift_works_without(threat: Threat) -> None:
    case, attack = Case(threat=threat), Listening()
    list(Engine(attack, case.network, threat, budget=99).run(case.tasks))
    assert all(reply.margins is None for replies in attack.heard.values() for reply in replies)
    assert plain(attack.heard) == plain(by_twin(case, Listening()))
    outcomes, without = (case.by_engine(Thrift(combine=combine)) for combine in (True, False))
    assert outcomes == without == case.by_twin(Thrift())


@pytest.mark.parametrize("batch_size", [1, 5, 64])
@pytest.mark.parametrize("kind", [Thrift, Listening])
def test_a_resumed_search_receives_the_margins_from_its_journal(kind: type[Attack], batch_size: int) -> None:
    attack, network, budget = kind(), Network(SHAPE, 7), 150
    tasks = Case(network=network, threat=MARGIN).tasks
    tasks = tuple(replace(task, goal=int(network(task.image[None]).argmax())) for task in tasks)

    def engine(attack: Attack) -> Engine:
        return Engine(attack, network, MARGIN, budget=budget, batch_size=batch_size, in_flight=4)

    whole = results(engine(attack).run(tasks))
    heard = plain(attack.heard) if isinstance(attack, Listening) else {}
    for calls in (1, 2, 3, 8, 40):
        cut, journal = engine(attack), dict[int, list[JournalEntry]]()

        def record(step: Step, cut: Engine = cut, calls: int = calls, journal: Any = journal) -> None:
            for entry in step.entries:
                journal.setdefault(entry.image, []).append(entry)
            if step.counters.calls == calls:
                cut.stop()

        ended = {index: each for index, each in results(cut.run(tasks, record)).items() if each.ended != "interrupted"}
        again = [
            replace(task, journal=join_entries(journal[task.index]) if task.index in journal else None)
            for task in tasks
            if task.index not in ended
        ]
        assert all(task.journal is None or task.journal.margins is not None for task in again)
        if isinstance(attack, Listening):
            attack.heard.clear()
        assert {**ended, **results(engine(attack).run(again))} == whole
        if isinstance(attack, Listening):
            assert plain(attack.heard) == {task.index: heard[task.index] for task in again}

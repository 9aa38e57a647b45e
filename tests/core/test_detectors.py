"""A detector sees the charged queries of each image in their order, whatever the batches and interruptions are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from parsimon.attacks import ATTACKS
from parsimon.core.engine import Engine, Step
from parsimon.core.model import Detector, History, Model
from parsimon.core.threat import Threat
from parsimon.core.types import JournalEntry, Outcome, Task
from parsimon.defences import Blacklight
from parsimon.runs.packing import join_entries

SHAPE = (3, 8, 8)
BUDGET = 40


class Recorded(History):
    """Keeps the queries, and flags those whose first pixel is bright: a rule that any order of queries gives."""

    def __init__(self, seen: list[list[NDArray[np.float32]]]) -> None:
        self._own: list[NDArray[np.float32]] = []
        seen.append(self._own)

    def observe(self, images: NDArray[np.float32]) -> NDArray[np.bool_]:
        self._own += [image.copy() for image in images]
        return bright(images)


def bright(images: NDArray[np.float32]) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = images[:, 0, 0, 0] > 0.5
    return flags


class Recorder(Detector):
    def __init__(self) -> None:
        self.seen: list[list[NDArray[np.float32]]] = []

    def history(self) -> History:
        return Recorded(self.seen)


class Watched(Model):
    """A linear network with a detector, which also keeps all of its queries."""

    def __init__(self, detector: Detector) -> None:
        self.detector = detector
        self._weights = np.random.default_rng(1).normal(size=(int(np.prod(SHAPE)), 4))
        self.queries: list[NDArray[np.float32]] = []

    def __call__(self, images: Any) -> NDArray[Any]:
        self.queries += [np.array(image) for image in images]
        scores: NDArray[Any] = images.reshape(len(images), -1) @ self._weights + np.array([6.0, 0, 0, 0])
        return scores


def tasks(count: int = 5) -> list[Task]:
    images = np.random.default_rng(0).random((count, *SHAPE), np.float32)
    return [Task(index, image, 0) for index, image in enumerate(images)]


def run(name: str, model: Model, **settings: Any) -> dict[int, Outcome]:
    threat = Threat(0.1, loss=ATTACKS[name]().own_loss(False))
    engine = Engine(ATTACKS[name](), model, threat, budget=BUDGET, **settings)
    return {outcome.index: outcome for outcome in engine.run(tasks())}


@pytest.mark.parametrize("name", ["thrift", "square", "parsimonious", "nes", "simba"])
def test_a_detector_sees_what_the_model_was_sent_and_flags_are_counted(name: str) -> None:
    recorder = Recorder()
    model = Watched(recorder)
    outcomes = run(name, model, batch_size=1, in_flight=1)
    sent = {image.tobytes() for image in model.queries}
    for outcome, seen in zip(outcomes.values(), recorder.seen, strict=True):
        flags = np.flatnonzero(bright(np.array(seen)))
        assert len(seen) == outcome.charged
        assert {image.tobytes() for image in seen} <= sent
        assert outcome.flagged == len(flags)
        assert outcome.first_flag == (int(flags[0]) + 1 if len(flags) else None)
    assert any(outcome.flagged for outcome in outcomes.values())


@pytest.mark.parametrize("name", ["thrift", "square", "parsimonious"])
def test_flags_do_not_depend_on_batches(name: str) -> None:
    alone = run(name, Watched(Blacklight(window=4)), batch_size=1, in_flight=1)
    together = run(name, Watched(Blacklight(window=4)), batch_size=7, in_flight=5)
    assert alone == together
    assert any(outcome.flagged for outcome in alone.values())


@pytest.mark.parametrize("name", ["thrift", "parsimonious"])
@pytest.mark.parametrize("calls", [1, 4, 11])
def test_a_resumed_attack_shows_its_detector_the_queries_from_before(name: str, calls: int) -> None:
    threat = Threat(0.1, loss=ATTACKS[name]().own_loss(False))
    whole = run(name, Watched(Blacklight(window=4)), batch_size=3, in_flight=5)
    journal: dict[int, list[JournalEntry]] = {}
    engine = Engine(ATTACKS[name](), Watched(Blacklight(window=4)), threat, budget=BUDGET, batch_size=3, in_flight=5)

    def stop(step: Step) -> None:
        for entry in step.entries:
            journal.setdefault(entry.image, []).append(entry)
        if step.counters.calls == calls:
            engine.stop()

    first = {each.index: each for each in engine.run(tasks(), stop) if each.ended != "interrupted"}
    left = [
        Task(each.index, each.image, 0, join_entries(journal[each.index]) if each.index in journal else None)
        for each in tasks()
        if each.index not in first
    ]
    assert left
    again = Engine(ATTACKS[name](), Watched(Blacklight(window=4)), threat, budget=BUDGET, batch_size=4)
    assert {**first, **{each.index: each for each in again.run(left)}} == whole

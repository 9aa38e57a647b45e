"""The driver has the engine's results, whichever worker attacks an image and whichever workers are lost."""

from __future__ import annotations

import pickle
import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsimon import Threat
from parsimon.attacks.registry import parse_attack
from parsimon.core.engine import Counters, Step
from parsimon.core.types import Attack, ImageContext, JournalEntry, Outcome, Search
from parsimon.errors import ModelError, WorkerError
from parsimon.runs.workers import driver as driver_module
from parsimon.runs.workers.driver import Driver, Lost
from parsimon.runs.workers.worker import EngineConfig, Report, Request, Worker
from parsimon.testing import Network, tasks_for
from parsimon.testing.model import Recording

SHAPE = (3, 8, 8)
THREAT = Threat(0.02)
TASKS = tasks_for(SHAPE, THREAT, 24)


class ScriptedPool:
    """A pool in this process, whose workers report in any order and are lost at any moment."""

    def __init__(self, count: int, *, losses: int = 0, seed: int = 0, late: int | None = None) -> None:
        self.given: dict[int, list[int]] = defaultdict(list)  # the numbers of tasks assigned to each worker
        self.shown: list[bytes] = []
        self.unseen: list[bytes] = []  # rows that a lost worker did not report
        self._rows: dict[int, list[bytes]] = defaultdict(list)  # shown by each worker
        self._reported: Counter[int] = Counter()  # how many of them it has reported
        self._workers = {worker: Worker(Recording(SHAPE)) for worker in range(count)}
        self._requests: dict[int, deque[bytes]] = {worker: deque() for worker in range(count)}
        self._losses, self._random = losses, random.Random(seed)
        self.late = late  # a worker that does not report for now
        self.dismissed: list[int] = []

    @property
    def workers(self) -> Collection[int]:
        return list(self._workers)

    def send(self, worker: int, request: Request) -> None:
        if request.tasks:
            self.given[worker].append(len(request.tasks))
        self._requests[worker].append(pickle.dumps(request))

    def dismiss(self, worker: int) -> None:
        self.dismissed.append(worker)
        del self._workers[worker], self._requests[worker]

    def receive(self, timeout: float) -> Iterator[tuple[int, Report | Lost]]:
        assert timeout > 0
        answering = [each for each, requests in self._requests.items() if requests and each != self.late]
        if not answering:
            return
        worker = self._random.choice(answering)
        model = self._workers[worker]._model
        assert isinstance(model, Recording)
        report = pickle.dumps(self._workers[worker].handle(pickle.loads(self._requests[worker].popleft())))
        self.shown += [image.tobytes() for image in model.rows[len(self._rows[worker]) :]]
        self._rows[worker] = [image.tobytes() for image in model.rows]
        if self._losses and self._random.random() < 0.1:
            self._losses -= 1
            self.unseen += self._rows[worker][self._reported[worker] :]
            del self._workers[worker], self._requests[worker]
            yield worker, Lost("it was time")
        else:
            answer = pickle.loads(report)
            self._reported[worker] = answer.counters.rows
            yield worker, answer


def engine_config(attack: str = "parsimonious", in_flight: int = 6) -> EngineConfig:
    return EngineConfig(parse_attack(attack), THREAT, budget=60, seed=0, batch_size=8, in_flight=in_flight)


@cache
def alone(attack: str) -> tuple[dict[int, Outcome], Counters, Counter[bytes]]:
    """Return the outcomes and counters of one engine, and the rows that it shows."""
    model = Recording(SHAPE)
    engine = engine_config(attack, 256).engine(model)
    outcomes = {outcome.index: outcome for outcome in engine.run(TASKS)}
    return outcomes, engine.counters, Counter(image.tobytes() for image in model.rows)


@settings(max_examples=30)
@given(
    attack=st.sampled_from(["parsimonious", "nes,samples=10", "bandits", "pgd,steps=10", "square"]),
    count=st.integers(1, 5),
    survivors=st.integers(1, 5),
    in_flight=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
def test_outcomes_are_those_of_an_engine_whichever_workers_are_lost(
    attack: str, count: int, survivors: int, in_flight: int, seed: int
) -> None:
    expected, counters, once = alone(attack)
    pool = ScriptedPool(count, losses=max(0, count - survivors), seed=seed)
    driver = Driver(pool, engine_config(attack, in_flight))
    found = [(outcome.index, outcome) for outcome in driver.run(TASKS)]
    assert len(found) == len(TASKS)
    assert dict(found) == expected
    assert driver.counters.queries == counters.queries
    assert (driver.counters.ended, driver.counters.successes) == (counters.ended, counters.successes)
    assert driver.counters.rows == len(pool.shown) - len(pool.unseen)
    # Apart from unreported rows, only points after a success in the same ask differ, since batches differ.
    more = Counter(pool.shown) - Counter(pool.unseen) - once
    assert all(row not in once and times == 1 for row, times in more.items())


def test_few_images_are_spread_over_all_workers() -> None:
    pool = ScriptedPool(4)
    list(Driver(pool, engine_config(in_flight=256)).run(TASKS))
    assert len(pool.given) == 4
    assert max(sizes[0] for sizes in pool.given.values()) == len(TASKS) / 4


def test_a_worker_attacks_at_most_in_flight_images() -> None:
    pool = ScriptedPool(2)
    driver = Driver(pool, engine_config(in_flight=3))
    held = []

    def look(_: Step) -> None:
        held.append([len(state.images) for state in driver._states.values()])

    list(driver.run(TASKS, look))
    assert max(max(counts) for counts in held) == 3


def test_after_a_stop_every_image_in_flight_is_interrupted_and_no_loss_is_forgotten() -> None:
    whole = {outcome.index: outcome for outcome in Driver(ScriptedPool(2), engine_config()).run(TASKS)}
    pool = ScriptedPool(2)
    driver = Driver(pool, engine_config())
    entries: list[JournalEntry] = []

    def stop_soon(step: Step) -> None:
        entries.extend(step.entries)
        if driver.counters.calls == 40:
            driver.stop()

    found = {outcome.index: outcome for outcome in driver.run(TASKS, stop_soon)}
    interrupted = [outcome for outcome in found.values() if outcome.ended == "interrupted"]
    assert 0 < len(interrupted) < len(found) < len(TASKS)
    for outcome in found.values():
        if outcome.ended != "interrupted":
            assert outcome == whole[outcome.index]
    for outcome in interrupted:
        assert outcome.queries == sum(len(part.loss) for part in entries if part.image == outcome.index)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_after_a_stop_a_silent_worker_is_dismissed_and_its_reports_are_kept(
    count: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver_module, "_PATIENCE", 0.01)
    pool = ScriptedPool(count)
    driver = Driver(pool, engine_config())
    entries: list[JournalEntry] = []

    def fall_silent(step: Step) -> None:
        entries.extend(step.entries)
        if driver.counters.calls == 40:
            pool.late = count - 1
            driver.stop()

    found = list(driver.run(TASKS, fall_silent))
    assert pool.dismissed == [count - 1]
    assert f"worker {count - 1} was lost (it did not answer): its images are unfinished" in caplog.text
    assert len({outcome.index for outcome in found}) == len(found)
    whole, _, _ = alone("parsimonious")
    for outcome in found:
        if outcome.ended == "interrupted":
            assert outcome.queries == sum(len(part.loss) for part in entries if part.image == outcome.index)
        else:
            assert outcome == whole[outcome.index]
    assert {part.image for part in entries} <= {outcome.index for outcome in found}
    assert driver.counters.queries == sum(outcome.queries for outcome in found)


def test_the_driver_waits_for_a_slow_worker_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    pool = ScriptedPool(2)
    driver = Driver(pool, engine_config())

    def pass_time(_: Step) -> None:
        clock[0] += 100  # seconds per model call
        if driver.counters.calls == 20:
            driver.stop()

    assert [outcome for outcome in driver.run(TASKS, pass_time) if outcome.ended == "interrupted"]
    assert pool.dismissed == []


@pytest.mark.parametrize("seed", range(5))
def test_a_worker_that_starts_after_an_attack_has_ended_loses_no_report_of_the_next(seed: int) -> None:
    pool = ScriptedPool(2, seed=seed, late=1)
    list(Driver(pool, engine_config("pgd,steps=10")).run(TASKS))
    pool.late, before = None, len(pool.shown)
    driver = Driver(pool, engine_config())

    def stop_soon(_: Step) -> None:
        if driver.counters.calls == 40:
            driver.stop()

    interrupted = [outcome for outcome in driver.run(TASKS, stop_soon) if outcome.ended == "interrupted"]
    assert len(pool.given) == 2
    assert driver.counters.rows == len(pool.shown) - before
    assert sum(len(state.images) for state in driver._states.values()) == 0 < len(interrupted)


def test_a_driver_without_workers_says_so() -> None:
    with pytest.raises(WorkerError, match=r"no worker is left: the last one was lost \(it was time\)"):
        list(Driver(ScriptedPool(2, losses=2), engine_config()).run(TASKS))


class UnsendableError(Exception):
    """An error whose arguments differ from those of its constructor, so that it cannot be unpickled."""

    def __init__(self, left: str, right: str) -> None:
        super().__init__(f"{left} {right}")


@dataclass(frozen=True)
class Broken(Attack):
    error: Exception

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        raise self.error
        yield


def test_any_error_is_reported() -> None:
    def error_of(attack: Attack) -> Exception | None:
        worker = Worker(Network(SHAPE))
        worker.handle(Request(config=replace(engine_config(), attack=attack)))
        return worker.handle(Request(TASKS)).error

    wrong = error_of(Broken(KeyError("no such block")))
    assert isinstance(wrong, KeyError)
    assert "In a worker:" in wrong.__notes__[0]
    wrong = error_of(Broken(UnsendableError("too", "bright")))
    assert isinstance(wrong, WorkerError)
    assert str(wrong) == "a worker failed: UnsendableError: too bright"
    wrong = Worker("nowhere.onnx").handle(Request(config=engine_config())).error
    assert isinstance(wrong, ModelError)
    assert "there is no model file nowhere.onnx" in str(wrong)

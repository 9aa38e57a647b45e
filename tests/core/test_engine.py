"""The engine: results do not depend on batches, and a run can be stopped, resumed or fail."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from parsimon import ModelError, Parsimonious, Threat
from parsimon.attacks.registry import parse_attack
from parsimon.core.canvas import render
from parsimon.core.engine import Engine, Step
from parsimon.core.types import Ask, Attack, ImageContext, Images, JournalEntry, Outcome, Search, Task
from parsimon.models import FunctionModel
from parsimon.runs.packing import join_entries
from parsimon.testing import Network, tasks_for
from scripted import SHAPE, Scripted, brightness, grey, results

pytestmark = pytest.mark.usefixtures("either_canvas")


@settings(max_examples=30)
@given(
    shape=st.sampled_from([(3, 8, 8), (1, 9, 13), (3, 12, 7)]),
    batch_size=st.sampled_from([1, 7, 64, 256]),
    in_flight=st.sampled_from([1, 16, 256]),
    behaviour=st.sampled_from(["paper", "published"]),
    targeted=st.booleans(),
    loss=st.sampled_from(["cross-entropy", "margin"]),
    budget=st.sampled_from([1, 40, 300]),
    seed=st.integers(0, 3),
)
def test_results_do_not_depend_on_the_batch_size_or_on_other_images(
    shape: tuple[int, int, int],
    batch_size: int,
    in_flight: int,
    behaviour: Literal["paper", "published"],
    targeted: bool,
    loss: Any,
    budget: int,
    seed: int,
) -> None:
    attack, threat, model = Parsimonious(behaviour), Threat(0.02, targeted, loss), Network(shape)
    tasks = tasks_for(shape, threat, 24)

    def run(tasks: tuple[Task, ...], batch_size: int, in_flight: int) -> dict[int, Outcome]:
        engine = Engine(attack, model, threat, budget=budget, seed=seed, batch_size=batch_size, in_flight=in_flight)
        found = results(engine.run(tasks))
        assert engine.counters.queries == sum(outcome.queries for outcome in found.values())
        assert engine.counters.rows <= budget * len(tasks), "the model was shown more than the budget allows"
        assert engine.counters.padding == 0
        return found

    together = run(tasks, batch_size, in_flight)
    alone = {task.index: run((task,), 1, 1)[task.index] for task in tasks[:: len(tasks) // 6]}
    assert {index: together[index] for index in alone} == alone
    backwards = run(tasks[::-1], 32, 8)
    assert together == backwards
    # Outcomes are compared without their confidence, but the scores of this network do not depend on the batch.
    assert all(outcome.confidence == backwards[index].confidence for index, outcome in together.items())
    assert all(outcome.confidence == together[index].confidence for index, outcome in alone.items())
    for task in tasks:
        outcome = together[task.index]
        assert outcome.queries <= budget
        assert (outcome.queries == budget) or outcome.ended != "budget"
        assert outcome.success == (outcome.point is not None)
        if outcome.point is not None:
            image = render(task.image, threat, outcome.point)
            assert np.abs(image - task.image).max() <= threat.eps + 1e-6
            assert (model(image[None]).argmax() == task.goal) == targeted
            assert model(image[None]).argmax() == outcome.predicted


def test_a_fixed_batch_is_always_filled_to_its_shape_and_padding_is_not_counted() -> None:
    shapes = []

    class Fixed(Network):
        fixed_batch = True

        def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
            shapes.append(len(images))
            return super().__call__(images)

    threat = Threat(0.01)
    tasks = tasks_for(SHAPE, threat, 10)
    padded, plain = (
        Engine(Parsimonious(), model(SHAPE), threat, budget=150, batch_size=16) for model in (Fixed, Network)
    )
    assert results(padded.run(tasks)) == results(plain.run(tasks))
    assert set(shapes) == {16}
    assert padded.counters.rows == plain.counters.rows
    assert padded.counters.rows + padded.counters.padding == 16 * padded.counters.calls


def test_a_stopped_engine_yields_finished_images_and_marks_the_others_as_interrupted() -> None:
    model, threat = Network(SHAPE), Threat(0.02)
    tasks = tasks_for(SHAPE, threat, 20)
    whole = results(Engine(Parsimonious(), model, threat, budget=400).run(tasks))
    engine = Engine(Parsimonious(), model, threat, budget=400, batch_size=32, in_flight=8)
    stopped = results(engine.run(tasks, lambda step: engine.stop() if step.counters.calls == 12 else None))
    unfinished = [outcome for outcome in stopped.values() if outcome.ended == "interrupted"]
    finished = {index: outcome for index, outcome in stopped.items() if outcome.ended != "interrupted"}
    assert finished
    assert finished == {index: whole[index] for index in finished}
    assert 0 < len(unfinished) <= 8
    assert all(outcome.queries <= whole[outcome.index].queries for outcome in unfinished)


def test_a_stopped_engine_counts_an_image_that_waits_with_a_journal() -> None:
    """Few searches start per turn, so slots may be free; but queries in a journal stay charged."""
    model, threat = Network(SHAPE), Threat(1e-4)
    tasks = tasks_for(SHAPE, threat, 9)
    journal: dict[int, list[JournalEntry]] = {}
    first = Engine(Parsimonious(), model, threat, budget=400, batch_size=4)

    def record(step: Step) -> None:
        for entry in step.entries:
            journal.setdefault(entry.image, []).append(entry)
        if step.counters.calls == 9:
            first.stop()

    cut = results(first.run(tasks, record))
    again = [
        replace(task, journal=join_entries(journal[task.index]) if task.index in journal else None) for task in tasks
    ]
    second = Engine(Parsimonious(), model, threat, budget=400, batch_size=1)
    begun = results(second.run(again, lambda _: second.stop()))
    assert len(journal) > 2
    for index in journal:
        assert begun[index].queries in (cut[index].queries, cut[index].queries + 1)
    assert sum(outcome.queries for outcome in begun.values()) == second.counters.queries


def test_an_engine_leaves_the_switch_interval_of_its_process_alone() -> None:
    before = sys.getswitchinterval()
    intervals: list[float] = []
    threat = Threat(0.02)
    engine = Engine(Parsimonious(), Network(SHAPE), threat, budget=40, batch_size=2)
    for _ in engine.run(tasks_for(SHAPE, threat, 4), lambda _: intervals.append(sys.getswitchinterval())):
        pass
    assert set(intervals) == {before}


def test_images_are_read_only_when_a_slot_is_free() -> None:
    threat = Threat(0.02)
    engine = Engine(Parsimonious(), Network(SHAPE), threat, budget=100, in_flight=5)
    read = 0

    def reading() -> Iterator[Task]:
        nonlocal read
        for task in tasks_for(SHAPE, threat, 30):
            read += 1
            yield task

    for ended, _ in enumerate(engine.run(reading())):
        assert read <= ended + 5


def test_nan_scores_name_the_image() -> None:
    model, threat = Network(SHAPE), Threat(0.02)
    calls = 0

    def failing(images: NDArray[np.float32]) -> NDArray[np.float64]:
        nonlocal calls
        calls += 1
        scores = model(images)
        return scores * np.nan if calls > 3 else scores

    hardest = tasks_for(SHAPE, threat)[-1]
    engine = Engine(Parsimonious(), FunctionModel(failing), threat, budget=100, in_flight=1)
    with pytest.raises(ModelError, match=f"NaN scores for a point near image {hardest.index};"):
        list(engine.run([hardest]))


@pytest.mark.parametrize("name", ["parsimonious", "bandits", "nes,samples=6", "square", "simba", "pgd"])
@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_a_resumed_search_continues_where_it_stopped_without_repeated_queries(name: str, batch_size: int) -> None:
    attack, threat = parse_attack(name), Threat(0.02)
    network = Network((3, 8, 8))
    tasks = tasks_for(network.shape, threat, 6)
    shown = 0

    class Counting(Network):
        def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
            nonlocal shown
            shown += len(images)
            return super().__call__(images)

    def engine(network: Network) -> Engine:
        return Engine(attack, network, threat, budget=60, batch_size=batch_size, in_flight=4)

    whole = results(engine(network).run(tasks))
    for calls in {1, 2, 3, 7, 20}:
        cut = engine(network)
        journal: dict[int, list[JournalEntry]] = {}

        def record(step: Step, cut: Engine = cut, calls: int = calls, journal: Any = journal) -> None:
            for entry in step.entries:
                journal.setdefault(entry.image, []).append(entry)
            if step.counters.calls == calls:
                cut.stop()

        before = {index: each for index, each in results(cut.run(tasks, record)).items() if each.ended != "interrupted"}
        again = [
            replace(task, journal=join_entries(journal[task.index]) if task.index in journal else None)
            for task in tasks
            if task.index not in before
        ]
        shown = 0
        resumed = engine(Counting((3, 8, 8)))
        after = results(resumed.run(again))
        assert {**before, **after} == whole
        assert all(each.confidence == whole[each.index].confidence for each in after.values())
        answered = sum(len(entry.loss) for index in after for entry in journal.get(index, []))
        if batch_size == 1:  # otherwise points after a success are evaluated too, without being counted
            assert shown + answered == sum(after[index].queries + after[index].uncharged for index in after)
        assert resumed.counters.queries == sum(outcome.queries for outcome in after.values())


@dataclass(frozen=True)
class Patient(Attack):
    """Records the threads of its searches; the search on image 0 waits until the model was called `calls` times."""

    calls: int
    called: threading.Semaphore
    threads: set[int] = field(default_factory=set)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        yield Ask(Images(context.image[None]))
        self.threads.add(threading.get_ident())
        if context.index == 0:
            for _ in range(self.calls):
                assert self.called.acquire(timeout=30), "the model was not called in the meantime"
        yield Ask(Images(context.image[None]))


def test_searches_run_in_another_thread_while_the_model_is_called_in_that_of_the_caller() -> None:
    called, callers = threading.Semaphore(0), set()

    class Network(FunctionModel):
        def __call__(self, images: Any) -> Any:
            callers.add(threading.get_ident())
            called.release()
            return super().__call__(images)

    attack = Patient(2, called)  # the first batch is delivered during the second call
    images = [Task(index, np.full((1, 2, 2), 0.25, np.float32), 0) for index in range(8)]
    engine = Engine(attack, Network(brightness), Threat(0.1, loss="margin"), budget=9, batch_size=4)
    assert [outcome.ended for outcome in engine.run(images)] == ["exhausted"] * 8
    assert callers == {threading.get_ident()}
    assert attack.threads
    assert not attack.threads & callers


class Cores(FunctionModel):
    """An asynchronous model with its own threads."""

    asynchronous = True
    saturating_batch = 2

    def __init__(self, function: Any, cores: int = 1) -> None:
        super().__init__(function)
        self._pool = ThreadPoolExecutor(cores)

    def start(self, images: Any) -> Any:
        return self._pool.submit(self, images).result


def test_an_asynchronous_model_is_given_a_batch_before_it_has_finished_the_previous_one() -> None:
    meeting = threading.Barrier(2, timeout=30)

    def in_company(images: NDArray[np.float32]) -> NDArray[np.float64]:
        meeting.wait()  # never ends if only this batch is being computed
        return brightness(images)

    attack = Scripted((grey(0.1), grey(0.2), grey(0.3)))
    tasks = [Task(index, np.full((1, 2, 2), 0.25, np.float32), 0) for index in range(8)]
    engine = Engine(attack, Cores(in_company, cores=2), Threat(0.75, loss="margin"), budget=9, batch_size=4)
    assert [outcome.ended for outcome in engine.run(tasks)] == ["exhausted"] * 8
    assert engine.counters.calls == 6


@pytest.mark.parametrize(("images", "batches"), [(3, [3, 3]), (5, [4, 4, 2]), (6, [4, 2, 4, 2])])
def test_a_batch_rendered_ahead_need_not_be_full_if_it_keeps_the_model_busy(images: int, batches: list[int]) -> None:
    shown: list[int] = []

    class Watched(Cores):
        def start(self, images: Any) -> Any:
            shown.append(len(images))
            return super().start(images)

    attack = Scripted((grey(0.1), grey(0.2)))
    tasks = [Task(index, np.full((1, 2, 2), 0.25, np.float32), 0) for index in range(images)]
    engine = Engine(attack, Watched(brightness), Threat(0.75, loss="margin"), budget=9, batch_size=4)
    assert [outcome.ended for outcome in engine.run(tasks)] == ["exhausted"] * images
    assert shown == batches


@pytest.mark.parametrize("name", ["parsimonious", "thrift", "square"])
def test_results_do_not_depend_on_whether_the_model_is_asynchronous(name: str) -> None:
    attack, threat, network = parse_attack(name), Threat(0.02), Network(SHAPE)
    tasks = tasks_for(SHAPE, threat, 20)
    ahead, in_turn = (
        results(Engine(attack, model, threat, budget=200, batch_size=6, in_flight=9).run(tasks))
        for model in (Cores(network), FunctionModel(network))
    )
    assert ahead == in_turn


@pytest.mark.parametrize("kind", [FunctionModel, Cores])
@pytest.mark.parametrize("failing", [2, 3, 6])
def test_when_the_model_fails_all_earlier_batches_have_been_delivered(failing: int, kind: Any) -> None:
    calls = 0

    def network(images: NDArray[np.float32]) -> NDArray[np.float64]:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise RuntimeError("out of memory")
        return brightness(images)

    attack = Scripted((grey(0.1), grey(0.2), grey(0.3)))
    tasks = [Task(index, np.full((1, 2, 2), 0.25, np.float32), 0) for index in range(8)]
    engine = Engine(attack, kind(network), Threat(0.75, loss="margin"), budget=9, batch_size=4)
    steps: list[int] = []
    with pytest.raises(ModelError, match="out of memory"):
        list(engine.run(tasks, lambda step: steps.append(len(step.entries))))
    assert len(steps) == failing - 1
    assert engine.counters.queries == 4 * (failing - 1)

"""The one loop: exact counts, first success, the budget, and results that do not depend on what runs beside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from parsimon import ModelError, Parsimonious, Threat
from parsimon.canvas import render
from parsimon.engine import Engine
from parsimon.oracles import CallableOracle
from parsimon.protocol import Ask, Attack, Images, Outcome, Scene, Search, Task

Network = Callable[[NDArray[np.float32]], NDArray[np.float64]]


def network(shape: tuple[int, int, int], classes: int = 4, seed: int = 0) -> Network:
    """A network that treats every row alone: sums run along a row, so that rounding is the row's own."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(classes, math.prod(shape)))
    phases = rng.normal(size=(classes, math.prod(shape)))

    def scores(images: NDArray[np.float32]) -> NDArray[np.float64]:
        rows = images.reshape(len(images), 1, -1).astype(np.float64)
        out: NDArray[np.float64] = (np.sin(7 * rows + phases) * weights).sum(axis=-1)
        return out

    return scores


def tasks_for(model: Network, shape: tuple[int, int, int], count: int, targeted: bool = False) -> list[Task]:
    images = np.random.default_rng(5).random((count, *shape)).astype(np.float32)
    seen = model(images)
    goals = np.argsort(seen, axis=1)[:, -2] if targeted else seen.argmax(axis=1)
    return [Task(index, image, int(goal)) for index, (image, goal) in enumerate(zip(images, goals, strict=True))]


def results(outcomes: Iterator[Outcome]) -> dict[int, Outcome]:
    return {outcome.index: outcome for outcome in outcomes}


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
def test_results_do_not_depend_on_the_batch_or_on_what_is_in_flight(
    shape: tuple[int, int, int],
    batch_size: int,
    in_flight: int,
    behaviour: Literal["paper", "published"],
    targeted: bool,
    loss: Any,
    budget: int,
    seed: int,
) -> None:
    model = network(shape)
    tasks = tasks_for(model, shape, 24, targeted)
    attack, threat = Parsimonious(behaviour), Threat(0.02, targeted, loss)

    def run(tasks: list[Task], batch_size: int, in_flight: int) -> dict[int, Outcome]:
        engine = Engine(
            attack, CallableOracle(model), threat, budget=budget, seed=seed, batch_size=batch_size, in_flight=in_flight
        )
        found = results(engine.run(tasks))
        assert engine.tally.queries == sum(outcome.queries for outcome in found.values())
        assert engine.tally.rows <= budget * len(tasks), "the model was shown more than the budget allows"
        assert engine.tally.padding == 0
        return found

    together = run(tasks, batch_size, in_flight)
    alone = {task.index: run([task], 1, 1)[task.index] for task in tasks[:: len(tasks) // 6]}
    assert {index: together[index] for index in alone} == alone
    assert together == run(tasks[::-1], 32, 8)
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


@dataclass(frozen=True)
class Scripted(Attack):
    """Asks for grey images of the given levels, one ask after another."""

    asks: tuple[tuple[tuple[float, ...], bool, float], ...]
    heard: list[list[float]]

    def search(self, scene: Scene, rng: np.random.Generator) -> Search:
        assert rng is not None
        for levels, charged, eligible_from in self.asks:
            pixels = np.stack([np.full(scene.shape, level, np.float32) for level in levels])
            reply = yield Ask(Images(pixels), charged, eligible_from)
            self.heard.append(reply.loss.tolist())


def brightness(images: NDArray[np.float32]) -> NDArray[np.float64]:
    """Class 0 below a half, class 1 above; the untargeted margin loss of class 0 is the brightness minus a half."""
    mean = images.mean(axis=(1, 2, 3), dtype=np.float64)
    return np.stack([np.full(len(images), 0.5), mean], axis=1)


def run_script(
    *asks: tuple[tuple[float, ...], bool, float], budget: int = 100, batch_size: int = 2
) -> tuple[Outcome, list[list[float]], Engine]:
    attack = Scripted(asks, [])
    engine = Engine(
        attack, CallableOracle(brightness), Threat(0.75, loss="margin"), budget=budget, batch_size=batch_size
    )
    (outcome,) = engine.run([Task(0, np.full((1, 2, 2), 0.25, np.float32), 0)])
    return outcome, attack.heard, engine


ALWAYS, NEVER = -math.inf, math.inf


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_only_queries_up_to_the_first_success_count(batch_size: int) -> None:
    outcome, heard, _ = run_script(
        ((0.1, 0.2), True, ALWAYS), ((0.3, 0.75, 0.9, 0.1), True, ALWAYS), batch_size=batch_size
    )
    assert (outcome.ended, outcome.queries, outcome.predicted) == ("success", 4, 1)
    assert isinstance(outcome.point, np.ndarray)
    assert outcome.point.mean() == 0.75
    assert len(heard) == 1


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_a_reply_holds_the_losses_in_the_order_of_the_question(batch_size: int) -> None:
    outcome, heard, _ = run_script(((0.25, 0.0, 0.5), True, ALWAYS), ((0.125,), True, ALWAYS), batch_size=batch_size)
    assert heard == [[-0.25, -0.5, 0.0], [-0.375]]
    assert (outcome.ended, outcome.queries) == ("exhausted", 4)


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 6])
def test_the_budget_is_never_exceeded_by_one(budget: int) -> None:
    outcome, _, engine = run_script(
        ((0.1, 0.2), True, ALWAYS), ((0.3, 0.1), True, ALWAYS), ((0.2, 0.1), True, ALWAYS), budget=budget, batch_size=5
    )
    assert outcome.queries == budget == engine.tally.rows
    assert outcome.ended == ("exhausted" if budget == 6 else "budget")


def test_a_success_within_a_truncated_question_counts() -> None:
    outcome, _, _ = run_script(((0.1, 0.9, 0.9), True, ALWAYS), budget=2)
    assert (outcome.ended, outcome.queries) == ("success", 2)


def test_a_success_just_past_the_budget_is_a_failure() -> None:
    outcome, _, _ = run_script(((0.1, 0.1, 0.9), True, ALWAYS), budget=2)
    assert (outcome.ended, outcome.queries) == ("budget", 2)


def test_uncharged_questions_have_a_count_of_their_own_and_may_end_the_attack() -> None:
    outcome, _, engine = run_script(((0.1, 0.2), True, ALWAYS), ((0.1, 0.9), False, ALWAYS), budget=2)
    assert (outcome.ended, outcome.queries, outcome.uncharged) == ("success", 2, 2)
    assert engine.tally.queries == 2


def test_a_success_below_the_eligible_loss_does_not_end_the_attack() -> None:
    outcome, heard, _ = run_script(((0.6, 0.75), True, 0.2), ((0.9,), True, NEVER))
    assert (outcome.ended, outcome.queries) == ("success", 2)
    outcome, heard, _ = run_script(((0.6, 0.65), True, 0.2), ((0.9,), True, NEVER))
    assert (outcome.ended, outcome.queries) == ("exhausted", 3)
    assert len(heard) == 2


def test_an_attack_with_nothing_to_ask_ends_at_once() -> None:
    outcome, _, engine = run_script()
    assert (outcome.ended, outcome.queries, engine.tally.calls) == ("exhausted", 0, 0)


def test_a_fixed_batch_is_always_filled_to_its_shape_and_padding_is_not_counted() -> None:
    shapes = []

    class Fixed(CallableOracle):
        fixed_batch = True

        def __call__(self, images: NDArray[Any]) -> NDArray[Any]:
            shapes.append(len(images))
            return super().__call__(images)

    shape = (3, 8, 8)
    model = network(shape)
    tasks = tasks_for(model, shape, 10)
    padded, plain = (
        Engine(Parsimonious(), oracle, Threat(0.01), budget=150, batch_size=16)
        for oracle in (Fixed(model), CallableOracle(model))
    )
    assert results(padded.run(tasks)) == results(plain.run(tasks))
    assert set(shapes) == {16}
    assert padded.tally.rows == plain.tally.rows
    assert padded.tally.rows + padded.tally.padding == 16 * padded.tally.calls


def test_stopping_keeps_what_is_finished_and_says_what_is_not() -> None:
    shape = (3, 8, 8)
    model = network(shape)
    tasks = tasks_for(model, shape, 20)
    attack: Attack = Parsimonious()
    whole = results(Engine(attack, CallableOracle(model), Threat(0.02), budget=400).run(tasks))
    engine = Engine(attack, CallableOracle(model), Threat(0.02), budget=400, batch_size=32, in_flight=8)
    stopped = results(engine.run(tasks, lambda tally: engine.stop() if tally.calls == 12 else None))
    unfinished = [outcome for outcome in stopped.values() if outcome.ended == "interrupted"]
    finished = {index: outcome for index, outcome in stopped.items() if outcome.ended != "interrupted"}
    assert finished
    assert finished == {index: whole[index] for index in finished}
    assert 0 < len(unfinished) <= 8
    assert all(outcome.queries <= whole[outcome.index].queries for outcome in unfinished)


def test_images_are_read_only_when_there_is_room_for_them() -> None:
    shape = (3, 8, 8)
    model = network(shape)
    engine = Engine(Parsimonious(), CallableOracle(model), Threat(0.02), budget=100, in_flight=5)
    read = 0

    def reading() -> Iterator[Task]:
        nonlocal read
        for task in tasks_for(model, shape, 30):
            read += 1
            yield task

    for ended, _ in enumerate(engine.run(reading())):
        assert read <= ended + 5


def test_nan_scores_name_the_image() -> None:
    shape = (3, 8, 8)
    model = network(shape)
    calls = 0

    def failing(images: NDArray[np.float32]) -> NDArray[np.float64]:
        nonlocal calls
        calls += 1
        scores = model(images)
        return scores * np.nan if calls > 3 else scores

    engine = Engine(Parsimonious(), CallableOracle(failing), Threat(0.02), budget=100, in_flight=1)
    with pytest.raises(ModelError, match="NaN scores for a point near image 0"):
        list(engine.run(tasks_for(model, shape, 3)))

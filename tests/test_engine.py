"""The one loop: exact counts, first success, the budget, and results that do not depend on what runs beside."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from parsimon import ModelError, Parsimonious, Threat
from parsimon.attacks import PGD
from parsimon.attacks.named import open_attack
from parsimon.canvas import render
from parsimon.engine import Engine, Step
from parsimon.oracles import CallableOracle
from parsimon.protocol import Ask, Attack, Images, Outcome, Picture, Reply, Scene, Search, Task, Told
from parsimon.store import joined
from parsimon.testing import Network, tasks_for

SHAPE = (3, 8, 8)


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
    attack, threat, model = Parsimonious(behaviour), Threat(0.02, targeted, loss), Network(shape)
    tasks = tasks_for(shape, threat, 24)

    def run(tasks: tuple[Task, ...], batch_size: int, in_flight: int) -> dict[int, Outcome]:
        engine = Engine(attack, model, threat, budget=budget, seed=seed, batch_size=batch_size, in_flight=in_flight)
        found = results(engine.run(tasks))
        assert engine.tally.queries == sum(outcome.queries for outcome in found.values())
        assert engine.tally.rows <= budget * len(tasks), "the model was shown more than the budget allows"
        assert engine.tally.padding == 0
        return found

    together = run(tasks, batch_size, in_flight)
    alone = {task.index: run((task,), 1, 1)[task.index] for task in tasks[:: len(tasks) // 6]}
    assert {index: together[index] for index in alone} == alone
    backwards = run(tasks[::-1], 32, 8)
    assert together == backwards
    # A confidence is no part of what is compared, but this network tells the same to the last bit.
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


@dataclass(frozen=True)
class Scripted(Attack):
    """Asks what it is given to ask."""

    asks: tuple[Ask, ...]
    heard: list[Reply] = field(default_factory=list)

    def search(self, scene: Scene, rng: np.random.Generator) -> Search:  # noqa: ARG002
        for ask in self.asks:
            self.heard.append((yield ask))


def grey(*levels: float, charged: bool = True, eligible_from: float = -math.inf, gradient: bool = False) -> Ask:
    """A question about 2 x 2 images of one level each."""
    return Ask(
        Images(np.stack([np.full((1, 2, 2), level, np.float32) for level in levels])), charged, eligible_from, gradient
    )


def brightness(images: NDArray[np.float32]) -> NDArray[np.float64]:
    """Class 0 below a half, class 1 above; the untargeted margin loss of class 0 is the brightness minus a half."""
    mean = images.mean(axis=(1, 2, 3), dtype=np.float64)
    return np.stack([np.full(len(images), 0.5), mean], axis=1)


def run_script(*asks: Ask, budget: int = 100, batch_size: int = 2) -> tuple[Outcome, list[list[float]], Engine]:
    """What becomes of an image of level 0.25 in a ball from 0 to 1, what the attack heard, and the engine."""
    attack = Scripted(asks)
    engine = Engine(
        attack, CallableOracle(brightness), Threat(0.75, loss="margin"), budget=budget, batch_size=batch_size
    )
    (outcome,) = engine.run([Task(0, np.full((1, 2, 2), 0.25, np.float32), 0)])
    return outcome, [reply.loss.tolist() for reply in attack.heard], engine


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_only_queries_up_to_the_first_success_count(batch_size: int) -> None:
    outcome, heard, _ = run_script(grey(0.1, 0.2), grey(0.3, 0.75, 0.9, 0.1), batch_size=batch_size)
    assert (outcome.ended, outcome.queries, outcome.predicted) == ("success", 4, 1)
    assert isinstance(outcome.point, Picture)
    assert outcome.point.pixels.mean() == 0.75
    assert len(heard) == 1


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_a_success_has_the_models_confidence_there_and_a_failure_none(batch_size: int) -> None:
    outcome, _, _ = run_script(grey(0.1, 0.2), grey(0.3, 0.75, 0.9, 0.1), batch_size=batch_size)
    assert outcome.confidence == pytest.approx(1 / (1 + math.exp(0.5 - 0.75)), abs=1e-6)
    failure, _, _ = run_script(grey(0.1, 0.2), batch_size=batch_size)
    assert failure.confidence is None


def test_confidence_is_worked_out_for_successes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    confidence = Threat.confidence

    def noting(threat: Threat, scores: NDArray[Any]) -> NDArray[np.float64]:
        rows.append(len(scores))
        return confidence(threat, scores)

    monkeypatch.setattr(Threat, "confidence", noting)
    threat = Threat(0.02)
    found = results(Engine(Parsimonious(), Network(SHAPE), threat, budget=300).run(tasks_for(SHAPE, threat, 24)))
    assert rows == [1] * sum(outcome.success for outcome in found.values())
    assert rows


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_a_reply_holds_the_losses_in_the_order_of_the_question(batch_size: int) -> None:
    outcome, heard, _ = run_script(grey(0.25, 0.0, 0.5), grey(0.125), batch_size=batch_size)
    assert heard == [[-0.25, -0.5, 0.0], [-0.375]]
    assert (outcome.ended, outcome.queries) == ("exhausted", 4)


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 6])
def test_the_budget_is_never_exceeded_by_one(budget: int) -> None:
    outcome, _, engine = run_script(grey(0.1, 0.2), grey(0.3, 0.1), grey(0.2, 0.1), budget=budget, batch_size=5)
    assert outcome.queries == budget == engine.tally.rows
    assert outcome.ended == ("exhausted" if budget == 6 else "budget")


def test_a_success_within_a_truncated_question_counts() -> None:
    outcome, _, _ = run_script(grey(0.1, 0.9, 0.9), budget=2)
    assert (outcome.ended, outcome.queries) == ("success", 2)


def test_a_success_just_past_the_budget_is_a_failure() -> None:
    outcome, _, _ = run_script(grey(0.1, 0.1, 0.9), budget=2)
    assert (outcome.ended, outcome.queries) == ("budget", 2)


def test_uncharged_questions_have_a_count_of_their_own_and_may_end_the_attack() -> None:
    outcome, _, engine = run_script(grey(0.1, 0.2), grey(0.1, 0.9, charged=False), budget=2)
    assert (outcome.ended, outcome.queries, outcome.uncharged) == ("success", 2, 2)
    assert engine.tally.queries == 2


def test_a_success_below_the_eligible_loss_does_not_end_the_attack() -> None:
    probe = grey(0.9, eligible_from=math.inf)
    outcome, heard, _ = run_script(grey(0.6, 0.75, eligible_from=0.2), probe)
    assert (outcome.ended, outcome.queries) == ("success", 2)
    outcome, heard, _ = run_script(grey(0.6, 0.65, eligible_from=0.2), probe)
    assert (outcome.ended, outcome.queries) == ("exhausted", 3)
    assert len(heard) == 2


def test_an_attack_with_nothing_to_ask_ends_at_once() -> None:
    outcome, _, engine = run_script()
    assert (outcome.ended, outcome.queries, engine.tally.calls) == ("exhausted", 0, 0)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_what_lies_outside_the_ball_is_told_and_counted_but_is_no_success(batch_size: int) -> None:
    outcome, heard, _ = run_script(
        grey(1.5, 0.25, -0.5), grey(2.0, 0.25, charged=False), grey(1.25, 1.0, 1.75), batch_size=batch_size
    )
    assert heard == [[1.0, -0.25, -1.0], [1.5, -0.25]]
    assert (outcome.ended, outcome.predicted) == ("success", 1)
    assert (outcome.queries, outcome.uncharged) == (5, 2)
    assert outcome.outside == 4, "all but the last, which was asked for after the success"
    assert isinstance(outcome.point, Picture)
    assert outcome.point.pixels.mean() == 1.0


def test_the_surface_of_the_ball_is_in_it_to_the_last_bit() -> None:
    above = float(np.nextafter(np.float32(1), np.float32(2)))
    assert run_script(grey(above))[0].outside == 1
    assert not run_script(grey(above))[0].success
    assert run_script(grey(1.0))[0].success


def test_a_pixel_that_is_not_a_number_lies_outside_the_ball() -> None:
    attack = Scripted((grey(math.nan),))
    engine = Engine(
        attack, CallableOracle(lambda images: brightness(np.nan_to_num(images, nan=0.9))), Threat(0.75), budget=9
    )
    (outcome,) = engine.run([Task(0, np.full((1, 2, 2), 0.25, np.float32), 0)])
    assert (outcome.success, outcome.outside) == (False, 1)


@dataclass(frozen=True)
class Climbing(Attack):
    """Asks for as many images at once as its image's number says, and for their gradients if that is even."""

    heard: dict[int, list[tuple[NDArray[np.float32], Reply]]] = field(default_factory=lambda: defaultdict(list))
    white_box: ClassVar = True

    def search(self, scene: Scene, rng: np.random.Generator) -> Search:
        for _ in range(4):
            pixels = rng.random((scene.index, *scene.shape), np.float32)
            reply = yield Ask(Images(pixels), eligible_from=math.inf, gradient=scene.index % 2 == 0)
            self.heard[scene.index].append((pixels, reply))

    def run(self, threat: Threat, batch_size: int) -> dict[int, Outcome]:
        tasks = [Task(index, np.full((1, 3, 4), 0.5, np.float32), index % 4) for index in range(1, 8)]
        engine = Engine(self, Network((1, 3, 4)), threat, budget=100, batch_size=batch_size)
        return results(engine.run(tasks))


@pytest.mark.parametrize("batch_size", [1, 3, 8, 64])
@pytest.mark.parametrize("targeted", [False, True])
def test_gradients_come_in_the_order_of_the_question_and_are_counted(batch_size: int, targeted: bool) -> None:
    attack, threat = Climbing(), Threat(0.5, targeted)
    outcomes = attack.run(threat, batch_size)
    assert [outcomes[index].queries for index in range(1, 8)] == [4 * index for index in range(1, 8)]
    assert [outcomes[index].gradients for index in range(1, 8)] == [0, 8, 0, 16, 0, 24, 0]
    for index in (2, 4, 6):
        goals = np.array([index % 4])
        for pixels, reply in attack.heard[index]:
            assert reply.gradient is not None
            assert len(reply.gradient) == len(pixels)
            for image, gradient in zip(pixels, reply.gradient, strict=True):
                _, (alone,) = Network((1, 3, 4)).pull_back(image[None], lambda scores: threat.slope(scores, goals))  # noqa: B023
                assert np.array_equal(gradient, alone)


@pytest.mark.parametrize("batch_size", [3, 8, 64])
def test_who_does_not_ask_for_gradients_hears_none_even_beside_who_does(batch_size: int) -> None:
    attack = Climbing()
    attack.run(Threat(0.5), batch_size)
    assert all(reply.gradient is None for index in (1, 3, 5, 7) for _, reply in attack.heard[index])


def run_curious() -> tuple[Outcome, list[Reply]]:
    """An attack that asks for gradients, but is not white-box, on a model that tells them."""
    attack = Scripted((grey(0.1, 0.2, eligible_from=math.inf, gradient=True),))
    engine = Engine(attack, Network((1, 2, 2)), Threat(1.0), budget=10)
    (outcome,) = engine.run([Task(0, np.zeros((1, 2, 2), np.float32), 0)])
    return outcome, attack.heard


def test_an_attack_that_is_not_white_box_is_told_no_gradient() -> None:
    _, heard = run_curious()
    assert [reply.gradient for reply in heard] == [None]


def test_a_gradient_that_is_not_told_is_not_counted() -> None:
    outcome, _ = run_curious()
    assert outcome.gradients == 0


def test_a_white_box_attack_on_a_model_without_gradients_is_refused_at_once() -> None:
    with pytest.raises(
        ModelError, match="PGD is a white-box attack and needs gradients, which this model does not tell"
    ):
        Engine(PGD(), CallableOracle(Network(SHAPE)), Threat(0.02), budget=10)


def test_rows_that_fill_a_batch_have_no_slope() -> None:
    slopes = []

    class Fixed(Network):
        fixed_batch = True

        def pull_back(
            self, images: NDArray[np.float32], slope: Callable[[NDArray[Any]], NDArray[Any]]
        ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
            slopes.append(slope(self(images)))
            return super().pull_back(images, lambda _: slopes[-1])

    threat = Threat(0.01)
    tasks = tasks_for(SHAPE, threat, 5)
    padded, plain = (Engine(PGD(), model(SHAPE), threat, budget=50, batch_size=16) for model in (Fixed, Network))
    fates = [
        {
            index: (outcome.ended, outcome.queries, outcome.gradients)
            for index, outcome in results(engine.run(tasks)).items()
        }
        for engine in (padded, plain)
    ]
    assert fates[0] == fates[1]
    assert slopes
    for of_rows in slopes:
        assert len(of_rows) == 16
        assert of_rows[:1].any()
        assert not of_rows[5:].any()


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
    assert padded.tally.rows == plain.tally.rows
    assert padded.tally.rows + padded.tally.padding == 16 * padded.tally.calls


def test_stopping_keeps_what_is_finished_and_says_what_is_not() -> None:
    model, threat = Network(SHAPE), Threat(0.02)
    tasks = tasks_for(SHAPE, threat, 20)
    whole = results(Engine(Parsimonious(), model, threat, budget=400).run(tasks))
    engine = Engine(Parsimonious(), model, threat, budget=400, batch_size=32, in_flight=8)
    stopped = results(engine.run(tasks, lambda step: engine.stop() if step.tally.calls == 12 else None))
    unfinished = [outcome for outcome in stopped.values() if outcome.ended == "interrupted"]
    finished = {index: outcome for index, outcome in stopped.items() if outcome.ended != "interrupted"}
    assert finished
    assert finished == {index: whole[index] for index in finished}
    assert 0 < len(unfinished) <= 8
    assert all(outcome.queries <= whole[outcome.index].queries for outcome in unfinished)


def test_images_are_read_only_when_there_is_room_for_them() -> None:
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
    engine = Engine(Parsimonious(), CallableOracle(failing), threat, budget=100, in_flight=1)
    with pytest.raises(ModelError, match=f"NaN scores for a point near image {hardest.index};"):
        list(engine.run([hardest]))


@pytest.mark.parametrize("name", ["parsimonious", "bandits", "nes,samples=6", "square", "simba", "pgd"])
@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_a_search_goes_on_where_it_was_cut_off_and_nothing_answered_is_asked_again(name: str, batch_size: int) -> None:
    attack, threat = open_attack(name), Threat(0.02)
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
        journal: dict[int, list[Told]] = {}

        def record(step: Step, cut: Engine = cut, calls: int = calls, journal: Any = journal) -> None:
            for told in step.told:
                journal.setdefault(told.image, []).append(told)
            if step.tally.calls == calls:
                cut.stop()

        before = {index: each for index, each in results(cut.run(tasks, record)).items() if each.ended != "interrupted"}
        again = [
            replace(task, told=joined(journal[task.index]) if task.index in journal else None)
            for task in tasks
            if task.index not in before
        ]
        shown = 0
        resumed = engine(Counting((3, 8, 8)))
        after = results(resumed.run(again))
        assert {**before, **after} == whole
        assert all(each.confidence == whole[each.index].confidence for each in after.values())
        answered = sum(len(told.loss) for index in after for told in journal.get(index, []))
        if batch_size == 1:  # else points after a success are shown too, and not counted
            assert shown + answered == sum(after[index].queries + after[index].uncharged for index in after)
        assert resumed.tally.queries == sum(outcome.queries for outcome in after.values())


@dataclass(frozen=True)
class Patient(Attack):
    """Tells where its searches run, and lets none go on before the model has been called so often."""

    calls: int
    called: threading.Semaphore
    threads: set[int] = field(default_factory=set)

    def search(self, scene: Scene, rng: np.random.Generator) -> Search:  # noqa: ARG002
        yield Ask(Images(scene.image[None]))
        self.threads.add(threading.get_ident())
        if scene.index == 0:
            for _ in range(self.calls):
                assert self.called.acquire(timeout=30), "the model was not called meanwhile"
        yield Ask(Images(scene.image[None]))


def test_searches_go_on_while_the_model_is_called_in_the_thread_that_it_was_given_in() -> None:
    called, callers = threading.Semaphore(0), set()

    class Network(CallableOracle):
        def __call__(self, images: Any) -> Any:
            callers.add(threading.get_ident())
            called.release()
            return super().__call__(images)

    attack = Patient(2, called)  # the first batch is told of during the second call
    images = [Task(index, np.full((1, 2, 2), 0.25, np.float32), 0) for index in range(8)]
    engine = Engine(attack, Network(brightness), Threat(0.1, loss="margin"), budget=9, batch_size=4)
    assert [outcome.ended for outcome in engine.run(images)] == ["exhausted"] * 8
    assert callers == {threading.get_ident()}
    assert attack.threads
    assert not attack.threads & callers


@pytest.mark.parametrize("failing", [2, 3, 6])
def test_when_the_model_fails_all_that_was_answered_before_has_been_told(failing: int) -> None:
    calls = 0

    def network(images: NDArray[np.float32]) -> NDArray[np.float64]:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise RuntimeError("out of memory")
        return brightness(images)

    attack = Scripted((grey(0.1), grey(0.2), grey(0.3)))
    tasks = [Task(index, np.full((1, 2, 2), 0.25, np.float32), 0) for index in range(8)]
    engine = Engine(attack, CallableOracle(network), Threat(0.75, loss="margin"), budget=9, batch_size=4)
    steps: list[int] = []
    with pytest.raises(ModelError, match="out of memory"):
        list(engine.run(tasks, lambda step: steps.append(len(step.told))))
    assert len(steps) == failing - 1
    assert engine.tally.queries == 4 * (failing - 1)

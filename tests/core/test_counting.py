"""What the engine counts and delivers: up to the first success, within the budget and the ball."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from parsimon import ModelError, Parsimonious, Threat
from parsimon.attacks import PGD
from parsimon.core.engine import Engine
from parsimon.core.types import Ask, Attack, ImageContext, Images, Outcome, Picture, Reply, Search, Task
from parsimon.models import FunctionModel
from parsimon.testing import Network, tasks_for
from scripted import SHAPE, Scripted, brightness, grey, results

pytestmark = pytest.mark.usefixtures("either_canvas")


def run_script(*asks: Ask, budget: int = 100, batch_size: int = 2) -> tuple[Outcome, list[list[float]], Engine]:
    """Attack an image of level 0.25 in a ball from 0 to 1; return its outcome, all losses, and the engine."""
    attack = Scripted(asks)
    engine = Engine(
        attack, FunctionModel(brightness), Threat(0.75, loss="margin"), budget=budget, batch_size=batch_size
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
def test_a_success_has_the_confidence_of_the_model_and_a_failure_has_none(batch_size: int) -> None:
    outcome, _, _ = run_script(grey(0.1, 0.2), grey(0.3, 0.75, 0.9, 0.1), batch_size=batch_size)
    assert outcome.confidence == pytest.approx(1 / (1 + math.exp(0.5 - 0.75)), abs=1e-6)
    failure, _, _ = run_script(grey(0.1, 0.2), batch_size=batch_size)
    assert failure.confidence is None


def test_confidence_is_computed_for_successes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    confidence = Threat.confidence

    def noting(threat: Threat, scores: NDArray[Any]) -> NDArray[np.float64] | None:
        rows.append(len(scores))
        return confidence(threat, scores)

    monkeypatch.setattr(Threat, "confidence", noting)
    threat = Threat(0.02)
    found = results(Engine(Parsimonious(), Network(SHAPE), threat, budget=300).run(tasks_for(SHAPE, threat, 24)))
    assert rows == [1] * sum(outcome.success for outcome in found.values())
    assert rows


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_a_reply_holds_the_losses_in_the_order_of_the_ask(batch_size: int) -> None:
    outcome, heard, _ = run_script(grey(0.25, 0.0, 0.5), grey(0.125), batch_size=batch_size)
    assert heard == [[-0.25, -0.5, 0.0], [-0.375]]
    assert (outcome.ended, outcome.queries) == ("exhausted", 4)


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 6])
def test_the_budget_is_never_exceeded_by_one(budget: int) -> None:
    outcome, _, engine = run_script(grey(0.1, 0.2), grey(0.3, 0.1), grey(0.2, 0.1), budget=budget, batch_size=5)
    assert outcome.queries == budget == engine.counters.rows
    assert outcome.ended == ("exhausted" if budget == 6 else "budget")


def test_a_success_within_a_truncated_ask_counts() -> None:
    outcome, _, _ = run_script(grey(0.1, 0.9, 0.9), budget=2)
    assert (outcome.ended, outcome.queries) == ("success", 2)


def test_a_success_just_past_the_budget_is_a_failure() -> None:
    outcome, _, _ = run_script(grey(0.1, 0.1, 0.9), budget=2)
    assert (outcome.ended, outcome.queries) == ("budget", 2)


def test_uncharged_points_have_their_own_count_and_may_end_the_attack() -> None:
    outcome, _, engine = run_script(grey(0.1, 0.2), grey(0.1, 0.9, charged=False), budget=2)
    assert (outcome.ended, outcome.queries, outcome.uncharged) == ("success", 2, 2)
    assert engine.counters.queries == 2


def test_a_success_below_the_eligible_loss_does_not_end_the_attack() -> None:
    probe = grey(0.9, eligible_from=math.inf)
    outcome, heard, _ = run_script(grey(0.6, 0.75, eligible_from=0.2), probe)
    assert (outcome.ended, outcome.queries) == ("success", 2)
    outcome, heard, _ = run_script(grey(0.6, 0.65, eligible_from=0.2), probe)
    assert (outcome.ended, outcome.queries) == ("exhausted", 3)
    assert len(heard) == 2


def test_an_infinite_loss_of_a_probe_does_not_end_the_attack() -> None:
    """The true class has a score of -inf, which a model may return."""

    def infinite(images: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.where(images.mean(axis=(1, 2, 3))[:, None] > 0.5, [-np.inf, 0.0], [1.0, 0.0])

    attack = Scripted((grey(0.1, 0.9, eligible_from=math.inf), grey(0.1, 0.9)))
    threat = Threat(1, loss="margin")
    (outcome,) = Engine(attack, FunctionModel(infinite), threat, budget=9).run([Task(0, np.zeros((1, 2, 2), "f4"), 0)])
    assert attack.heard[0].loss.tolist() == [-1.0, math.inf]
    assert (outcome.ended, outcome.queries) == ("success", 4)


def test_an_attack_with_nothing_to_ask_ends_at_once() -> None:
    outcome, _, engine = run_script()
    assert (outcome.ended, outcome.queries, engine.counters.calls) == ("exhausted", 0, 0)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_points_outside_the_ball_are_counted_but_never_succeed(batch_size: int) -> None:
    outcome, heard, _ = run_script(
        grey(1.5, 0.25, -0.5), grey(2.0, 0.25, charged=False), grey(1.25, 1.0, 1.75), batch_size=batch_size
    )
    assert heard == [[1.0, -0.25, -1.0], [1.5, -0.25]]
    assert (outcome.ended, outcome.predicted) == ("success", 1)
    assert (outcome.queries, outcome.uncharged) == (5, 2)
    assert outcome.outside == 4, "all but the last, which comes after the success"
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
        attack, FunctionModel(lambda images: brightness(np.nan_to_num(images, nan=0.9))), Threat(0.75), budget=9
    )
    (outcome,) = engine.run([Task(0, np.full((1, 2, 2), 0.25, np.float32), 0)])
    assert (outcome.success, outcome.outside) == (False, 1)


@dataclass(frozen=True)
class Climbing(Attack):
    """Asks for `index` images at once, and for their gradients if the index is even."""

    heard: dict[int, list[tuple[NDArray[np.float32], Reply]]] = field(default_factory=lambda: defaultdict(list))
    needs: ClassVar = "gradient"

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        for _ in range(4):
            pixels = rng.random((context.index, *context.shape), np.float32)
            reply = yield Ask(Images(pixels), eligible_from=math.inf, gradient=context.index % 2 == 0)
            self.heard[context.index].append((pixels, reply))

    def run(self, threat: Threat, batch_size: int) -> dict[int, Outcome]:
        tasks = [Task(index, np.full((1, 3, 4), 0.5, np.float32), index % 4) for index in range(1, 8)]
        engine = Engine(self, Network((1, 3, 4)), threat, budget=100, batch_size=batch_size)
        return results(engine.run(tasks))


@pytest.mark.parametrize("batch_size", [1, 3, 8, 64])
@pytest.mark.parametrize("targeted", [False, True])
def test_gradients_come_in_the_order_of_the_ask_and_are_counted(batch_size: int, targeted: bool) -> None:
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
                _, (alone,) = Network((1, 3, 4)).vjp(image[None], lambda scores: threat.loss_gradient(scores, goals))  # noqa: B023
                assert np.array_equal(gradient, alone)


@pytest.mark.parametrize("batch_size", [3, 8, 64])
def test_a_search_that_asks_for_no_gradient_receives_none_even_beside_others_that_do(batch_size: int) -> None:
    attack = Climbing()
    attack.run(Threat(0.5), batch_size)
    assert all(reply.gradient is None for index in (1, 3, 5, 7) for _, reply in attack.heard[index])


def run_curious() -> tuple[Outcome, list[Reply]]:
    """Run an attack that asks for gradients, but is not white-box, on a model that has them."""
    attack = Scripted((grey(0.1, 0.2, eligible_from=math.inf, gradient=True),))
    engine = Engine(attack, Network((1, 2, 2)), Threat(1.0), budget=10)
    (outcome,) = engine.run([Task(0, np.zeros((1, 2, 2), np.float32), 0)])
    return outcome, attack.heard


def test_an_attack_that_is_not_white_box_receives_no_gradient() -> None:
    _, heard = run_curious()
    assert [reply.gradient for reply in heard] == [None]


def test_a_gradient_that_is_not_delivered_is_not_counted() -> None:
    outcome, _ = run_curious()
    assert outcome.gradients == 0


def test_a_white_box_attack_on_a_model_without_gradients_is_refused() -> None:
    engine = Engine(PGD(), FunctionModel(Network(SHAPE)), Threat(0.02), budget=10)
    with pytest.raises(ModelError, match="this model gives no gradients, which a white-box attack needs"):
        list(engine.run(tasks_for(SHAPE, Threat(0.02), 1)))


def test_rows_that_fill_a_batch_have_no_score_gradient() -> None:
    gradients = []

    class Fixed(Network):
        fixed_batch = True

        def vjp(
            self, images: NDArray[np.float32], score_gradient: Callable[[NDArray[Any]], NDArray[Any]]
        ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
            gradients.append(score_gradient(self(images)))
            return super().vjp(images, lambda _: gradients[-1])

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
    assert gradients
    for of_rows in gradients:
        assert len(of_rows) == 16
        assert of_rows[:1].any()
        assert not of_rows[5:].any()

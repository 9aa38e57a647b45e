"""Searches on random models: verdicts, counts, repeats, and results that depend on nothing but seed and draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from noisy_models import SCORE_BASED, SHAPE, attacked, keyed_noise, some_tasks
from parsimon.attacks.registry import parse_attack
from parsimon.core.engine import Engine, Step
from parsimon.core.model import Keys, Model
from parsimon.core.threat import Sampling, Threat
from parsimon.core.types import (
    Ask,
    Attack,
    ImageContext,
    Images,
    JournalEntry,
    Outcome,
    Reply,
    Search,
    Task,
)
from parsimon.runs.packing import join_entries
from parsimon.testing import Network, tasks_for
from scripted import results

# --- the verdict and the counts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keyed(Model):
    """Errs in the first `errors` fresh draws of an image and in no query. It keeps all keys that it was shown.

    In a query, the loss of class 0 is minus 1, minus the number of the query.
    """

    errors: int
    keys: list[tuple[int, ...]] = field(default_factory=list, compare=False)

    random = True

    def __call__(self, images: Any) -> NDArray[Any]:  # noqa: ARG002
        raise AssertionError("a random model is drawn by keys")

    def draw(self, images: Any, keys: Keys) -> NDArray[Any]:
        self.keys.extend(map(tuple, keys.tolist()))
        _, _, fresh, number = keys.T
        loss = np.where((fresh == 1) & (number < self.errors), 1.0, -1.0 - number * (fresh == 0))
        scores = np.zeros((len(images), 3))
        scores[:, 1] = -np.inf
        scores[:, 2] = loss
        return np.maximum(scores, -1e6)

    @property
    def fresh(self) -> list[tuple[int, ...]]:
        return [key for key in self.keys if key[2] == 1]


@pytest.mark.parametrize("draws", [1, 2, 5, 10])
@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_an_attack_succeeds_exactly_if_more_than_half_of_the_fresh_draws_err(draws: int, batch_size: int) -> None:
    for errors in range(draws + 1):
        model = Keyed(errors)
        outcome = attacked(model, Sampling(draws=draws), parse_attack("square"), batch_size=batch_size)
        assert outcome.success == (errors > draws / 2)
        assert (outcome.draws, outcome.errors, outcome.error_rate) == (draws, errors, errors / draws)
        assert outcome.ended == ("success" if outcome.success else "budget")
        assert outcome.predicted == (2 if outcome.success else None)
        assert (outcome.point is not None) == outcome.success
        # The fresh draws are numbered from 0, whatever the batches, and are not among the queries.
        assert model.fresh == [(0, 7, 1, number) for number in range(draws)]
        assert [key for key in model.keys if key[2] == 0] == [(0, 7, 0, number) for number in range(outcome.queries)]
        assert (outcome.uncharged, outcome.extra) == (0, 0)


def test_fresh_draws_are_in_no_count_and_not_in_the_journal() -> None:
    journal: list[JournalEntry] = []
    counts: list[int] = []

    def record(step: Step) -> None:
        journal.extend(step.entries)
        counts.append(step.counters.queries)

    threat = Threat(0.1, loss="margin", sampling=Sampling(draws=50))
    task = Task(7, np.full(SHAPE, 0.5, np.float32), 0)
    engine = Engine(parse_attack("square"), Keyed(50), threat, budget=20, batch_size=8)
    (outcome,) = engine.run([task], record)
    assert sum(len(entry.loss) for entry in journal) == outcome.queries == engine.counters.queries == counts[-1] <= 20
    assert sum(entry.uncharged for entry in journal) == 0
    assert all((entry.loss < 0).all() for entry in journal), "fresh draws err, queries do not"
    assert engine.counters.rows == outcome.queries + 50


class Counted:
    """Counts the rows that a model is shown: queries, and fresh draws."""

    def __init__(self, model: Model) -> None:
        self.queries = self.fresh = 0
        self.model, original = model, model.draw

        def draw(images: Any, keys: Keys) -> NDArray[Any]:
            self.fresh += int(keys[:, 2].sum())
            self.queries += int((1 - keys[:, 2]).sum())
            return original(images, keys)

        model.draw = draw  # type: ignore[method-assign]


@pytest.mark.parametrize("name", SCORE_BASED)
@pytest.mark.parametrize("repeats", [1, 3])
def test_no_attack_exceeds_its_budget_and_all_its_queries_are_counted(name: str, repeats: int) -> None:
    attack = parse_attack(name)
    threat = Threat(0.02, loss="margin", sampling=Sampling(repeats=repeats, draws=10))
    tasks = tasks_for(SHAPE, replace(threat, sampling=None), 5)
    for budget in (1, 2, 3, 7, 50):
        counted = Counted(keyed_noise())
        engine = Engine(attack, counted.model, threat, budget=budget, batch_size=16)
        found = results(engine.run(tasks))
        assert len(found) == len(tasks)
        for outcome in found.values():
            assert outcome.queries <= budget
            assert outcome.draws in (0, 10)
            if budget >= repeats and name not in ("nes", "bandits"):  # which begin with several probes
                assert outcome.queries > 0
                assert outcome.draws == 10, "a point that was queried is returned"
        shown = sum(outcome.queries + outcome.uncharged for outcome in found.values())
        assert counted.queries == shown
        assert counted.fresh == sum(outcome.draws for outcome in found.values())
        assert engine.counters.queries == sum(outcome.queries for outcome in found.values())


@pytest.mark.parametrize("name", SCORE_BASED)
@pytest.mark.parametrize("repeats", [1, 8])
def test_an_ask_that_exceeds_the_budget_is_made_in_part(name: str, repeats: int) -> None:
    """An attack ends by its budget only if one comparison or test is too expensive, even if it asks for many points."""
    threat = Threat(0.001, loss="margin", sampling=Sampling(repeats=repeats, draws=10))
    tasks = tasks_for(SHAPE, replace(threat, sampling=None), 5)
    found = results(Engine(parse_attack(name), keyed_noise(), threat, budget=60).run(tasks))
    failed = [outcome for outcome in found.values() if outcome.ended == "budget"]
    assert failed
    for outcome in failed:
        assert 60 - outcome.queries < max(2 * repeats, 12)


def test_an_attack_whose_first_ask_exceeds_the_budget_ends_by_its_budget() -> None:
    """Nothing was tried, so the clean image is returned, and the search has not run out of asks."""
    outcome = attacked(Keyed(0), Sampling(repeats=4, draws=10), parse_attack("square"), budget=3)
    assert (outcome.queries, outcome.draws, outcome.success) == (0, 10, False)
    assert outcome.ended == "budget"


def test_white_box_attacks_stay_within_their_budget_too() -> None:
    """PGD asks for gradients of a model with a randomness of its own."""
    rng = np.random.default_rng(0)
    shown = 0

    class Random(Network):
        def vjp(self, images: Any, score_gradient: Any) -> Any:
            nonlocal shown
            shown += len(images)
            return super().vjp(
                np.clip(images + 0.02 * rng.normal(size=images.shape), 0, 1).astype("f4"), score_gradient
            )

    threat = Threat(0.02, loss="margin", sampling=Sampling(repeats=2, draws=10))
    tasks = tasks_for(SHAPE, Threat(0.02, loss="margin"), 5)
    for budget in (2, 7, 50):
        shown = 0
        engine = Engine(parse_attack("pgd"), Random(SHAPE), threat, budget=budget, batch_size=8)
        found = results(engine.run(tasks)).values()
        assert all(0 < outcome.queries <= budget for outcome in found)
        assert shown == sum(outcome.queries + outcome.uncharged + outcome.draws for outcome in found)


# --- repeats ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probes(Attack):
    """Asks for random images that are never adopted, and keeps the replies."""

    climbs: ClassVar = False
    asks: tuple[int, ...] = (1, 3, 2)
    heard: list[Reply] = field(default_factory=list)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        for size in self.asks:
            pixels = rng.random((size, *context.shape), np.float32)
            self.heard.append((yield Ask(Images(pixels), eligible_from=math.inf)))


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_a_point_is_drawn_as_often_as_asked_and_its_mean_is_reported(repeats: int) -> None:
    """The loss of a draw is minus 1 and minus its number, so the means follow by counting."""
    attack = Probes()
    outcome = attacked(Keyed(0), Sampling(repeats=repeats), attack, budget=100, batch_size=4)
    assert outcome.queries == 6 * repeats
    losses = -1.0 - np.arange(6 * repeats).reshape(6, repeats).mean(axis=1)
    np.testing.assert_allclose(np.concatenate([reply.loss for reply in attack.heard]), losses)


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_the_budget_counts_every_repetition(repeats: int) -> None:
    attack = Probes(asks=(1,) * 100)
    outcome = attacked(Keyed(0), Sampling(repeats=repeats), attack, budget=33)
    assert outcome.queries == 33 // repeats * repeats
    assert len(attack.heard) == 33 // repeats


# --- results depend on nothing else -----------------------------------------------------------------------------------

NOISY = Threat(0.03, loss="margin", sampling=Sampling(draws=15))


@pytest.mark.parametrize("name", SCORE_BASED)
def test_results_do_not_depend_on_the_batch_size_or_on_other_images(name: str) -> None:
    attack = parse_attack(name)

    def run(tasks: Sequence[Task], batch_size: int, in_flight: int) -> dict[int, Outcome]:
        engine = Engine(attack, keyed_noise(), NOISY, budget=150, batch_size=batch_size, in_flight=in_flight)
        return results(engine.run(tasks))

    tasks = some_tasks()
    together = run(tasks, 64, 256)
    assert run(tasks, 3, 2) == together
    assert run(tasks[::-1], 17, 4) == together
    assert run(tasks[:2], 1, 1) == {task.index: together[task.index] for task in tasks[:2]}


def test_another_seed_draws_something_else() -> None:
    runs = [
        results(Engine(parse_attack("square"), keyed_noise(), NOISY, budget=150, seed=seed).run(some_tasks()))
        for seed in (0, 1)
    ]
    assert runs[0] != runs[1]


@pytest.mark.parametrize(
    ("name", "error_rate"),
    [*((name, 0.05) for name in ("thrift", "square", "parsimonious", "nes,samples=6", "bandits")), ("parsimonious", 1)],
)
def test_a_run_that_is_stopped_anywhere_and_resumed_gives_the_same_outcomes(name: str, error_rate: float) -> None:
    """Calls of the model end in the midst of asks, of comparisons, of claims and of fresh draws."""
    attack, tasks = parse_attack(name), some_tasks(3)
    sampling = Sampling(repeats=2, draws=15, error_rate=error_rate)
    threat, budget = replace(NOISY, sampling=sampling), 80

    def engine(model: Model) -> Engine:
        return Engine(attack, model, threat, budget=budget, batch_size=7, in_flight=2)

    whole = Counted(keyed_noise())
    uninterrupted = engine(whole.model)
    expected = results(uninterrupted.run(tasks))
    in_fresh_draws = 0
    for calls in range(1, uninterrupted.counters.calls, 4):
        journal: dict[int, list[JournalEntry]] = {}
        model = Counted(keyed_noise())
        first = engine(model.model)

        def record(step: Step, first: Engine = first, journal: Any = journal, calls: int = calls) -> None:
            for entry in step.entries:
                journal.setdefault(entry.image, []).append(entry)
            if step.counters.calls == calls:
                first.stop()

        cut = results(first.run(tasks, record))
        found = {index: outcome for index, outcome in cut.items() if outcome.ended != "interrupted"}
        left = [
            replace(task, journal=join_entries(journal[task.index]) if task.index in journal else None)
            for task in tasks
            if task.index not in found
        ]
        in_fresh_draws += any(
            cut[each.index].queries == expected[each.index].queries for each in left if each.index in cut
        )
        second = engine(model.model)
        found |= results(second.run(left))
        assert found == expected
        assert model.queries == whole.queries, "no query is repeated"
    assert in_fresh_draws, "no stop came in the midst of fresh draws"


# --- a model that is not random ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name.replace("nes", "nes,samples=10") for name in SCORE_BASED])
def test_a_model_that_is_not_random_is_fooled_on_the_same_images(name: str) -> None:
    """With ample queries; the last images are beyond reach."""
    attack, plain, budget = parse_attack(name), Threat(0.02, loss="margin"), 800
    tasks = tasks_for(SHAPE, plain, 8)
    exact = results(Engine(attack, Network(SHAPE), plain, budget=budget).run(tasks))
    sampled = replace(plain, sampling=Sampling(draws=3))
    random = results(Engine(attack, Network(SHAPE), sampled, budget=2 * budget).run(tasks))
    fooled = {index for index, outcome in exact.items() if outcome.success}
    assert 0 < len(fooled) < len(tasks)
    assert fooled == {index for index, outcome in random.items() if outcome.success}
    assert all(outcome.errors == (3 if outcome.success else 0) for outcome in random.values())

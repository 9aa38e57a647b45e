"""Every attack through the contract that the package ships, and proof that each of its clauses can fail."""

from __future__ import annotations

import math
import random
import secrets
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from parsimon import InputError
from parsimon.attacks import ATTACKS
from parsimon.attacks.registry import parse_attack
from parsimon.core.engine import Engine
from parsimon.core.grid import Grid, first_grid
from parsimon.core.types import Ask, Attack, Corners, Image, ImageContext, Images, Search
from parsimon.testing import (
    BUDGET,
    SHAPES,
    Network,
    attack_contract,
    check_attack,
    clauses,
    tasks_for,
    threats_for,
)

Clause = Callable[[Attack], None]

VARIANTS = [
    "parsimonious:imagenet,block=2,noise=4x4",  # those of ImageNet, on a noise image that fits
    "parsimonious:published-imagenet,block=2,noise=4x4",
    "parsimonious,behaviour=published",
    "parsimonious,greedy=naive,mini_batch=7",
    "parsimonious,greedy=stochastic,max_iterations=3",
    "bandits,strict=true",
    "nes,strict=true",
    "nes,samples=2",  # many steps within the budget
    "random,block=2",
    "pgd,restarts=2",
    "pgd,random_start=false",
]


def every_attack() -> list[Any]:
    """Defaults, presets and variants under the names that people type; a preset that is the default is left out."""
    presets = [f"{name}:{preset}" for name, attack in ATTACKS.items() for preset in attack.presets]
    attacks: dict[Attack, str] = {}
    for text in [*ATTACKS, *presets, *VARIANTS]:
        if not (text.startswith("parsimonious:") and text.endswith("imagenet")):
            attacks.setdefault(parse_attack(text), text)
    return [pytest.param(attack, id=text) for attack, text in attacks.items()]


@pytest.mark.parametrize("clause", attack_contract, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("attack", every_attack())
def test_every_attack_keeps_the_contract(attack: Attack, clause: Clause) -> None:
    clause(attack)


@pytest.mark.parametrize("attack", every_attack())
def test_the_contract_sees_every_attack_both_succeed_and_fail(attack: Attack) -> None:
    outcomes = [
        outcome
        for threat in threats_for(attack)
        for outcome in Engine(attack, Network(SHAPES[0]), threat, budget=BUDGET).run(tasks_for(SHAPES[0], threat))
    ]
    assert {outcome.success for outcome in outcomes} == {True, False}
    assert len({outcome.queries for outcome in outcomes}) > 1


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_attack_refuses_a_shape_by_default(name: str, shape: tuple[int, int, int]) -> None:
    attack = ATTACKS[name]()
    threat = threats_for(attack)[0]
    (task,) = tasks_for(shape, threat, 1)
    ask = next(attack.search(ImageContext(0, task.image, threat, BUDGET), np.random.default_rng(0)))
    assert ask.points.size > 0


@dataclass(frozen=True)
class Honest(Attack):
    """A few random corners, as images. The broken attacks below build on it."""

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        for _ in range(40):
            yield Ask(Images(self.candidate(context, rng)[None]))

    def candidate(self, context: ImageContext, rng: np.random.Generator) -> Image:
        low, high = context.bounds
        return np.where(rng.random(context.shape) < 0.5, high, low)


def test_an_honest_attack_keeps_the_whole_contract() -> None:
    check_attack(Honest())


class RefusesLargeImages(Honest):
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        if max(context.shape) > 32:
            raise InputError("only for small images")
        yield from super().search(context, rng)


def test_an_attack_may_refuse_large_images() -> None:
    clauses.does_not_depend_on_other_images(RefusesLargeImages())


class LeavesTheBall(Honest):
    """By the last bit of a number."""

    def candidate(self, context: ImageContext, rng: np.random.Generator) -> Image:
        return np.nextafter(super().candidate(context, rng), np.float32(2))


class LeavesTheBallInItsLastQuestion(Honest):
    """Which is never answered, because the budget ends within it."""

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        inside, outside = self.candidate(context, rng), np.zeros((1000, *context.shape), np.float32)
        yield Ask(Images(np.concatenate([inside[None], outside])))


class DrawsFromNumpy(Honest):
    def candidate(self, context: ImageContext, rng: np.random.Generator) -> Image:
        np.random.random()
        return super().candidate(context, rng)


class DrawsFromPython(Honest):
    def candidate(self, context: ImageContext, rng: np.random.Generator) -> Image:
        random.random()
        return super().candidate(context, rng)


class ReadsTheSharedState(Honest):
    """Without drawing from it, so that it stays as it was."""

    def candidate(self, context: ImageContext, rng: np.random.Generator) -> Image:
        state: Any = np.random.get_state()
        return super().candidate(context, np.random.default_rng([*state[1][:4], *rng.integers(0, 9, 9)]))


class ProbesWithoutASeed(Honest):
    """It comes to the same end each time, by way of other questions."""

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        for _ in range(40):
            yield Ask(
                Images(self.candidate(context, np.random.default_rng(secrets.randbits(64)))[None]), True, math.inf
            )
            yield Ask(Images(self.candidate(context, rng)[None]))


@dataclass(frozen=True)
class Remembers(Honest):
    """How many images it was given before."""

    searches: list[int] = field(default_factory=list)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        self.searches.append(context.index)
        rng.random(len(self.searches))
        return super().search(context, rng)


@dataclass(frozen=True)
class MindsItsCompany(Honest):
    """It stands still while another of its searches is under way."""

    running: list[int] = field(default_factory=list)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        self.running.append(context.index)
        try:
            while True:
                candidate = self.candidate(context, rng)
                yield Ask(Images((context.image if len(self.running) > 1 else candidate)[None]))
        finally:
            self.running.remove(context.index)


class KnowsTheEngine(Honest):
    """By the memory of a reply, which the engine cuts out of a batch."""

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        candidate = context.image
        while True:
            reply = yield Ask(Images(candidate[None]))
            candidate = context.image if reply.loss.base is not None else self.candidate(context, rng)


class LivesOnFreeQuestions(Honest):
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        while True:
            yield Ask(Images(context.image[None]), charged=False)


class AsksForNothing(Honest):
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        yield Ask(Images(self.candidate(context, rng)[None][:0]))


class AsksWithoutABatch(Honest):
    """For (channels, rows, columns), which reads as so many images without channels."""

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        yield Ask(Images(self.candidate(context, rng)))


class PeeksAtGradients(Honest):
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        yield Ask(Images(self.candidate(context, rng)[None]), gradient=True)


class PeeksAtMargins(Honest):
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        yield Ask(Images(self.candidate(context, rng)[None]), margins=True)


class BreaksOnGrey(Honest):
    def candidate(self, context: ImageContext, rng: np.random.Generator) -> Image:
        assert context.image[0].size == context.image[-2].size
        return super().candidate(context, rng)


class RefusesAll(Honest):
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        raise InputError("no")


class WritesToItsImage(Honest):
    def candidate(self, context: ImageContext, rng: np.random.Generator) -> Image:
        context.image[...] = super().candidate(context, rng)
        return context.image


class WritesToItsReply(Honest):
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        while True:
            reply = yield Ask(Images(self.candidate(context, rng)[None]))
            reply.loss[0] += 1


@dataclass(frozen=True)
class SharesItsMemory(Honest):
    """Between its searches, each of which overwrites what another waits to be told of."""

    memory: dict[tuple[int, ...], NDArray[np.float32]] = field(default_factory=dict)

    def candidate(self, context: ImageContext, rng: np.random.Generator) -> Image:
        memory = self.memory.setdefault(context.shape, np.empty(context.shape, np.float32))
        memory[...] = super().candidate(context, rng)
        return memory


class FlipsInPlace(Honest):
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        grid = first_grid(context.shape)
        base = np.zeros(grid.count, np.bool_)
        while True:
            yield Ask(Corners(grid, base, (0,)))
            base[rng.integers(grid.count)] ^= True


class HidesWhereItPaints(Honest):
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        channels, height, width = context.shape
        grid = Grid(context.shape, (height, width), 1)
        base = np.zeros(grid.count, np.bool_)
        yield Ask(Corners(grid, ~base))  # so that the loss moves, whatever the canvas shows of the others
        while True:
            yield Ask(Corners(grid, base, changed=()))
            base[rng.integers(channels)] ^= True


class MindsWhatTheModelReturns(Honest):
    needs: ClassVar = "label"

    def candidate(self, context: ImageContext, rng: np.random.Generator) -> Image:
        return context.image if context.threat.scores == "labels" else super().candidate(context, rng)


@pytest.mark.parametrize(
    ("attack", "clause", "sentence"),
    [
        (MindsWhatTheModelReturns, clauses.needs_no_more_than_labels, "has another outcome on labels alone"),
        (HidesWhereItPaints, clauses.reports_where_it_changes_a_set, "outside the windows that it reports"),
        (LeavesTheBall, clauses.stays_in_the_ball, "leaves the ball"),
        (LeavesTheBallInItsLastQuestion, clauses.stays_in_the_ball, "leaves the ball"),
        (DrawsFromNumpy, clauses.is_deterministic_in_its_seed, "global random state"),
        (DrawsFromPython, clauses.is_deterministic_in_its_seed, "global random state"),
        (ReadsTheSharedState, clauses.is_deterministic_in_its_seed, "two different outcomes"),
        (ProbesWithoutASeed, clauses.asks_the_same_after_the_same_replies, "asks something else"),
        (BreaksOnGrey, clauses.takes_images_of_any_shape, r"fails on images of shape \(1, 8, 8\): IndexError"),
        (WritesToItsReply, clauses.does_not_modify_its_input, "writes to a reply"),
    ],
)
def test_a_broken_attack_breaks_its_clause_and_no_other(attack: type[Attack], clause: Clause, sentence: str) -> None:
    for other in attack_contract:
        if other is not clause:
            other(attack())
    with pytest.raises(AssertionError, match=sentence):
        clause(attack())


@pytest.mark.parametrize(
    ("attack", "clause", "sentence"),
    [
        (Remembers, clauses.is_deterministic_in_its_seed, "two different outcomes"),
        (Remembers, clauses.asks_the_same_after_the_same_replies, "asks something else"),
        (MindsItsCompany, clauses.does_not_depend_on_other_images, "has another outcome with batch_size"),
        (KnowsTheEngine, clauses.is_counted_exactly, "has another outcome under"),
        (LivesOnFreeQuestions, clauses.never_exceeds_its_budget, "uncharged queries must be bounded"),
        (AsksForNothing, clauses.never_exceeds_its_budget, "asks for no image"),
        (AsksWithoutABatch, clauses.stays_in_the_ball, r"an image of shape \(8, 8\) about one of \(3, 8, 8\)"),
        (PeeksAtGradients, clauses.is_counted_exactly, "not a white-box attack"),
        (PeeksAtMargins, clauses.is_counted_exactly, "asks for margins, but does not need scores"),
        (RefusesAll, clauses.takes_images_of_any_shape, r"fails on images of shape \(3, 8, 8\): InputError"),
        (WritesToItsImage, clauses.does_not_modify_its_input, "writes to its image"),
        (SharesItsMemory, clauses.does_not_modify_its_input, "writes to an ask before it has the reply"),
        (FlipsInPlace, clauses.is_counted_exactly, "has another outcome under"),
        (FlipsInPlace, clauses.does_not_modify_its_input, "writes to an earlier ask"),
    ],
)
def test_a_broken_attack_breaks_its_clause(attack: type[Attack], clause: Clause, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        clause(attack())


def test_every_clause_is_seen_to_fail_above() -> None:
    marks = [
        *test_a_broken_attack_breaks_its_clause_and_no_other.pytestmark,  # type: ignore[attr-defined]
        *test_a_broken_attack_breaks_its_clause.pytestmark,  # type: ignore[attr-defined]
    ]
    assert {clause for mark in marks for _, clause, _ in mark.args[1]} == set(attack_contract)


def test_the_contract_leaves_the_shared_random_states_as_they_were() -> None:
    random.seed(5)
    np.random.seed(5)
    clauses.is_deterministic_in_its_seed(Honest())
    after = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    assert after == (random.random(), np.random.random())


def test_the_contract_needs_neither_pytest_nor_a_framework() -> None:
    code = "import sys, parsimon.testing; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "parsimon.testing" in loaded
    assert not {"pytest", "torch", "onnxruntime"} & set(loaded)

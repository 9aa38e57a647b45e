"""Label-only attacks: the distances that they receive, the radii of their outcomes, and what ends them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from label_only import Shrinking, labels_of
from parsimon import InputError, Threat
from parsimon.core.canvas import Canvas, Part, render
from parsimon.core.engine import Engine, Step
from parsimon.core.grid import Grid
from parsimon.core.large_canvas import LargeCanvas
from parsimon.core.model import Model
from parsimon.core.types import Ask, Attack, Corners, Images, JournalEntry, Outcome, Task
from parsimon.models import FunctionModel
from parsimon.models.torch import TensorModel
from parsimon.runs.packing import join_entries, pack_entries, pack_radii, unpack_entries, unpack_radii
from parsimon.testing import BUDGET, LABEL_THREATS, SHAPES, Network, check_attack, tasks_for
from parsimon.testing.twin import Case, within
from scripted import Scripted, brightness, grey, results

CANVASES: dict[str, tuple[Any, Model]] = {
    "numpy": (Canvas, FunctionModel(brightness)),
    "torch": (Canvas, TensorModel(torch.nn.Identity(), "cpu")),
    "large": (LargeCanvas, FunctionModel(brightness)),
}


# --- distances --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("canvas", CANVASES)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 9999),
    steps=st.sampled_from([1, 2, 7.5, 255]),
    eight_bit=st.booleans(),
    rounding=st.sampled_from(["inward", "nearest"]),
)
def test_a_canvas_measures_the_distance_of_each_point_and_it_is_at_most_eps_exactly_in_the_ball(
    canvas: str, seed: int, steps: float, eight_bit: bool, rounding: Any
) -> None:
    rng = np.random.default_rng(seed)
    shape, threat = (3, 4, 5), Threat(steps / 255, loss="label", eight_bit=eight_bit, rounding=rounding)
    image = (rng.integers(0, 256, shape) / 255).astype(np.float32)
    make, model = CANVASES[canvas]
    drawing = make(shape, 2, threat, model)
    drawing.load(1, image)
    low, high = threat.bounds(image)
    grid = Grid(shape, (4, 4), 2)
    parts: list[Corners | Images] = [
        Images(np.stack([low, high, image, np.nextafter(high, np.float32(2)), 1 - image])),
        Images(np.clip(image + rng.uniform(-2, 2, (4, *shape)) * threat.eps, 0, 1).astype(np.float32)),
        Corners(grid, rng.random(grid.count) < 0.5, [0, 3]),
        Corners(grid, rng.random(grid.count) < 0.5),
    ]
    rendered = drawing.draw([Part(1, points, 0, points.size) for points in parts])
    shown = [render(image, threat, points.point(number)) for points in parts for number in range(points.size)]
    assert len(rendered.distance) == len(shown)
    for pixels, distance in zip(shown, rendered.distance, strict=True):
        exact = max(abs(float(a) - float(b)) for a, b in zip(pixels.flat, image.flat, strict=True))
        if pixels.max() <= 1:  # a point out of range lies outside the ball, however close
            assert distance == pytest.approx(exact, abs=1e-7)
        assert (distance <= threat.eps) == within(pixels, (low, high))
        if eight_bit:
            assert distance in (round(255 * exact) / 255, threat.eps, math.nextafter(threat.eps, 2))


@pytest.mark.parametrize("canvas", CANVASES)
def test_a_canvas_measures_no_distance_for_other_losses(canvas: str) -> None:
    make, model = CANVASES[canvas]
    drawing = make((1, 2, 2), 1, Threat(0.1), model)
    drawing.load(0, np.zeros((1, 2, 2), np.float32))
    assert drawing.draw([Part(0, Images(np.zeros((1, 1, 2, 2), np.float32)), 0, 1)]).distance is None


# --- replies and ends -------------------------------------------------------------------------------------------------


class LabelScript(Scripted):
    """A label-only attack with a fixed list of asks."""

    needs: ClassVar = "label"


def run_script(
    *asks: Ask, budget: int = 100, batch_size: int = 2, eps: float = 0.5, until_budget: bool = False
) -> tuple[Outcome, list[list[float]], Engine]:
    """Attack an image of level 0, of class 0 below a mean of 0.5."""
    attack = LabelScript(asks)
    threat = Threat(eps, loss="label", until_budget=until_budget)
    engine = Engine(attack, FunctionModel(brightness), threat, budget=budget, batch_size=batch_size)
    (outcome,) = engine.run([Task(0, np.zeros((1, 2, 2), np.float32), 0)])
    return outcome, [reply.loss.tolist() for reply in attack.heard], engine


@pytest.mark.usefixtures("either_canvas")
@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_a_reply_holds_minus_the_distance_of_adversarial_points_and_nothing_about_others(batch_size: int) -> None:
    asks = grey(0.75, 0.25, 1.0), grey(0.0, 0.625)
    outcome, heard, _ = run_script(*asks, batch_size=batch_size)
    assert heard == [[-0.75, -math.inf, -1.0], [-math.inf, -0.625]]
    assert (outcome.ended, outcome.success, outcome.queries, outcome.outside) == ("exhausted", False, 5, 3)
    assert outcome.radii == ((1, 0.75), (5, 0.625))
    assert (outcome.radius, outcome.flat, outcome.point) == (0.625, False, None)


@pytest.mark.usefixtures("either_canvas")
@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_an_attack_ends_at_its_first_adversarial_point_inside_the_ball(batch_size: int) -> None:
    asks = grey(0.875, 0.25, 0.625, 0.75, 0.9), grey(0.6)
    outcome, heard, engine = run_script(*asks, batch_size=batch_size, eps=0.75)
    assert (outcome.ended, outcome.queries, outcome.outside, outcome.predicted) == ("success", 3, 1, 1)
    assert outcome.radii == ((1, 0.875), (3, 0.625))
    assert (outcome.extra, outcome.charged, heard) == (0, 3, [])
    assert engine.counters.queries == 3


@pytest.mark.usefixtures("either_canvas")
@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_until_budget_keeps_the_first_success_and_the_closest_image(batch_size: int) -> None:
    asks = grey(0.875, 0.25, 0.75, 0.625, 0.7), grey(0.5, 0.5625, 0.625, 0.9, 0.8)
    outcome, heard, engine = run_script(*asks, batch_size=batch_size, eps=0.75, until_budget=True, budget=8)
    assert (outcome.ended, outcome.success, outcome.queries, outcome.extra) == ("budget", True, 3, 5)
    assert (outcome.charged, engine.counters.queries) == (8, 8)
    assert outcome.radii == ((1, 0.875), (3, 0.75), (4, 0.625), (7, 0.5625))
    assert heard == [[-0.875, -math.inf, -0.75, -0.625, pytest.approx(-0.7)]]
    assert outcome.predicted == 1
    assert outcome.point == grey(0.5625).points.point(0)


def test_an_image_without_an_adversarial_point_has_no_radius_and_is_not_flat() -> None:
    outcome, _, _ = run_script(grey(0.1, 0.2, 0.3))
    assert (outcome.radii, outcome.radius, outcome.flat) == ((), None, False)


@pytest.mark.parametrize("ask", [grey(0.1, charged=False), grey(0.1, eligible_from=math.inf)])
def test_a_label_only_attack_is_charged_for_everything_and_ends_at_any_success(ask: Ask) -> None:
    with pytest.raises(InputError, match="all of its asks must be charged, and end at any success"):
        run_script(ask)


def test_until_budget_is_for_label_only_attacks() -> None:
    with pytest.raises(InputError, match="until_budget is for label-only attacks"):
        Threat(0.1, until_budget=True)


# --- the twin ---------------------------------------------------------------------------------------------------------


def test_a_label_only_attack_keeps_the_contract() -> None:
    check_attack(Shrinking(5))


@pytest.mark.usefixtures("either_canvas")
@pytest.mark.parametrize("threat", LABEL_THREATS, ids=str)
@pytest.mark.parametrize("attack", [Shrinking(), Shrinking(7, asks=5)], ids=repr)
def test_outcomes_are_those_of_one_query_at_a_time_whatever_the_batches(attack: Attack, threat: Threat) -> None:
    case = Case(threat=threat)
    expected = case.by_twin(attack)
    assert {outcome.success for outcome, _ in expected.values()} == {True, False}
    for batch_size, in_flight in ((1, 1), (7, 3), (64, 256)):
        found = case.by_engine(attack, batch_size=batch_size, in_flight=in_flight)
        assert found == expected
    for outcome, _ in expected.values():
        assert all(query <= outcome.charged for query, _ in outcome.radii)
        assert outcome.success == (outcome.radius is not None and outcome.radius <= threat.eps)


@pytest.mark.parametrize("threat", LABEL_THREATS, ids=str)
def test_a_label_only_attack_does_the_same_to_scores_and_to_labels(threat: Threat) -> None:
    network, tasks = Network(SHAPES[0]), tasks_for(SHAPES[0], threat)
    by_scores = results(Engine(Shrinking(), network, threat, budget=BUDGET).run(tasks))
    of_labels = replace(threat, scores="labels")
    by_labels = results(Engine(Shrinking(), labels_of(network), of_labels, budget=BUDGET).run(tasks))
    assert by_labels == by_scores
    assert {outcome.confidence for outcome in by_labels.values()} == {None}


# --- stopped and resumed ----------------------------------------------------------------------------------------------


class Stopped(NamedTuple):
    """The state of an engine when it was stopped."""

    ended: dict[int, Outcome]
    unfinished: dict[int, Outcome]
    journal: dict[int, JournalEntry]


def stop_after(calls: int, threat: Threat, tasks: tuple[Task, ...]) -> Stopped:
    """Stop an engine after some model calls. The journal is packed and unpacked, as a store does."""
    engine = Engine(Shrinking(), Network(SHAPES[0]), threat, budget=BUDGET, batch_size=5, in_flight=4)
    entries: dict[int, list[JournalEntry]] = {}

    def keep(step: Step) -> None:
        for entry in unpack_entries(pack_entries(step.entries)):
            entries.setdefault(entry.image, []).append(entry)
        if step.counters.calls >= calls:
            engine.stop()

    found = results(engine.run(tasks, keep))
    ended = {index: outcome for index, outcome in found.items() if outcome.ended != "interrupted"}
    unfinished = {index: outcome for index, outcome in found.items() if index not in ended}
    journal = {image: join_entries(each) for image, each in entries.items() if image not in ended}
    return Stopped(ended, unfinished, journal)


@pytest.mark.parametrize("threat", LABEL_THREATS, ids=str)
@pytest.mark.parametrize("calls", [1, 9, 40])
def test_a_stopped_attack_is_resumed_to_the_same_outcome(threat: Threat, calls: int) -> None:
    tasks = tasks_for(SHAPES[0], threat)
    whole = results(Engine(Shrinking(), Network(SHAPES[0]), threat, budget=BUDGET).run(tasks))
    stopped = stop_after(calls, threat, tasks)
    assert stopped.unfinished
    for index, outcome in stopped.unfinished.items():
        assert outcome == Outcome.unfinished(index, stopped.journal.get(index), threat)
        assert (outcome.success, outcome.extra) == (False, 0)
        assert outcome.radii == tuple(pair for pair in whole[index].radii if pair[0] <= outcome.queries)
    left = [replace(task, journal=stopped.journal.get(task.index)) for task in tasks if task.index not in stopped.ended]
    engine = Engine(Shrinking(), Network(SHAPES[0]), threat, budget=BUDGET, batch_size=3, in_flight=2)
    resumed = stopped.ended | results(engine.run(left))
    assert resumed == whole


def test_radii_are_packed_without_loss() -> None:
    radii = ((1, 0.1), (2**40, 1 / 3), (2**40 + 1, 5e-324))
    assert unpack_radii(pack_radii(radii)) == radii
    assert pack_radii(()) is None
    assert unpack_radii(None) == ()

"""Asynchronous models: the device computes while the searches advance, in one thread and with the same results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from parsimon import ModelError, Threat
from parsimon.attacks.registry import parse_attack
from parsimon.core.engine import Engine, Step
from parsimon.core.types import Outcome, Task
from parsimon.models import FunctionModel
from parsimon.testing import Network, tasks_for
from scripted import SHAPE, Scripted, brightness, grey, results

pytestmark = pytest.mark.usefixtures("either_canvas")

ATTACKS = ["parsimonious", "thrift", "square", "nes,samples=6", "bandits", "haggle"]


class Device(FunctionModel):
    """A device that computes when it is waited for, in the order in which batches were begun.

    Attributes:
        log: The batches that were begun and waited for, by number, in order.
        threads: The threads that did so.
    """

    asynchronous = True

    def __init__(self, function: Callable[[Any], Any], fails_at: tuple[str, int] | None = None) -> None:
        """`fails_at`: which step of which batch fails."""
        super().__init__(function)
        self.log: list[tuple[str, int]] = []
        self.threads: set[int] = set()
        self._fails_at = fails_at
        self._begun = 0

    def start(self, images: Any) -> Callable[[], NDArray[Any]]:
        number, self._begun = self._begun, self._begun + 1
        self._note("start", number)
        return lambda: self._finish(images, number)

    def _finish(self, images: Any, number: int) -> NDArray[Any]:
        self._note("wait", number)
        return self(images)

    def _note(self, step: str, number: int) -> None:
        self.log.append((step, number))
        self.threads.add(threading.get_ident())
        if self._fails_at == (step, number):
            raise RuntimeError("out of memory")


class FixedDevice(Device):
    """A device on which all batches have one shape."""

    fixed_batch = True


class SmallBatchDevice(Device):
    """A device that two images keep busy."""

    saturating_batch = 2


def grey_tasks(count: int) -> list[Task]:
    return [Task(index, np.full((1, 2, 2), 0.25, np.float32), 0) for index in range(count)]


def scripted_engine(device: Device) -> Engine:
    attack = Scripted((grey(0.1), grey(0.2), grey(0.3)))
    return Engine(attack, device, Threat(0.75, loss="margin"), budget=9, batch_size=4)


def test_the_next_batch_is_begun_before_the_scores_of_the_last_one_are_awaited() -> None:
    device = Device(brightness)
    assert [outcome.ended for outcome in scripted_engine(device).run(grey_tasks(8))] == ["exhausted"] * 8
    begun = {number: device.log.index(("start", number)) for number in range(6)}
    awaited = {number: device.log.index(("wait", number)) for number in range(6)}
    assert all(begun[number + 1] < awaited[number] for number in range(5))
    assert all(awaited[number] < begun[number + 2] for number in range(4)), "a batch needs the scores of two before"
    assert device.threads == {threading.get_ident()}


@pytest.mark.parametrize("kind", [Device, FixedDevice, SmallBatchDevice])
@pytest.mark.parametrize("name", ATTACKS)
def test_results_do_not_depend_on_whether_the_model_is_asynchronous(name: str, kind: type[Device]) -> None:
    attack, network = parse_attack(name), Network(SHAPE)
    threat = Threat(0.02, loss="label" if attack.needs == "label" else "cross-entropy")
    tasks = tasks_for(SHAPE, threat, 20)

    def run(model: FunctionModel, batch_size: int, in_flight: int) -> tuple[dict[int, Outcome], int]:
        engine = Engine(attack, model, threat, budget=120, batch_size=batch_size, in_flight=in_flight)
        return results(engine.run(tasks)), engine.counters.queries

    expected = run(FunctionModel(network), 6, 9)
    for batch_size, in_flight in ((1, 1), (5, 20), (6, 9), (64, 20)):
        assert run(kind(network), batch_size, in_flight) == expected


@pytest.mark.parametrize("step", ["start", "wait"])
@pytest.mark.parametrize("failing", [0, 1, 2, 5])
def test_a_failure_of_the_device_surfaces_after_everything_before_it_was_yielded(failing: int, step: str) -> None:
    engine = scripted_engine(Device(brightness, fails_at=(step, failing)))
    entries: list[int] = []
    with pytest.raises(ModelError, match="out of memory"):
        list(engine.run(grey_tasks(8), lambda step: entries.append(len(step.entries))))
    assert len(entries) == failing
    assert engine.counters.queries == 4 * failing


def test_a_stopped_engine_yields_what_was_delivered_and_awaits_nothing_else() -> None:
    device = Device(brightness)
    engine = scripted_engine(device)

    def stop(step: Step) -> None:
        if step.counters.calls == 2:
            engine.stop()

    outcomes = list(engine.run(grey_tasks(8), stop))
    assert [outcome.ended for outcome in outcomes] == ["interrupted"] * 8
    assert engine.counters.queries == sum(outcome.queries for outcome in outcomes) == 12
    assert [number for step, number in device.log if step == "wait"] == [0, 1, 2]

"""A worker: it opens the model by its name, once, and goes a model call further whenever it is asked to.

It holds no result: what an answer tells is the driver's from then on.
"""

from __future__ import annotations

import pickle
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from parsimon.core.engine import Counters, Engine, Step
from parsimon.core.model import Model
from parsimon.core.threat import Threat
from parsimon.core.types import Attack, JournalEntry, Outcome, Task
from parsimon.errors import ParsimonError, WorkerError, first_line
from parsimon.models import as_model


@dataclass(frozen=True)
class EngineConfig:
    """All that an engine needs besides its oracle."""

    attack: Attack
    threat: Threat
    budget: int
    seed: int
    batch_size: int
    in_flight: int
    classes: int | None = None

    def engine(self, oracle: Model) -> Engine:
        return Engine(
            self.attack,
            oracle,
            self.threat,
            budget=self.budget,
            seed=self.seed,
            batch_size=self.batch_size,
            in_flight=self.in_flight,
            classes=self.classes,
        )


class Request(NamedTuple):
    """What a worker is asked: to take these tasks too, and to go one model call further."""

    tasks: tuple[Task, ...] = ()
    plan: EngineConfig | None = None  # begin another attack, with nothing in flight
    stop: bool = False  # let go of all that is in flight
    attack: int = 0  # the number of the attack that it belongs to, which the report says again


@dataclass(frozen=True)
class Report:
    """What has come of a request."""

    outcomes: list[Outcome] = field(default_factory=list)
    told: list[JournalEntry] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)  # of all requests since the attack was begun
    error: Exception | None = None
    attack: int = 0


class Worker:
    """One oracle, and an engine for one attack at a time."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._inbox: deque[Task] = deque()
        self._counters = Counters()
        self._engine: Engine
        self._events: Iterator[Outcome | Step]

    @cached_property
    def _oracle(self) -> Model:
        return as_model(self._model)

    def answer(self, request: Request) -> Report:
        """Whatever goes wrong is a report too: a worker that raises could not be told from one that is lost."""
        try:
            report = self._answer(request)
        except Exception as error:
            report = Report(counters=self._counters, error=_that_travels(error))
        return replace(report, attack=request.attack)

    def _answer(self, request: Request) -> Report:
        if request.plan is not None:
            self._engine = request.plan.engine(self._oracle)
            self._counters = self._engine.counters
            self._events = self._engine.events(self._tasks())
            self._inbox.clear()
        if request.stop:
            self._engine.stop()
        self._inbox.extend(request.tasks)
        outcomes: list[Outcome] = []
        told: list[JournalEntry] = []
        for event in self._events:
            if isinstance(event, Outcome):
                outcomes.append(event)
            else:
                told += event.entries
                if not self._engine.stopped:
                    return Report(outcomes, told, self._counters)
        self._events = self._engine.events(self._tasks())  # nothing is in flight: the next task is a new beginning
        return Report(outcomes, told, self._counters)

    def _tasks(self) -> Iterator[Task | None]:
        while True:
            yield self._inbox.popleft() if self._inbox else None


def _that_travels(error: Exception) -> Exception:
    """The error, with where it comes from, or its text if it cannot be sent to another process."""
    if not isinstance(error, ParsimonError):
        error.add_note("In a worker:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an exception may refuse in any way
        return WorkerError(f"a worker failed: {first_line(error)}")
    return error

"""A worker opens the model by its name, once, and makes one model call per request.

It keeps no results: everything in a report belongs to the driver.
"""

from __future__ import annotations

import pickle
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from parsimon.core.engine import Counters, Engine, Step
from parsimon.core.model import Model
from parsimon.core.threat import Scores, Threat
from parsimon.core.types import Attack, JournalEntry, Outcome, Task
from parsimon.defences import defended
from parsimon.errors import ParsimonError, WorkerError, first_line
from parsimon.models import as_model


@dataclass(frozen=True)
class EngineConfig:
    """Everything that an engine needs, except its model."""

    attack: Attack
    threat: Threat
    budget: int
    seed: int
    batch_size: int
    in_flight: int
    classes: int | None = None

    def engine(self, model: Model) -> Engine:
        """Return an engine with these settings."""
        settings = {name: value for name, value in vars(self).items() if name not in ("attack", "threat")}
        return Engine(self.attack, model, self.threat, **settings)


class Request(NamedTuple):
    """A request to make one model call."""

    tasks: tuple[Task, ...] = ()  # new images to attack
    config: EngineConfig | None = None  # start another attack
    stop: bool = False  # end all unfinished images
    attack: int = 0  # the number of the attack, which the report repeats


@dataclass(frozen=True)
class Report:
    """The result of a request."""

    outcomes: list[Outcome] = field(default_factory=list)
    entries: list[JournalEntry] = field(default_factory=list)  # of the unfinished images
    counters: Counters = field(default_factory=Counters)  # of all requests since the attack started
    error: Exception | None = None
    attack: int = 0


class Worker:
    """One model, and an engine for one attack at a time."""

    def __init__(self, name: Any, defences: Sequence[str] = (), returns: Scores | None = None) -> None:
        """Name the model. `returns` is what it returns without its defences, if they must know it."""
        self._name, self._defences, self._returns = name, defences, returns
        self._queue: deque[Task] = deque()
        self._counters = Counters()
        self._engine: Engine
        self._events: Iterator[Outcome | Step]

    @cached_property
    def _model(self) -> Model:
        return defended(as_model(self._name), self._defences, self._returns)

    def handle(self, request: Request) -> Report:
        """Return the report on a request. Errors are reported too, since a worker that raises would count as lost."""
        try:
            report = self._handle(request)
        except Exception as error:
            report = Report(counters=self._counters, error=_as_sendable(error))
        return replace(report, attack=request.attack)

    def _handle(self, request: Request) -> Report:
        if request.config is not None:
            self._engine = request.config.engine(self._model)
            self._counters = self._engine.counters
            self._events = self._engine.events(self._tasks())
            self._queue.clear()
        if request.stop:
            self._engine.stop()
        self._queue.extend(request.tasks)
        report = Report(counters=self._counters)
        for event in self._events:
            if isinstance(event, Outcome):
                report.outcomes.append(event)
            else:
                report.entries.extend(event.entries)
                if not self._engine.stopped:
                    return report
        self._events = self._engine.events(self._tasks())  # no image is active: the next task starts afresh
        return report

    def _tasks(self) -> Iterator[Task | None]:
        while True:
            yield self._queue.popleft() if self._queue else None


def _as_sendable(error: Exception) -> Exception:
    """Return the error with its traceback as a note, or its text if it cannot be sent to another process."""
    if not isinstance(error, ParsimonError):
        error.add_note("In a worker:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an exception can refuse to be pickled in any way
        return WorkerError(f"a worker failed: {first_line(error)}")
    return error

"""The driver assigns images to workers and collects their reports, wherever the workers run.

The outcome of an image depends on its own responses alone, so it does not matter which worker attacks it. The driver
keeps the journal of all unfinished images. If a worker is lost, other workers resume its images from there: reported
losses are not queried again, and no result changes.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple, Protocol

from parsimon.core.engine import Counters, Step
from parsimon.core.types import JournalEntry, Outcome, Task
from parsimon.errors import WorkerError
from parsimon.runs.packing import join_entries
from parsimon.runs.workers.worker import EngineConfig, Report, Request

_AHEAD = 2  # requests per worker at once: it works on the second while the report on the first is sent
_CHECK_EVERY = 0.2  # seconds between checks for a stop
_PATIENCE = 5.0  # seconds without a report after a stop; longer if model calls take longer
_ATTACKS = count(1)  # numbers that tell the attacks of a pool apart
_LOG = logging.getLogger("parsimon")


class Lost(NamedTuple):
    """A worker that will not report any more."""

    reason: str


class WorkerPool(Protocol):
    """Workers that each handle their requests in order."""

    @property
    def workers(self) -> Collection[int]:
        """The workers that are not lost."""

    def send(self, worker: int, request: Request) -> None:
        """Send a request. If the worker is lost, `receive` says so."""

    def receive(self, timeout: float) -> Iterator[tuple[int, Report | Lost]]:
        """Wait for at most `timeout` seconds, and yield everything that has arrived."""

    def dismiss(self, worker: int) -> None:
        """End a worker that does not report. Nothing more is received from it."""


@dataclass
class _WorkerState:
    """The driver's record of a worker."""

    images: dict[int, int] = field(default_factory=dict)  # the images that it attacks, with their task numbers
    pending: int = 0  # requests without a report
    started: bool = False
    counters: Counters = field(default_factory=Counters)
    since: float = 0.0  # when it began its oldest pending request
    longest: float = 0.0  # seconds that a request took

    @property
    def working(self) -> bool:
        return self.started and self.pending > 0

    def on_request(self) -> None:
        if not self.pending:
            self.since = time.monotonic()
        self.pending += 1

    def on_report(self, report: Report) -> None:
        now = time.monotonic()
        if self.started:  # the first request includes opening the model
            self.longest = max(self.longest, now - self.since)
        self.started, self.since = True, now
        self.pending -= 1
        self.counters = report.counters
        for outcome in report.outcomes:
            del self.images[outcome.index]

    def is_silent(self, stopped_at: float) -> bool:
        """Return whether it has work to do, but has sent no report for too long after a stop."""
        return self.working and time.monotonic() - max(self.since, stopped_at) > max(_PATIENCE, 2 * self.longest)


class Driver:
    """Attack images as an `Engine` does, with the workers of a pool."""

    def __init__(self, pool: WorkerPool, config: EngineConfig) -> None:
        self.counters = Counters()
        self.threat = config.threat
        self.stopped = False
        self._stopped_at: float | None = None  # when the workers were asked to stop
        self._pool, self._config, self._attack = pool, config, next(_ATTACKS)
        self._tasks: Sequence[Task] = ()
        self._states: dict[int, _WorkerState] = {}
        self._waiting: deque[int] = deque()  # task numbers
        self._journal: dict[int, list[JournalEntry]] = defaultdict(list)  # by unfinished image

    def stop(self) -> None:
        """Stop after the model calls under way; unfinished images are then yielded as interrupted.

        The driver does not wait for a silent worker. What that worker has reported is kept.
        """
        self.stopped = True

    def run(self, tasks: Sequence[Task], on_step: Callable[[Step], None] | None = None) -> Iterator[Outcome]:
        """Yield outcomes as `Engine.run` does. A task is read when it is assigned, and again if its worker is lost."""
        before = self.counters
        self._tasks = tasks
        self._waiting.extend(range(len(tasks)))
        self._states = {worker: _WorkerState() for worker in self._pool.workers}
        for worker in self._states:
            self._send(worker, Request(config=self._config))
        while (self._waiting and self._stopped_at is None) or any(state.working for state in self._states.values()):
            for worker, report in self._pool.receive(_CHECK_EVERY):
                if isinstance(report, Lost):
                    before += yield from self._lose(worker, report)
                elif report.attack == self._attack:  # not from a worker that started after an earlier attack had ended
                    self._record(worker, report)
                    self.counters = sum((state.counters for state in self._states.values()), before)
                    if report.error is not None:
                        raise report.error
                    yield from report.outcomes
                    if on_step is not None:
                        on_step(Step(self.counters, report.entries))
            if not self.stopped:
                self._assign()
            elif self._stopped_at is None:
                self._stop_workers()
            else:
                for worker in [worker for worker, state in self._states.items() if state.is_silent(self._stopped_at)]:
                    self._pool.dismiss(worker)
                    before += yield from self._lose(worker, Lost("it did not answer"))

    def _send(self, worker: int, request: Request) -> None:
        self._states[worker].on_request()
        self._pool.send(worker, request._replace(attack=self._attack))

    def _record(self, worker: int, report: Report) -> None:
        self._states[worker].on_report(report)
        for entry in report.entries:
            self._journal[entry.image].append(entry)
        for outcome in report.outcomes:
            self._journal.pop(outcome.index, None)

    def _assign(self) -> None:
        """Fill each worker up to its share of the remaining images, so that all have work until the end."""
        left = len(self._waiting) + sum(len(state.images) for state in self._states.values())
        share = min(self._config.in_flight, -(-left // len(self._states)))
        for worker, state in self._states.items():
            while state.started and state.pending < _AHEAD:
                room = max(0, min(share - len(state.images), len(self._waiting)))
                numbers = [self._waiting.popleft() for _ in range(room)]
                assigned = tuple(self._task(number) for number in numbers)
                state.images |= {task.index: number for task, number in zip(assigned, numbers, strict=True)}
                if not state.images:
                    break
                self._send(worker, Request(assigned))

    def _stop_workers(self) -> None:
        self._stopped_at = time.monotonic()
        for worker, state in self._states.items():
            if state.started:
                self._send(worker, Request(stop=True))

    def _task(self, number: int) -> Task:
        """Return a task with the losses that its earlier workers have reported."""
        task = self._tasks[number]
        entries = [*([] if task.journal is None else [task.journal]), *self._journal.get(task.index, [])]
        return replace(task, journal=join_entries(entries)) if entries else task

    def _lose(self, worker: int, lost: Lost) -> Generator[Outcome, None, Counters]:
        """Queue the images of a lost worker again, or yield them as interrupted after a stop; return its counters."""
        state = self._states.pop(worker)
        if self.stopped:
            _LOG.warning("worker %d was lost (%s): its images are unfinished", worker, lost.reason)
            for index, number in state.images.items():
                yield Outcome.unfinished(index, self._task(number).journal, self._config.threat)
            return state.counters
        if not self._states:
            raise WorkerError(
                f"no worker is left: the last one was lost ({lost.reason}). A stored run can be resumed: every "
                "reported response is saved."
            )
        _LOG.warning("worker %d was lost (%s): the other workers continue its images", worker, lost.reason)
        self._waiting.extendleft(reversed(state.images.values()))
        # The worker that continues an image counts all of its queries, including the replayed ones.
        return replace(state.counters, queries=state.counters.ended_queries)

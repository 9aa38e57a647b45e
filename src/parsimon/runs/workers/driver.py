"""The one that hands out images to workers and collects what they report, whatever they are and wherever they run.

An image's fate depends on its own replies alone, so it does not matter which worker attacks it. The driver keeps what
the searches in work were told. When a worker is lost its images are handed out again with that, as in a resumed run:
what a report has told is never asked again, and no result changes.
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
from parsimon.runs.store import joined
from parsimon.runs.workers.worker import EngineConfig, Report, Request

_AHEAD = 2  # requests that a worker has at once: it goes on with the second while the answer to the first travels
_LOOK_EVERY = 0.2  # seconds after which a stop is noticed, whether workers answer or not
_PATIENCE = 5.0  # seconds that a worker may be silent after a stop; more if its model calls take longer
_ATTACKS = count(1)  # numbers for those that the workers of a crew are asked for, one after another
_LOG = logging.getLogger("parsimon")


class Lost(NamedTuple):
    """A worker that will not answer any more."""

    reason: str


class WorkerPool(Protocol):
    """Workers that can be asked. Each answers its requests in their order, or is lost."""

    @property
    def workers(self) -> Collection[int]:
        """Those that are not lost."""

    def ask(self, worker: int, request: Request) -> None:
        """Send a request. Where the worker is lost, `answers` says so."""

    def answers(self, timeout: float) -> Iterator[tuple[int, Report | Lost]]:
        """Wait for what comes, and yield all of it; nothing if nothing has come in so many seconds."""

    def dismiss(self, worker: int) -> None:
        """End a worker that does not answer. Nothing of it is yielded any more."""


@dataclass
class _Hand:
    """A worker as the driver sees it."""

    images: dict[int, int] = field(default_factory=dict)  # that it holds, with their places among the tasks
    unanswered: int = 0
    started: bool = False
    counters: Counters = field(default_factory=Counters)
    landed: int = 0  # queries of the images that have ended there
    since: float = 0.0  # when it began with the oldest of its requests
    longest: float = 0.0  # seconds that it has taken for a request

    @property
    def working(self) -> bool:
        return self.started and self.unanswered > 0

    def request(self) -> None:
        """Note that it was sent a request."""
        if not self.unanswered:
            self.since = time.monotonic()
        self.unanswered += 1

    def hear(self) -> None:
        """Note that it has answered a request."""
        now = time.monotonic()
        if self.started:  # the first request includes opening the model
            self.longest = max(self.longest, now - self.since)
        self.started, self.since = True, now
        self.unanswered -= 1

    def is_silent(self, stop: float) -> bool:
        """Return whether it has work to do, and has answered nothing for too long after a stop."""
        return self.working and time.monotonic() - max(self.since, stop) > max(_PATIENCE, 2 * self.longest)


class Driver:
    """Attacks images as an `Engine` does, with the workers of a crew."""

    def __init__(self, crew: WorkerPool, plan: EngineConfig) -> None:
        self.counters = Counters()
        self.threat = plan.threat
        self.stopped = False
        self._stopped_at: float | None = None  # when the workers were asked to stop
        self._crew, self._plan, self._attack = crew, plan, next(_ATTACKS)
        self._hands: dict[int, _Hand] = {}
        self._waiting: deque[int] = deque()  # places among the tasks
        self._journal: dict[int, list[JournalEntry]] = defaultdict(
            list
        )  # of each image in work, since it was first handed out

    def stop(self) -> None:
        """End after the model calls in work; images still in flight are then yielded as interrupted.

        A worker that stays silent is not waited for. Of its images, what it has reported is kept.
        """
        self.stopped = True

    def run(self, tasks: Sequence[Task], on_step: Callable[[Step], None] | None = None) -> Iterator[Outcome]:
        """As `Engine.run`; a task is read when it is handed out, and again if its worker is lost."""
        before = self.counters
        self._waiting.extend(range(len(tasks)))
        self._hands = {worker: _Hand() for worker in self._crew.workers}
        for worker in self._hands:
            self._ask(worker, Request(plan=self._plan))
        while (self._waiting and self._stopped_at is None) or any(hand.working for hand in self._hands.values()):
            for worker, answer in self._crew.answers(_LOOK_EVERY):
                hand = self._hands[worker]
                if isinstance(answer, Lost):
                    before += yield from self._lose(worker, answer, tasks)
                    continue
                if answer.attack != self._attack:  # of a worker that begins so late that an attack ended without it
                    continue
                self._take(hand, answer)
                self.counters = sum((hand.counters for hand in self._hands.values()), before)
                if answer.error is not None:
                    raise answer.error
                yield from answer.outcomes
                if on_step is not None:
                    on_step(Step(self.counters, answer.told))
            if not self.stopped:
                self._hand_out(tasks)
            elif self._stopped_at is None:
                self._stopped_at = time.monotonic()
                for worker, hand in self._hands.items():
                    if hand.started:
                        self._ask(worker, Request(stop=True))
            else:
                for worker in [worker for worker, hand in self._hands.items() if hand.is_silent(self._stopped_at)]:
                    self._crew.dismiss(worker)
                    before += yield from self._lose(worker, Lost("it did not answer"), tasks)

    def _ask(self, worker: int, request: Request) -> None:
        self._hands[worker].request()
        self._crew.ask(worker, request._replace(attack=self._attack))

    def _take(self, hand: _Hand, report: Report) -> None:
        hand.hear()
        hand.counters = report.counters
        for told in report.told:
            self._journal[told.image].append(told)
        for outcome in report.outcomes:
            hand.landed += outcome.queries
            del hand.images[outcome.index]
            self._journal.pop(outcome.index, None)

    def _hand_out(self, tasks: Sequence[Task]) -> None:
        """Give each worker what it has room for, but no more than its share: the others must have work to the end."""
        left = len(self._waiting) + sum(len(hand.images) for hand in self._hands.values())
        share = min(self._plan.in_flight, -(-left // len(self._hands)))
        for worker, hand in self._hands.items():
            while hand.started and hand.unanswered < _AHEAD:
                room = max(0, min(share - len(hand.images), len(self._waiting)))
                places = [self._waiting.popleft() for _ in range(room)]
                given = tuple(self._retold(tasks[place]) for place in places)
                hand.images |= {task.index: place for task, place in zip(given, places, strict=True)}
                if not hand.images:
                    break
                self._ask(worker, Request(given))

    def _retold(self, task: Task) -> Task:
        """The task, with what its search was told before its worker was lost."""
        told = [*([] if task.journal is None else [task.journal]), *self._journal.get(task.index, [])]
        return replace(task, journal=joined(told)) if told else task

    def _lose(self, worker: int, lost: Lost, tasks: Sequence[Task]) -> Generator[Outcome, None, Counters]:
        """Take back the images of a lost worker, or yield them as interrupted after a stop; return its counters."""
        hand = self._hands.pop(worker)
        if self.stopped:
            _LOG.warning("worker %d was lost (%s): its images are unfinished", worker, lost.reason)
            for index, place in hand.images.items():
                yield Outcome.unfinished(index, self._retold(tasks[place]).journal)
            return hand.counters
        if not self._hands:
            raise WorkerError(
                f"no worker is left: the last one was lost ({lost.reason}). A stored run can be resumed; all that was "
                "told of its images is saved."
            )
        _LOG.warning("worker %d was lost (%s): the others go on with its images", worker, lost.reason)
        self._waiting.extendleft(reversed(hand.images.values()))
        # The queries of images that go on elsewhere are counted there, when their searches are told of them again.
        return replace(hand.counters, queries=hand.landed)

"""The one loop: it holds many searches at once, fills model batches with what they ask, counts, stops, answers.

A search's fate depends on its own replies alone, so what is attacked beside an image, the size of the batch and the
order in which batches are filled change nothing in its result.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import Canvas
from parsimon.core.large_canvas import LargeCanvas
from parsimon.core.model import Model, Traffic
from parsimon.core.scheduler import AnyCanvas, Batch, BatchScores, Scheduler, Turn
from parsimon.core.threat import Threat
from parsimon.core.types import Attack, ImageContext, JournalEntry, Outcome, Task
from parsimon.errors import ModelError, ParsimonError, check_whole, first_line


@dataclass
class Counters:
    """What the engine has done so far."""

    queries: int = 0  # charged
    rows: int = 0  # shown to the model for a search, counted or not
    padding: int = 0  # shown to the model to keep the batch's shape
    calls: int = 0
    ended: int = 0
    successes: int = 0
    traffic: Traffic | None = None  # of a model behind a network

    @classmethod
    def of(cls, outcomes: Collection[Outcome], traffic: Traffic | None = None) -> Counters:
        """Where a run stands that has come to these."""
        queries, successes = (sum(getattr(each, what) for each in outcomes) for what in ("queries", "success"))
        return cls(queries, ended=len(outcomes), successes=successes, traffic=traffic)

    def __add__(self, other: Counters) -> Counters:
        pairs = [(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)]
        return Counters(*(its if mine is None else mine if its is None else mine + its for mine, its in pairs))

    @property
    def fill(self) -> float:
        """The part of the shown rows that a search asked for."""
        return self.rows / max(1, self.rows + self.padding)


class Step(NamedTuple):
    """What one model call has brought."""

    counters: Counters
    told: list[JournalEntry]  # to the searches that go on; what ended was yielded before


_SWITCH_SECONDS = 1e-4
_LARGEST_SCORE = 1e30  # whose differences single precision can hold
_LARGE = 2**13  # values of an image from which on a window of it is painted sooner than the whole of it
Answer = TypeVar("Answer")


class Engine:
    """Attacks images with one attack, one oracle and one threat. `run` yields each outcome as it comes."""

    def __init__(
        self,
        attack: Attack,
        oracle: Model,
        threat: Threat,
        *,
        budget: int,
        seed: int = 0,
        batch_size: int = 64,
        in_flight: int = 256,
        classes: int | None = None,
    ) -> None:
        """`classes`: how many scores a row must have; by default as many as the first one has."""
        check_whole("budget", budget, 1)
        check_whole("batch_size", batch_size, 1)
        check_whole("in_flight", in_flight, 1)
        check_whole("seed", seed, 0)
        self.counters = Counters()
        # The published behaviour of an attack includes its arithmetic, whatever else is asked for.
        self.threat = replace(threat, rounding="nearest") if attack.rounding == "nearest" else threat
        self._attack, self._oracle = attack, oracle
        # Points for a batch that is drawn while the model looks at another.
        self._enough = batch_size
        if oracle.saturating_batch is not None and not (attack.white_box or oracle.fixed_batch):
            self._enough = min(oracle.saturating_batch, batch_size)
        self._budget, self._seed, self._batch_size, self._in_flight = budget, seed, batch_size, in_flight
        self._classes = classes
        self.stopped = False

    def stop(self) -> None:
        """End after the batch in work, without one begun ahead; images still in flight are yielded as interrupted."""
        self.stopped = True

    def run(self, tasks: Iterable[Task], on_step: Callable[[Step], None] | None = None) -> Iterator[Outcome]:
        """Attack the tasks, taking each when there is room for it; `on_step` is called after each model call."""
        for event in self.events(tasks):
            if isinstance(event, Outcome):
                yield event
            elif on_step is not None:
                on_step(event)

    def events(self, tasks: Iterable[Task | None]) -> Iterator[Outcome | Step]:
        """As `run`, with a step after each model call. A None among the tasks: there is none for now, go on without."""
        waiting = iter(tasks)
        places = list(islice(waiting, self._in_flight))
        first = [task for task in places if task is not None]
        if not first or self.stopped:
            return
        flights = self._flights(self._context(first[0]).shape, len(places))
        # No more begin in a turn than fill a batch, so that the model looks at some while others begin.
        waiting = chain(first, waiting)
        arrivals = _arriving(waiting, min(len(places), self._batch_size))
        del places, first
        shown: PendingBatch | None = None  # a batch that the model looks at
        answered: BatchScores | None = None  # the one before, to tell
        with _beside_the_model(self._oracle) as beside:
            while shown or answered or arrivals:
                # While the model looks at a batch, the searches are told of the one before, and the next one is drawn.
                work = partial(self._turn, flights, answered, arrivals, ahead=shown is not None)
                done = beside(work) if shown else work
                told, answered, failure = answered, None, None
                if shown:
                    try:
                        answered = shown()
                    except Exception as error:  # raised when what was answered before has been yielded
                        failure = error
                turn, shown = done()
                yield from self._news(turn, told)
                if failure is not None:
                    raise failure
                if self.stopped:
                    known = [task for task in _arriving(waiting, turn.free) if task.told is not None]
                    yield from self._news(flights.turn(answered, known, ahead=True), answered)
                    yield from flights.interrupted()
                    return
                arrivals = _arriving(waiting, min(turn.free, self._batch_size))

    def _flights(self, shape: tuple[int, int, int], places: int) -> Scheduler:
        canvas: AnyCanvas
        if str(self._oracle.device) == "cpu" and math.prod(shape) >= _LARGE:
            canvas = LargeCanvas(shape, places, self._batch_size, self.threat, self._oracle)
        else:
            canvas = Canvas(shape, places, self.threat, self._oracle)
        return Scheduler(
            canvas,
            lambda task: self._attack.search(self._context(task), np.random.default_rng([self._seed, task.index])),
            self.threat,
            places=places,
            budget=self._budget,
            batch_size=self._batch_size,
            fixed_batch=self._oracle.fixed_batch,
            enough=self._enough,
        )

    def _context(self, task: Task) -> ImageContext:
        return ImageContext(task.index, task.image, self.threat, self._budget)

    def _turn(
        self, flights: Scheduler, answered: BatchScores | None, arrivals: list[Task], *, ahead: bool
    ) -> tuple[Turn, PendingBatch | None]:
        """A turn, and what waits for the model to look at the batch that it has drawn."""
        turn = flights.turn(answered, arrivals, ahead=ahead)
        if turn.batch is None:
            return turn, None
        return turn, self._begin(turn.batch)

    def _begin(self, batch: Batch) -> PendingBatch:
        """Show a batch to a model that begins at once; to any other it is shown when the answer is waited for."""
        if self._attack.white_box:  # also of points without gradients, which another way to run it may score otherwise
            return lambda: BatchScores(batch, *self._pull_back(batch))
        return partial(self._show, batch, self._oracle.start(batch.drawn.images))

    def _show(self, batch: Batch, ask: Callable[[], Any]) -> BatchScores:
        with self._counting_traffic():
            return BatchScores(batch, self._checked(_answered(ask, batch.drawn.images), batch)[batch.drawn.rows])

    def _news(self, turn: Turn, answered: BatchScores | None) -> Iterator[Outcome | Step]:
        """Count what has come of a turn, and tell of it."""
        self.counters.queries += turn.queries
        if answered is not None:
            images, rows = len(answered.batch.drawn.images), len(answered.batch.goals)
            self.counters.rows += rows
            self.counters.padding += images - rows
            self.counters.calls += 1
        for outcome in turn.ended:
            self.counters.ended += 1
            self.counters.successes += outcome.success
            yield outcome
        if answered is not None:
            yield Step(self.counters, turn.told)

    @contextmanager
    def _counting_traffic(self) -> Iterator[None]:
        """Count what goes to a model behind a network, and if no answer comes, too."""
        before = self._oracle.traffic
        try:
            yield
        finally:
            after = self._oracle.traffic
            if before is not None and after is not None:
                self.counters.traffic = (self.counters.traffic or Traffic()) + (after - before)

    def _pull_back(self, batch: Batch) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Scores and gradients of the rows that have a goal; those that fill the batch have none."""
        images, rows = batch.drawn[:2]

        def slope(scores: NDArray[Any]) -> NDArray[np.float64]:
            of_all = np.zeros(scores.shape)
            of_all[rows] = self.threat.slope(scores[rows], batch.goals)
            return of_all

        scores, gradients = _answered(lambda: self._oracle.vjp(images, slope), images)
        return self._checked(scores, batch)[rows], np.array(gradients, np.float32)[rows]

    def _checked(self, answer: Any, batch: Batch) -> NDArray[Any]:
        scores = checked_scores(answer, len(batch.drawn.images), self._classes)
        self._classes = scores.shape[1]
        return scores


def _arriving(waiting: Iterator[Task | None], places: int) -> list[Task]:
    arrivals: list[Task] = []
    while len(arrivals) < places and (task := next(waiting, None)) is not None:
        arrivals.append(task)
    return arrivals


PendingBatch = Callable[[], BatchScores]  # what waits for the model's answer
Work = Callable[[], tuple[Turn, PendingBatch | None]]


@contextmanager
def _beside_the_model(oracle: Model) -> Iterator[Callable[[Work], Work]]:
    """How to begin work that is done while the model is called; it gives what waits for the work's result.

    The model stays in the thread that it was given in, since a framework binds some of its state to that. Where images
    lie on an accelerator, the work is left for after the call: it draws there, and calls of two threads have no order.
    """
    if str(oracle.device) != "cpu":
        yield lambda work: work
        return
    with _quick_switches(), ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(work).result


class _Switches:
    """How many engines want threads to switch quickly, and how they switched before the first of them began."""

    lock = threading.Lock()
    wanted = 0
    before = 0.0


@contextmanager
def _quick_switches() -> Iterator[None]:
    """A model that comes back from a long computation for the next one must not wait for all of the work beside it."""
    with _Switches.lock:
        if not _Switches.wanted:
            _Switches.before = sys.getswitchinterval()
            sys.setswitchinterval(min(_Switches.before, _SWITCH_SECONDS))
        _Switches.wanted += 1
    try:
        yield
    finally:
        with _Switches.lock:
            _Switches.wanted -= 1
            if not _Switches.wanted:
                sys.setswitchinterval(_Switches.before)


def scores_of(oracle: Model, batch: Any, classes: int | None = None) -> NDArray[Any]:
    """The oracle's scores, if it answers and they have the shape of scores."""
    return checked_scores(_answered(partial(oracle, batch), batch), len(batch), classes)


def _answered(ask: Callable[[], Answer], batch: Any) -> Answer:
    """What the model says; whatever it raises is the model's failure."""
    try:
        return ask()
    except ParsimonError:
        raise
    except Exception as error:
        reason = first_line(error)
        raise ModelError(f"the model failed on images of shape {tuple(batch.shape)}: {reason}") from error


def checked_scores(answer: Any, rows: int, classes: int | None = None) -> NDArray[Any]:
    """Return a copy of the scores, since a model may reuse its output buffer; refuse what no classifier returns."""
    try:
        scores = np.asarray(answer).copy()
    except (TypeError, ValueError, RuntimeError) as error:  # of rows that differ in length, or of a torch tensor
        what = f"the model must return an array of scores; numpy cannot read what it returned: {first_line(error)}"
        raise ModelError(what) from error
    if scores.ndim != 2 or len(scores) != rows or scores.shape[1] < 2:
        raise ModelError(
            f"the model must return scores of shape (images, classes), here ({rows}, at least 2); got {scores.shape}"
        )
    if scores.dtype.kind not in "fiu":
        raise ModelError(f"the model must return scores that are real numbers; got an array of {scores.dtype}")
    if classes is not None and scores.shape[1] != classes:
        raise ModelError(
            f"the model must return the same number of classes in every call; it returned {classes} before and "
            f"{scores.shape[1]} now"
        )
    if _largest(scores) > _LARGEST_SCORE and _largest(scores[np.isfinite(scores)]) > _LARGEST_SCORE:
        raise ModelError(f"the model must return scores of at most {_LARGEST_SCORE:g}; it returned larger ones")
    return scores


def _largest(scores: NDArray[Any]) -> float:
    return float(np.abs(scores).max(initial=0))  # compared in double precision, since half knows no large numbers

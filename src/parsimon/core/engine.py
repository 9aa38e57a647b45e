"""The engine: it runs many searches at once, fills model batches with their points, counts, and stops.

A search depends on its own replies alone. So the other images, the batch size and the order of batches do not change
its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import Canvas, pad_batch
from parsimon.core.draws import draw_keys
from parsimon.core.large_canvas import LargeCanvas
from parsimon.core.model import Keys, Model, Traffic, as_columns
from parsimon.core.random_search import RandomSearch
from parsimon.core.scheduler import Batch, BatchScores, Scheduler, Turn
from parsimon.core.threat import Threat
from parsimon.core.types import Attack, ImageContext, JournalEntry, Outcome, Search, Task
from parsimon.errors import MOST, ModelError, ParsimonError, check_whole, first_line, users_place

# Switch interval for processes that only run attacks: a model that returns from C code waits less for the searches.
SWITCH_SECONDS = 1e-4
_LARGEST_SCORE = 1e30  # single precision holds the differences of such scores
_LARGE = 2**13  # values per image above which `LargeCanvas` is faster on a CPU

Response = TypeVar("Response")


@dataclass
class Counters:
    """Totals of a run so far."""

    queries: int = 0  # charged
    rows: int = 0  # evaluated for a search, counted or not
    padding: int = 0  # evaluated only to fill a batch of fixed shape
    calls: int = 0
    ended: int = 0
    successes: int = 0
    traffic: Traffic | None = None  # of a remote model
    ended_queries: int = 0  # charged for the images that have ended

    @classmethod
    def of(cls, outcomes: Collection[Outcome], traffic: Traffic | None = None) -> Counters:
        """Return the counters of a run that is resumed after these outcomes."""
        queries = sum(outcome.charged for outcome in outcomes)
        successes = sum(outcome.success for outcome in outcomes)
        return cls(queries, ended=len(outcomes), successes=successes, traffic=traffic, ended_queries=queries)

    def __add__(self, other: Counters) -> Counters:
        pairs = [(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)]
        return Counters(*(its if mine is None else mine if its is None else mine + its for mine, its in pairs))

    @property
    def fill(self) -> float:
        """The fraction of evaluated rows that a search asked for."""
        return self.rows / max(1, self.rows + self.padding)


class Step(NamedTuple):
    """The result of one model call. The images that it ended were yielded before."""

    counters: Counters
    entries: list[JournalEntry]  # of the images that are still active


PendingBatch = Callable[[], BatchScores]  # waits for the scores of a batch
Work = Callable[[], tuple[Turn, PendingBatch | None]]


class Engine:
    """Attack images with one attack, one model and one threat; `run` yields each outcome as soon as it is known."""

    def __init__(
        self,
        attack: Attack,
        model: Model,
        threat: Threat,
        *,
        budget: int,
        seed: int = 0,
        batch_size: int = 64,
        in_flight: int = 256,
        classes: int | None = None,
    ) -> None:
        """`classes` is the number of scores per row; by default that of the first response."""
        check_whole("budget", budget, 1)
        check_whole("batch_size", batch_size, 1)
        check_whole("in_flight", in_flight, 1)
        check_whole("seed", seed, 0)
        self.counters = Counters()
        # The rounding is part of the published behaviour of an attack.
        self.threat = replace(threat, rounding="nearest") if attack.rounding == "nearest" else threat
        self._attack, self._model = attack, model
        self._enough = batch_size  # points that are worth a batch while the model computes another
        if model.saturating_batch is not None and not (attack.white_box or model.fixed_batch):
            self._enough = min(model.saturating_batch, batch_size)
        self._budget, self._seed, self._batch_size, self._in_flight = budget, seed, batch_size, in_flight
        self._classes = classes
        self.stopped = False

    def stop(self) -> None:
        """End after the current model call; active images are yielded as interrupted."""
        self.stopped = True

    def run(self, tasks: Iterable[Task], on_step: Callable[[Step], None] | None = None) -> Iterator[Outcome]:
        """Attack the tasks and yield their outcomes; a task is read when a slot is free.

        `on_step` is called after each model call.
        """
        for event in self.events(tasks):
            if isinstance(event, Outcome):
                yield event
            elif on_step is not None:
                on_step(event)

    def events(self, tasks: Iterable[Task | None]) -> Iterator[Outcome | Step]:
        """Attack the tasks and yield outcomes, and a step after each model call.

        A None among the tasks means that no task is available now.
        """
        waiting = iter(tasks)
        slots = list(islice(waiting, self._in_flight))
        first = [task for task in slots if task is not None]
        if not first or self.stopped:
            return
        scheduler = self._scheduler(self._context(first[0]).shape, len(slots))
        # At most a batch of images starts per turn, so that the model computes while others start.
        waiting = chain(first, waiting)
        arrivals = _arriving(waiting, min(len(slots), self._batch_size))
        del slots, first
        pending: PendingBatch | None = None  # the batch that the model computes
        scored: BatchScores | None = None  # the batch before it, to deliver
        with _background(self._model) as background:
            while pending or scored or arrivals:
                # While the model computes a batch, the one before it is delivered, and the next one rendered and begun.
                work = partial(self._turn, scheduler, scored, arrivals, ahead=pending is not None)
                finish = background(work) if pending else work
                delivered, scored, failure = scored, None, None
                if pending:
                    try:
                        scored = pending()
                    except Exception as error:  # raised below, after everything delivered was yielded
                        failure = error
                turn, pending = finish()
                yield from self._report(turn, delivered)
                if failure is not None:
                    raise failure
                if self.stopped:
                    resumed = [task for task in _arriving(waiting, turn.free) if task.journal is not None]
                    yield from self._report(scheduler.turn(scored, resumed, ahead=True), scored)
                    yield from scheduler.interrupted()
                    return
                arrivals = _arriving(waiting, min(turn.free, self._batch_size))

    def _scheduler(self, shape: tuple[int, int, int], slots: int) -> Scheduler:
        large = str(self._model.device) == "cpu" and math.prod(shape) >= _LARGE
        return Scheduler(
            (LargeCanvas if large else Canvas)(shape, slots, self.threat, self._model),
            self._search,
            self.threat,
            self._model,
            slots=slots,
            budget=self._budget,
            batch_size=self._batch_size,
            enough=self._enough,
        )

    def _search(self, task: Task) -> Search:
        context, rng = self._context(task), np.random.default_rng([self._seed, task.index])
        if self.threat.sampling is None:
            return self._attack.search(context, rng)
        return RandomSearch(self._attack, context, rng).run()

    def _context(self, task: Task) -> ImageContext:
        return ImageContext(task.index, task.image, self.threat, self._budget, task.example)

    def _turn(
        self, scheduler: Scheduler, scored: BatchScores | None, arrivals: list[Task], *, ahead: bool
    ) -> tuple[Turn, PendingBatch | None]:
        """Run a turn of the scheduler and begin to evaluate the batch that it has rendered."""
        turn = scheduler.turn(scored, arrivals, ahead=ahead)
        return turn, None if turn.batch is None else self._begin(turn.batch)

    def _begin(self, batch: Batch) -> PendingBatch:
        """Begin a model call. If the model is not asynchronous, the call is made when its scores are needed.

        A failure is raised only then, too, since batches before this one are still to be delivered.
        """
        images = batch.rendered.images
        if self._model.fixed_batch:
            images = pad_batch(images, self._batch_size, self._model.namespace)
        if self._attack.white_box:  # even without gradients: another backend might score the points differently
            return partial(self._score_with_gradients, batch, images)
        try:
            wait = self._model.start(images) if batch.draws is None else self._draw(batch.draws, images)
        except Exception as error:
            wait = partial(_raise, error)
        return partial(self._score, batch, images, wait)

    def _draw(self, draws: NDArray[np.int64], images: Any) -> Callable[[], Any]:
        """Return a call of a random model, whose draws depend on their keys alone."""
        padded = np.pad(draws, ((0, len(images) - len(draws)), (0, 0)))  # rows that fill the batch have zeros
        return partial(self._model.draw, images, draw_keys(self._seed, *padded.T))

    def _score(self, batch: Batch, images: Any, wait: Callable[[], Any]) -> BatchScores:
        with self._counting_traffic():
            scores = self._checked(_call(wait, images), len(images))
        return BatchScores(batch, scores[: len(batch.goals)])

    def _score_with_gradients(self, batch: Batch, images: Any) -> BatchScores:
        points = len(batch.goals)

        def score_gradient(scores: NDArray[Any]) -> NDArray[np.float64]:
            gradient = np.zeros(scores.shape)  # rows that fill the batch have none
            gradient[:points] = self.threat.loss_gradient(scores[:points], batch.goals)
            return gradient

        scores, gradients = _call(lambda: self._model.vjp(images, score_gradient), images)
        scores = self._checked(scores, len(images))
        return BatchScores(batch, scores[:points], np.array(gradients, np.float32)[:points])

    def _report(self, turn: Turn, delivered: BatchScores | None) -> Iterator[Outcome | Step]:
        """Count the results of a turn and yield them."""
        self.counters.queries += turn.queries
        if delivered is not None:
            rows = len(delivered.batch.goals)
            self.counters.rows += rows
            self.counters.padding += self._batch_size - rows if self._model.fixed_batch else 0
            self.counters.calls += 1
        for outcome in turn.ended:
            self.counters.ended += 1
            self.counters.ended_queries += outcome.charged
            self.counters.successes += outcome.success
            yield outcome
        if delivered is not None:
            yield Step(self.counters, turn.entries)

    @contextmanager
    def _counting_traffic(self) -> Iterator[None]:
        """Count the images that are sent to a remote model, also if no response comes."""
        before = self._model.traffic
        try:
            yield
        finally:
            after = self._model.traffic
            if before is not None and after is not None:
                self.counters.traffic = (self.counters.traffic or Traffic()) + (after - before)

    def _checked(self, response: Any, rows: int) -> NDArray[Any]:
        scores = checked_scores(response, rows, self._classes)
        self._classes = scores.shape[1]
        return scores


def _arriving(waiting: Iterator[Task | None], slots: int) -> list[Task]:
    arrivals: list[Task] = []
    while len(arrivals) < slots and (task := next(waiting, None)) is not None:
        arrivals.append(task)
    return arrivals


@contextmanager
def _background(model: Model) -> Iterator[Callable[[Work], Work]]:
    """Give a function that begins work beside the model and returns a function that waits for its result.

    The model stays in the thread of the caller, since frameworks bind state to threads. An asynchronous model computes
    by itself, so the work runs in that thread too, before it waits for the model. So it does for any accelerator, on
    which the work renders: calls of two threads have no order there.
    """
    if model.asynchronous or str(model.device) != "cpu":
        yield _run_now
        return
    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(work).result


def _run_now(work: Work) -> Work:
    result = work()
    return lambda: result


def _raise(error: Exception) -> NoReturn:
    raise error


def scores_of(model: Model, images: Any, classes: int | None = None, keys: Keys | None = None) -> NDArray[Any]:
    """Return the scores of some images; refuse a response that no classifier gives."""
    call = partial(model, images) if keys is None else partial(model.draw, images, keys)
    return checked_scores(_call(call, images), len(images), classes)


def _call(call: Callable[[], Response], images: Any) -> Response:
    """Call the model; whatever it raises becomes a ModelError."""
    try:
        return call()
    except ParsimonError:
        raise
    except Exception as error:
        reason = f"{first_line(error)}{users_place(error)}"
        raise ModelError(f"the model failed on images of shape {tuple(images.shape)}: {reason}") from error


def checked_scores(response: Any, rows: int, classes: int | None = None) -> NDArray[Any]:
    """Return a copy of the scores, since a model may reuse its output buffer; refuse what no classifier returns.

    Class numbers, which a model may return instead of scores, become one column of integers. `classes` is the number of
    columns of earlier calls.
    """
    try:
        scores = as_columns(np.asarray(response).copy())
    except (TypeError, ValueError, RuntimeError) as error:  # rows of different lengths, or a torch tensor
        what = f"the model must return an array of scores; numpy cannot read what it returned: {first_line(error)}"
        raise ModelError(what) from error
    if scores.dtype == object:  # None, a dictionary, or rows of objects
        raise ModelError(
            f"the model must return an array of scores (images, classes) or of class numbers; got "
            f"{type(response).__name__}: wrap it in a function that returns the scores alone"
        )
    integers = scores.dtype.kind in "iu"
    if scores.ndim != 2 or len(scores) != rows or scores.shape[1] < (1 if integers else 2):
        hint = ""
        if scores.dtype.kind == "f" and scores.shape in ((rows,), (rows, 1)):
            hint = (
                ". One number per image must be a class, as an integer; a binary classifier must return two scores per "
                "image, such as the columns 1 - p and p"
            )
        raise ModelError(
            f"the model must return scores of shape (images, classes), here ({rows}, at least 2), or class numbers of "
            f"shape ({rows},); got {scores.shape}{hint}"
        )
    if scores.dtype.kind not in "fiu":
        raise ModelError(f"the model must return scores that are real numbers; got an array of {scores.dtype}")
    if scores.shape[1] == 1 and scores.size and not 0 <= int(scores.min()) <= int(scores.max()) <= MOST:
        raise ModelError(f"class numbers must lie in 0..{MOST}; got {int(scores.min())} to {int(scores.max())}")
    if classes is not None and scores.shape[1] != classes:
        raise ModelError(
            f"the model must return the same number of classes in every call; it returned {classes} before and "
            f"{scores.shape[1]} now"
        )
    if _largest(scores) > _LARGEST_SCORE and _largest(scores[np.isfinite(scores)]) > _LARGEST_SCORE:
        raise ModelError(f"the model must return scores of at most {_LARGEST_SCORE:g}; it returned larger ones")
    return scores


def _largest(scores: NDArray[Any]) -> float:
    return float(np.abs(scores).max(initial=0))  # in double precision: half precision holds no large numbers

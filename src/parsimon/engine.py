"""The one loop: it holds many searches at once, fills model batches with what they ask, counts, stops, answers.

A search's fate depends on its own replies alone, so what is attacked beside an image, the size of the batch and the
order in which batches are filled change nothing in its result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from parsimon.canvas import Canvas
from parsimon.errors import InputError, ModelError, ParsimonError, first_line
from parsimon.protocol import (
    Ask,
    Attack,
    Ended,
    GradientOracle,
    Oracle,
    Outcome,
    Point,
    Reply,
    Scene,
    Search,
    Task,
)
from parsimon.threat import Threat


@dataclass
class Tally:
    """What the engine has done so far."""

    queries: int = 0  # charged
    rows: int = 0  # shown to the model for a search, counted or not
    padding: int = 0  # shown to the model to keep the batch's shape
    calls: int = 0
    ended: int = 0
    successes: int = 0

    @property
    def fill(self) -> float:
        """The part of the shown rows that a search asked for."""
        return self.rows / max(1, self.rows + self.padding)


class _Flight:
    """One image in work."""

    __slots__ = (
        *("ask", "goal", "gradients", "index", "outside", "place", "queries", "replies", "search", "sent"),
        *("uncharged", "wanted"),
    )

    def __init__(self, task: Task, place: int, search: Search) -> None:
        self.index, self.goal, self.place, self.search = task.index, task.goal, place, search
        self.queries = self.uncharged = self.outside = self.gradients = 0
        self.ask: Ask
        self.wanted = self.sent = 0  # of the asked points: how many the budget allows, how many were shown
        self.replies: list[Reply] = []

    def proceed(self, reply: Reply | None, budget: int) -> Ended | None:
        """Hand the search its reply and take its next question; how it ended if there is none."""
        try:
            self.ask = next(self.search) if reply is None else self.search.send(reply)
        except StopIteration:
            return "exhausted"
        size = self.ask.points.size
        if not size:
            raise InputError("the attack asks for no image at all: a question must have at least one point")
        self.wanted = min(size, budget - self.queries) if self.ask.charged else size
        self.sent = 0
        self.replies.clear()
        return None if self.wanted else "budget"

    def outcome(self, ended: Ended, predicted: int | None = None, point: Point | None = None) -> Outcome:
        return Outcome(
            self.index,
            ended == "success",
            self.queries,
            ended,
            self.uncharged,
            self.outside,
            self.gradients,
            predicted,
            point,
        )


class _Evaluated(NamedTuple):
    """What the model and the threat say of a batch's rows."""

    losses: NDArray[np.float64]
    wins: NDArray[np.bool_]
    predicted: NDArray[np.intp]
    outside: NDArray[np.bool_] | None  # None: none is
    gradients: NDArray[np.float32] | None  # None: none was asked for

    def reply(self, start: int, stop: int, *, gradient: bool) -> Reply:
        told = self.gradients[start:stop] if gradient and self.gradients is not None else None
        return Reply(self.losses[start:stop], told)


Told = TypeVar("Told")
_Part = tuple[_Flight, int, int]  # the points start .. stop of what a flight asks


class Engine:
    """Attacks images with one attack, one oracle and one threat. `run` yields each outcome as it comes."""

    def __init__(
        self,
        attack: Attack,
        oracle: Oracle,
        threat: Threat,
        *,
        budget: int,
        seed: int = 0,
        batch_size: int = 64,
        in_flight: int = 256,
    ) -> None:
        settings = (
            ("budget", budget, 1),
            ("batch_size", batch_size, 1),
            ("in_flight", in_flight, 1),
            ("seed", seed, 0),
        )
        for name, value, least in settings:
            if not isinstance(value, Integral) or value < least:
                raise InputError(f"{name} must be a whole number, at least {least}; got {value!r}")
        if attack.white_box and not isinstance(oracle, GradientOracle):
            raise ModelError(
                f"{type(attack).__name__} is a white-box attack and needs gradients, which this model does not tell: "
                "pass a torch module, or the name of a bundled network"
            )
        self.tally = Tally()
        self.threat = threat
        self._attack, self._oracle = attack, oracle
        self._budget, self._seed, self._batch_size, self._in_flight = budget, seed, batch_size, in_flight
        self.stopped = False

    def stop(self) -> None:
        """End after the batch in work; images still in flight are then yielded as interrupted."""
        self.stopped = True

    def run(self, tasks: Iterable[Task], on_step: Callable[[Tally], None] | None = None) -> Iterator[Outcome]:
        """Attack the tasks, taking each when there is room for it; `on_step` is called after each model call."""
        waiting = iter(tasks)
        first = list(islice(waiting, self._in_flight))
        if not first:
            return
        canvas = Canvas(self._scene(first[0]).shape, len(first), self.threat, self._oracle)
        free = list(range(len(first)))
        waiting = chain(first, waiting)
        del first
        ready: deque[_Flight] = deque()  # flights with points to show
        while not self.stopped:
            while free and (task := next(waiting, None)) is not None:
                flight = self._start(task, free.pop(), canvas)
                if ended := flight.proceed(None, self._budget):
                    free.append(flight.place)
                    yield self._land(flight.outcome(ended))
                else:
                    ready.append(flight)
            if not ready:
                return
            parts = self._take(ready)
            for flight, outcome in self._show(canvas, parts):
                if outcome is None:
                    ready.append(flight)
                else:
                    free.append(flight.place)
                    yield self._land(outcome)
            if on_step is not None:
                on_step(self.tally)
        for flight in ready:
            yield flight.outcome("interrupted")

    def _start(self, task: Task, place: int, canvas: Canvas) -> _Flight:
        canvas.place(place, task.image)
        rng = np.random.default_rng([self._seed, task.index])
        return _Flight(task, place, self._attack.search(self._scene(task), rng))

    def _scene(self, task: Task) -> Scene:
        return Scene(task.index, task.image, self.threat, self._budget)

    def _take(self, ready: deque[_Flight]) -> list[_Part]:
        """The points for the next batch, first come, first served."""
        parts: list[_Part] = []
        room = self._batch_size
        while ready and room:
            flight = ready.popleft()
            start = flight.sent
            flight.sent = stop = min(flight.wanted, start + room)
            room -= stop - start
            parts.append((flight, start, stop))
        return parts

    def _show(self, canvas: Canvas, parts: list[_Part]) -> Iterator[tuple[_Flight, Outcome | None]]:
        """Show the parts to the model. Each flight with its outcome, or with None where it has more to ask."""
        evaluated = self._evaluate(canvas, parts)
        hits = deque(np.flatnonzero(evaluated.wins).tolist())
        row = 0
        for flight, start, stop in parts:
            end = row + stop - start
            first = None
            while hits and hits[0] < end:
                hit = hits.popleft()
                if first is None and evaluated.losses[hit] >= flight.ask.eligible_from:
                    first = hit
            if first is not None:
                self._count(flight, evaluated, row, first + 1)
                point = flight.ask.points.point(start + first - row)
                yield flight, flight.outcome("success", int(evaluated.predicted[first]), point)
            else:
                self._count(flight, evaluated, row, end)
                yield flight, self._answer(flight, evaluated.reply(row, end, gradient=flight.ask.gradient))
            row = end

    def _answer(self, flight: _Flight, reply: Reply) -> Outcome | None:
        flight.replies.append(reply)
        if flight.sent < flight.wanted:
            return None
        if flight.wanted < flight.ask.points.size:
            return flight.outcome("budget")
        ended = flight.proceed(_joined(flight.replies), self._budget)
        return flight.outcome(ended) if ended else None

    def _evaluate(self, canvas: Canvas, parts: list[_Part]) -> _Evaluated:
        goals = np.array([flight.goal for flight, start, stop in parts for _ in range(start, stop)])
        rows = len(goals)
        shown = self._batch_size if self._oracle.fixed_batch else rows
        drawing = [(flight.place, flight.ask.points, start, stop) for flight, start, stop in parts]
        batch, outside = canvas.draw(drawing, shown)
        gradients = None
        if self._attack.white_box and any(flight.ask.gradient for flight, _, _ in parts):
            scores, gradients = self._pull_back(batch, goals)
        else:
            scores = scores_of(self._oracle, batch)[:rows]
        with np.errstate(invalid="ignore"):  # said in a sentence below
            losses, wins, predicted = self.threat.judge(scores, goals)
        if np.isnan(losses).any():
            indices = [flight.index for flight, start, stop in parts for _ in range(start, stop)]
            bad = indices[int(np.isnan(losses).argmax())]
            raise ModelError(
                f"the model returned infinite or NaN scores for a point near image {bad}; "
                "a classifier must return numbers"
            )
        if outside is not None:
            outside = outside[:rows]
            wins &= ~outside
        self.tally.rows += rows
        self.tally.padding += shown - rows
        self.tally.calls += 1
        return _Evaluated(losses, wins, predicted, outside, gradients)

    def _pull_back(self, batch: Any, goals: NDArray[np.intp]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Scores and gradients of the rows that have a goal; those that fill the batch have none."""
        rows = len(goals)

        def slope(scores: NDArray[Any]) -> NDArray[np.float64]:
            of_all = np.zeros(scores.shape)
            of_all[:rows] = self.threat.slope(scores[:rows], goals)
            return of_all

        oracle = self._oracle
        assert isinstance(oracle, GradientOracle), "else it was refused in the beginning"
        scores, gradients = _told(lambda: oracle.pull_back(batch, slope), batch)
        return _checked_scores(scores, len(batch))[:rows], gradients[:rows]

    def _count(self, flight: _Flight, evaluated: _Evaluated, start: int, stop: int) -> None:
        """Count the rows that a flight is told of."""
        if flight.ask.charged:
            flight.queries += stop - start
            self.tally.queries += stop - start
        else:
            flight.uncharged += stop - start
        if evaluated.outside is not None:
            flight.outside += int(np.count_nonzero(evaluated.outside[start:stop]))
        if flight.ask.gradient and evaluated.gradients is not None:
            flight.gradients += stop - start

    def _land(self, outcome: Outcome) -> Outcome:
        self.tally.ended += 1
        self.tally.successes += outcome.success
        return outcome


def _joined(replies: list[Reply]) -> Reply:
    """The replies to the parts of one question as the reply to all of it."""
    if len(replies) == 1:
        return replies[0]
    gradients = [reply.gradient for reply in replies if reply.gradient is not None]
    return Reply(np.concatenate([reply.loss for reply in replies]), np.concatenate(gradients) if gradients else None)


def scores_of(oracle: Oracle, batch: Any) -> NDArray[Any]:
    """The oracle's scores, if it answers and they have the shape of scores."""
    return _checked_scores(_told(lambda: oracle(batch), batch), len(batch))


def _told(ask: Callable[[], Told], batch: Any) -> Told:
    """What the model says; whatever it raises is the model's failure."""
    try:
        return ask()
    except ParsimonError:
        raise
    except Exception as error:
        reason = first_line(error)
        raise ModelError(f"the model failed on images of shape {tuple(batch.shape)}: {reason}") from error


def _checked_scores(answer: Any, rows: int) -> NDArray[Any]:
    scores = np.asarray(answer)
    if scores.ndim != 2 or len(scores) != rows or scores.shape[1] < 2:
        raise ModelError(
            f"the model must return scores of shape (images, classes), here ({rows}, at least 2); got {scores.shape}"
        )
    if scores.dtype.kind not in "fiu":
        raise ModelError(f"the model must return scores that are real numbers; got an array of {scores.dtype}")
    return scores

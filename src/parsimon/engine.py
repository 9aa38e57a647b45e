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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.canvas import Canvas
from parsimon.errors import InputError, ModelError, ParsimonError, first_line
from parsimon.protocol import Ask, Attack, Ended, Oracle, Outcome, Point, Reply, Scene, Search, Task
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

    __slots__ = ("ask", "goal", "index", "place", "queries", "replies", "search", "sent", "uncharged", "wanted")

    def __init__(self, task: Task, place: int, search: Search) -> None:
        self.index, self.goal, self.place, self.search = task.index, task.goal, place, search
        self.queries = self.uncharged = 0
        self.ask: Ask
        self.wanted = self.sent = 0  # of the asked points: how many the budget allows, how many were shown
        self.replies: list[NDArray[np.float64]] = []

    def proceed(self, reply: Reply | None, budget: int) -> Ended | None:
        """Hand the search its reply and take its next question; how it ended if there is none."""
        try:
            self.ask = next(self.search) if reply is None else self.search.send(reply)
        except StopIteration:
            return "exhausted"
        size = self.ask.points.size
        self.wanted = min(size, budget - self.queries) if self.ask.charged else size
        self.sent = 0
        self.replies.clear()
        return None if self.wanted else "budget"

    def outcome(self, ended: Ended, predicted: int | None = None, point: Point | None = None) -> Outcome:
        return Outcome(self.index, ended == "success", self.queries, ended, self.uncharged, predicted, point)


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
        self.tally = Tally()
        self._attack, self._oracle, self._threat = attack, oracle, threat
        self._budget, self._seed, self._batch_size, self._in_flight = budget, seed, batch_size, in_flight
        self._stopping = False

    def stop(self) -> None:
        """End after the batch in work; images still in flight are then yielded as interrupted."""
        self._stopping = True

    def run(self, tasks: Iterable[Task], on_step: Callable[[Tally], None] | None = None) -> Iterator[Outcome]:
        """Attack the tasks, taking each when there is room for it; `on_step` is called after each model call."""
        waiting = iter(tasks)
        first = list(islice(waiting, self._in_flight))
        if not first:
            return
        canvas = Canvas(self._scene(first[0]).shape, len(first), self._threat, self._oracle)
        free = list(range(len(first)))
        waiting = chain(first, waiting)
        del first
        ready: deque[_Flight] = deque()  # flights with points to show
        while not self._stopping:
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
        return Scene(task.index, task.image, self._threat, self._budget)

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
        losses, wins, predicted = self._evaluate(canvas, parts)
        hits = deque(np.flatnonzero(wins).tolist())
        row = 0
        for flight, start, stop in parts:
            end = row + stop - start
            first = None
            while hits and hits[0] < end:
                hit = hits.popleft()
                if first is None and losses[hit] >= flight.ask.eligible_from:
                    first = hit
            if first is not None:
                self._count(flight, first - row + 1)
                point = flight.ask.points.point(start + first - row)
                yield flight, flight.outcome("success", int(predicted[first]), point)
            else:
                self._count(flight, end - row)
                yield flight, self._answer(flight, losses[row:end])
            row = end

    def _answer(self, flight: _Flight, losses: NDArray[np.float64]) -> Outcome | None:
        flight.replies.append(losses)
        if flight.sent < flight.wanted:
            return None
        if flight.wanted < flight.ask.points.size:
            return flight.outcome("budget")
        reply = Reply(losses if len(flight.replies) == 1 else np.concatenate(flight.replies))
        ended = flight.proceed(reply, self._budget)
        return flight.outcome(ended) if ended else None

    def _evaluate(
        self, canvas: Canvas, parts: list[_Part]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.intp]]:
        goals = np.array([flight.goal for flight, start, stop in parts for _ in range(start, stop)])
        rows = len(goals)
        shown = self._batch_size if self._oracle.fixed_batch else rows
        batch = canvas.draw([(flight.place, flight.ask.points, start, stop) for flight, start, stop in parts], shown)
        scores = scores_of(self._oracle, batch)[:rows]
        with np.errstate(invalid="ignore"):  # said in a sentence below
            losses, wins, predicted = self._threat.judge(scores, goals)
        if np.isnan(losses).any():
            indices = [flight.index for flight, start, stop in parts for _ in range(start, stop)]
            bad = indices[int(np.isnan(losses).argmax())]
            raise ModelError(
                f"the model returned infinite or NaN scores for a point near image {bad}; "
                "a classifier must return numbers"
            )
        self.tally.rows += rows
        self.tally.padding += shown - rows
        self.tally.calls += 1
        return losses, wins, predicted

    def _count(self, flight: _Flight, queries: int) -> None:
        if flight.ask.charged:
            flight.queries += queries
            self.tally.queries += queries
        else:
            flight.uncharged += queries

    def _land(self, outcome: Outcome) -> Outcome:
        self.tally.ended += 1
        self.tally.successes += outcome.success
        return outcome


def scores_of(oracle: Oracle, batch: Any) -> NDArray[Any]:
    """The oracle's scores, if it answers and they have the shape of scores."""
    try:
        scores = np.asarray(oracle(batch))
    except ParsimonError:
        raise
    except Exception as error:
        reason = first_line(error)
        raise ModelError(f"the model failed on images of shape {tuple(batch.shape)}: {reason}") from error
    if scores.ndim != 2 or len(scores) != len(batch) or scores.shape[1] < 2:
        raise ModelError(
            f"the model must return scores of shape (images, classes), here ({len(batch)}, at least 2); "
            f"got {scores.shape}"
        )
    if scores.dtype.kind not in "fiu":
        raise ModelError(f"the model must return scores that are real numbers; got an array of {scores.dtype}")
    return scores

"""The one loop: it holds many searches at once, fills model batches with what they ask, counts, stops, answers.

A search's fate depends on its own replies alone, so what is attacked beside an image, the size of the batch and the
order in which batches are filled change nothing in its result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
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
    RemoteModel,
    Reply,
    Scene,
    Search,
    Task,
    Told,
    Traffic,
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
    traffic: Traffic | None = None  # of a model behind a network

    @classmethod
    def of(cls, outcomes: Collection[Outcome], traffic: Traffic | None = None) -> Tally:
        """Where a run stands that has come to these."""
        queries, successes = (sum(getattr(each, what) for each in outcomes) for what in ("queries", "success"))
        return cls(queries, ended=len(outcomes), successes=successes, traffic=traffic)

    def __add__(self, other: Tally) -> Tally:
        pairs = [(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)]
        return Tally(*(its if mine is None else mine if its is None else mine + its for mine, its in pairs))

    @property
    def fill(self) -> float:
        """The part of the shown rows that a search asked for."""
        return self.rows / max(1, self.rows + self.padding)


class Step(NamedTuple):
    """What one model call has brought."""

    tally: Tally
    told: list[Told]  # to the searches that go on; what ended was yielded before


class _Flight:
    """One image in work."""

    __slots__ = (
        *("ask", "goal", "gradients", "index", "outside", "place", "queries", "search", "sent", "told"),
        *("uncharged", "wanted"),
    )

    def __init__(self, task: Task, place: int, search: Search) -> None:
        self.index, self.goal, self.place, self.search = task.index, task.goal, place, search
        self.queries = self.uncharged = self.outside = self.gradients = 0
        self.ask: Ask
        self.wanted = self.sent = 0  # of the asked points: how many the budget allows, how many were shown
        self.told: list[Told] = []  # of those points

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
        self.told.clear()
        return None if self.wanted else "budget"

    def outcome(
        self,
        ended: Ended,
        predicted: int | None = None,
        point: Point | None = None,
        confidence: float | None = None,
    ) -> Outcome:
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
            confidence,
        )


class _Evaluated(NamedTuple):
    """What the model and the threat say of a batch's rows."""

    scores: NDArray[Any]
    losses: NDArray[np.float64]
    wins: NDArray[np.bool_]
    predicted: NDArray[np.intp]
    outside: NDArray[np.bool_] | None  # None: none is
    gradients: NDArray[np.float32] | None  # None: none was asked for

    def told(self, flight: _Flight, start: int, stop: int) -> Told:
        """What a flight is told of its rows."""
        gradient = self.gradients[start:stop] if flight.ask.gradient and self.gradients is not None else None
        outside = 0 if self.outside is None else int(np.count_nonzero(self.outside[start:stop]))
        return Told(flight.index, self.losses[start:stop], gradient, outside)


Answer = TypeVar("Answer")
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
                "pass a torch module, or an ONNX file by its path or its name in the zoo"
            )
        self.tally = Tally()
        self.threat = threat
        self._attack, self._oracle = attack, oracle
        self._remote = oracle if isinstance(oracle, RemoteModel) else None
        self._budget, self._seed, self._batch_size, self._in_flight = budget, seed, batch_size, in_flight
        self.stopped = False

    def stop(self) -> None:
        """End after the batch in work; images still in flight are then yielded as interrupted."""
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
        if not first:
            return
        canvas = Canvas(self._scene(first[0]).shape, len(places), self.threat, self._oracle)
        free = list(range(len(places)))
        waiting = chain(first, waiting)
        del places, first
        ready: deque[_Flight] = deque()  # flights with points to show
        while not self.stopped:
            while free and (task := next(waiting, None)) is not None:
                flight = self._start(task, free.pop(), canvas)
                ended = flight.proceed(None, self._budget)
                outcome = flight.outcome(ended) if ended else self._retell(flight, task.told)
                if outcome is None:
                    ready.append(flight)
                else:
                    free.append(flight.place)
                    yield self._land(outcome)
            if not ready:
                return
            parts = self._take(ready)
            step = Step(self.tally, [])
            for flight, told, outcome in self._show(canvas, parts):
                if outcome is None:
                    ready.append(flight)
                    step.told.append(told)
                else:
                    free.append(flight.place)
                    yield self._land(outcome)
            yield step
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

    def _show(self, canvas: Canvas, parts: list[_Part]) -> Iterator[tuple[_Flight, Told, Outcome | None]]:
        """Show the parts to the model.

        Each flight with what it is told, and with its outcome, or None where it has more to ask.
        """
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
            stop_row = end if first is None else first + 1
            told = evaluated.told(flight, row, stop_row)
            self._count(flight, told)
            if first is None:
                yield flight, told, self._answer(flight, told)
            else:
                point = flight.ask.points.point(start + first - row)
                (confidence,) = self.threat.confidence(evaluated.scores[first : first + 1])
                yield flight, told, flight.outcome("success", int(evaluated.predicted[first]), point, float(confidence))
            row = end

    def _retell(self, flight: _Flight, told: Told | None) -> Outcome | None:
        """Tell a search what it was told before an interruption."""
        if told is None:
            return None
        outcome = None
        loss, gradient = told.loss, told.gradient
        flight.outside = told.outside
        while outcome is None and len(loss):
            flight.sent = points = min(flight.wanted, len(loss))
            of_these = None
            if flight.ask.gradient and gradient is not None:
                of_these, gradient = gradient[:points], gradient[points:]
            part = Told(flight.index, loss[:points], of_these, 0)
            loss = loss[points:]
            self._count(flight, part)
            outcome = self._answer(flight, part)
        return outcome

    def _answer(self, flight: _Flight, told: Told) -> Outcome | None:
        flight.told.append(told)
        if flight.sent < flight.wanted:
            return None
        if flight.wanted < flight.ask.points.size:
            return flight.outcome("budget")
        ended = flight.proceed(_joined(flight.told), self._budget)
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
            with self._counting_traffic():
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
        return _Evaluated(scores, losses, wins, predicted, outside, gradients)

    @contextmanager
    def _counting_traffic(self) -> Iterator[None]:
        """Count what goes to a model behind a network, and if no answer comes, too."""
        if self._remote is None:
            yield
            return
        before = self._remote.traffic
        try:
            yield
        finally:
            self.tally.traffic = (self.tally.traffic or Traffic()) + (self._remote.traffic - before)

    def _pull_back(self, batch: Any, goals: NDArray[np.intp]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Scores and gradients of the rows that have a goal; those that fill the batch have none."""
        rows = len(goals)

        def slope(scores: NDArray[Any]) -> NDArray[np.float64]:
            of_all = np.zeros(scores.shape)
            of_all[:rows] = self.threat.slope(scores[:rows], goals)
            return of_all

        oracle = self._oracle
        assert isinstance(oracle, GradientOracle), "else it was refused in the beginning"
        scores, gradients = _answered(lambda: oracle.pull_back(batch, slope), batch)
        return _checked_scores(scores, len(batch))[:rows], gradients[:rows]

    def _count(self, flight: _Flight, told: Told) -> None:
        """Count the points that a search is told of."""
        points = len(told.loss)
        if flight.ask.charged:
            flight.queries += points
            self.tally.queries += points
        else:
            flight.uncharged += points
        flight.outside += told.outside
        flight.gradients += 0 if told.gradient is None else points

    def _land(self, outcome: Outcome) -> Outcome:
        self.tally.ended += 1
        self.tally.successes += outcome.success
        return outcome


def _joined(parts: list[Told]) -> Reply:
    """What was told of the parts of a question as the reply to all of it."""
    if len(parts) == 1:
        return Reply(parts[0].loss, parts[0].gradient)
    gradients = [part.gradient for part in parts if part.gradient is not None]
    return Reply(np.concatenate([part.loss for part in parts]), np.concatenate(gradients) if gradients else None)


def scores_of(oracle: Oracle, batch: Any) -> NDArray[Any]:
    """The oracle's scores, if it answers and they have the shape of scores."""
    return _checked_scores(_answered(lambda: oracle(batch), batch), len(batch))


def _answered(ask: Callable[[], Answer], batch: Any) -> Answer:
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

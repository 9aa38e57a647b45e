"""The images in work: what their searches ask is drawn in batches, and what the model says of a batch is told to them.

This is the half of the engine that counts. Nothing here calls the model, so that all of it can be done beside a call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import Part, RenderedBatch
from parsimon.core.threat import Threat
from parsimon.core.types import Ask, Ended, Image, JournalEntry, Outcome, Point, Reply, Search, Task
from parsimon.errors import InputError, ModelError


class AnyCanvas(Protocol):
    """What points are drawn on: a place for each image in flight, and the batches made of them."""

    @property
    def lends(self) -> bool:
        """Whether a full batch with one point of each of its searches need not be copied."""

    def place(self, place: int, image: Image) -> None:
        """Put another image in a place."""

    def draw(self, parts: Sequence[Part], rows: int) -> RenderedBatch:
        """A batch of `rows` images: points and padding. Meanwhile the model may be looking at the one before."""


class ActiveImage:
    """One image in work."""

    __slots__ = (
        *("ask", "goal", "gradients", "index", "out_of_range", "outside", "place", "queries", "search", "sent"),
        *("told", "uncharged", "wanted"),
    )

    def __init__(self, task: Task, place: int, search: Search) -> None:
        self.index, self.goal, self.place, self.search = task.index, task.goal, place, search
        self.queries = self.uncharged = self.outside = self.out_of_range = self.gradients = 0
        self.ask: Ask
        self.wanted = self.sent = 0  # of the asked points: how many the budget allows, how many were shown
        self.told: list[JournalEntry] = []  # of those points, while more of them are to be shown

    def proceed(self, reply: Reply | None, budget: int) -> Ended | None:
        """Hand the search its reply and take its next question; how it ended if there is none."""
        try:
            self.ask = ask = next(self.search) if reply is None else self.search.send(reply)
        except StopIteration:
            return "exhausted"
        size = ask.points.size
        if not size:
            raise InputError("the attack asks for no image at all: a question must have at least one point")
        self.wanted = min(size, budget - self.queries) if ask.charged else size
        self.sent = 0
        self.told.clear()
        return None if self.wanted else "budget"

    def count(self, told: JournalEntry) -> int:
        """Count the points that the search is told of; how many of them are charged."""
        points = len(told.loss)
        charged = points - told.uncharged
        self.outside += told.outside
        self.out_of_range += told.out_of_range
        self.gradients += 0 if told.gradient is None else points
        self.uncharged += told.uncharged
        self.queries += charged
        return charged

    def answer(self, told: JournalEntry, budget: int) -> Ended | None:
        """Tell the search of points that were shown, once all that the budget allows were; how it ended if it did."""
        self.told.append(told)
        if self.sent < self.wanted:
            return None
        if self.wanted < self.ask.points.size:
            return "budget"
        return self.proceed(_joined(self.told), budget)

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
            self.out_of_range,
        )


_Part = tuple[ActiveImage, int, int]  # the points start .. stop of what a flight asks


class Batch(NamedTuple):
    """Images to show to the model: those of the parts, and what keeps the batch's shape."""

    parts: list[_Part]
    drawn: RenderedBatch
    goals: NDArray[np.intp]  # of the parts' images


class BatchScores(NamedTuple):
    """What the model says of the images of a batch's parts."""

    batch: Batch
    scores: NDArray[Any]
    gradients: NDArray[np.float32] | None = None


class Turn(NamedTuple):
    """What has come of a turn."""

    ended: list[Outcome]
    told: list[JournalEntry]  # to searches that go on
    queries: int  # charged
    batch: Batch | None  # to show next
    free: int  # places for other images


class Scheduler:
    """All images in work, at most as many as there are places."""

    def __init__(
        self,
        canvas: AnyCanvas,
        search: Callable[[Task], Search],
        threat: Threat,
        *,
        places: int,
        budget: int,
        batch_size: int,
        fixed_batch: bool,
        enough: int,
    ) -> None:
        """`search` begins the attack on an image. With `fixed_batch`, every batch has the same shape.

        `enough`: points for which a batch is worth drawing while the model looks at another.
        """
        self._canvas, self._search, self._threat = canvas, search, threat
        self._budget, self._batch_size, self._fixed_batch, self._enough = budget, batch_size, fixed_batch, enough
        self._free = list(range(places))
        self._at: dict[int, ActiveImage] = {}  # by place
        self._ready: deque[ActiveImage] = deque()  # those with points to show
        self._ended: list[Outcome] = []  # in this turn, as are the following
        self._told: list[JournalEntry] = []
        self._queries = 0

    def turn(self, answered: BatchScores | None, arrivals: Iterable[Task], *, ahead: bool) -> Turn:
        """Tell what was answered, take in other images, draw the next batch; if `ahead`, only if there is enough."""
        self._ended, self._told, self._queries = [], [], 0
        if answered is not None:
            self._tell(answered)
        for task in arrivals:
            self._start(task)
        batch = self._draw() if self._ready and (not ahead or self._has_enough()) else None
        return Turn(self._ended, self._told, self._queries, batch, len(self._free))

    def interrupted(self) -> Iterator[Outcome]:
        """All that are in work, as far as they have come."""
        for flight in self._at.values():
            yield flight.outcome("interrupted")

    def _start(self, task: Task) -> None:
        place = self._free.pop()
        self._canvas.place(place, task.image)
        self._at[place] = flight = ActiveImage(task, place, self._search(task))
        ended = flight.proceed(None, self._budget)
        if ended is None and task.told is not None:
            ended = self._retell(flight, task.told)
        self._go_on(flight, ended)

    def _retell(self, flight: ActiveImage, told: JournalEntry) -> Ended | None:
        """Tell a search what it was told before an interruption."""
        ended = None
        loss, gradient = told.loss, told.gradient
        flight.outside, flight.out_of_range = told.outside, told.out_of_range
        while ended is None and len(loss):
            flight.sent = points = min(flight.wanted, len(loss))
            of_these = None
            if flight.ask.gradient and gradient is not None:
                of_these, gradient = gradient[:points], gradient[points:]
            part = JournalEntry(flight.index, loss[:points], of_these, 0, 0 if flight.ask.charged else points)
            loss = loss[points:]
            self._queries += flight.count(part)
            ended = flight.answer(part, self._budget)
        return ended

    @property
    def _at_once(self) -> int:
        """Points of one search in a batch. If it is one of each, the canvas may lend what it has drawn, uncopied."""
        return 1 if self._canvas.lends and len(self._ready) >= self._batch_size else self._batch_size

    def _has_enough(self) -> bool:
        missing, at_once = self._enough, self._at_once
        for flight in self._ready:
            missing -= min(at_once, flight.wanted - flight.sent)
            if missing <= 0:
                return True
        return False

    def _draw(self) -> Batch:
        """The next points, first come, first served."""
        parts: list[_Part] = []
        room, at_once = self._batch_size, self._at_once
        while self._ready and room:
            flight = self._ready.popleft()
            start = flight.sent
            flight.sent = stop = min(flight.wanted, start + min(at_once, room))
            room -= stop - start
            parts.append((flight, start, stop))
        goals = np.array([flight.goal for flight, start, stop in parts for _ in range(start, stop)])
        drawing = [(flight.place, flight.ask.points, start, stop) for flight, start, stop in parts]
        drawn = self._canvas.draw(drawing, self._batch_size if self._fixed_batch else len(goals))
        return Batch(parts, drawn, goals)

    def _tell(self, answered: BatchScores) -> None:
        """Tell each search of its points up to its first success."""
        batch, scores, gradients = answered
        losses, wins, predicted = self._judge(batch, scores)
        hits = deque(np.flatnonzero(wins).tolist())
        row = 0
        for flight, start, stop in batch.parts:
            end = row + stop - start
            first = None
            while hits and hits[0] < end:
                hit = hits.popleft()
                if first is None and losses[hit] >= flight.ask.eligible_from:
                    first = hit
            rows = slice(row, end if first is None else first + 1)
            gradient = gradients[rows] if gradients is not None and flight.ask.gradient else None
            uncharged = 0 if flight.ask.charged else rows.stop - row
            outside, out_of_range = (_count(marked, rows) for marked in batch.drawn[2:])
            told = JournalEntry(flight.index, losses[rows], gradient, outside, uncharged, out_of_range)
            self._queries += flight.count(told)
            if first is None:
                ended = flight.answer(told, self._budget)
                self._go_on(flight, ended)
                if ended is None:
                    self._told.append(told)
            else:
                point = flight.ask.points.point(start + first - row)
                (confidence,) = self._threat.confidence(scores[first : first + 1])
                self._land(flight, flight.outcome("success", int(predicted[first]), point, float(confidence)))
            row = end

    def _judge(
        self, batch: Batch, scores: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.intp]]:
        with np.errstate(invalid="ignore"):  # said in a sentence below
            losses, wins, predicted = self._threat.judge(scores, batch.goals)
        if np.isnan(losses).any():
            indices = [flight.index for flight, start, stop in batch.parts for _ in range(start, stop)]
            bad = indices[int(np.isnan(losses).argmax())]
            raise ModelError(
                f"the model returned infinite or NaN scores for a point near image {bad}; "
                "a classifier must return numbers"
            )
        if batch.drawn.outside is not None:
            wins &= ~batch.drawn.outside
        return losses, wins, predicted

    def _go_on(self, flight: ActiveImage, ended: Ended | None) -> None:
        if ended is None:
            self._ready.append(flight)
        else:
            self._land(flight, flight.outcome(ended))

    def _land(self, flight: ActiveImage, outcome: Outcome) -> None:
        del self._at[flight.place]
        self._free.append(flight.place)
        self._ended.append(outcome)


def _count(marked: NDArray[np.bool_] | None, rows: slice) -> int:
    return 0 if marked is None else int(np.count_nonzero(marked[rows]))


def _joined(parts: list[JournalEntry]) -> Reply:
    """What was told of the parts of a question as the reply to all of it."""
    if len(parts) == 1:
        return Reply(parts[0].loss, parts[0].gradient)
    gradients = [part.gradient for part in parts if part.gradient is not None]
    return Reply(np.concatenate([part.loss for part in parts]), np.concatenate(gradients) if gradients else None)

"""An image under attack: its search, its ask, and its counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import Part
from parsimon.core.model import History
from parsimon.core.threat import Threat
from parsimon.core.types import (
    Ask,
    Corners,
    Ended,
    Images,
    JournalEntry,
    Outcome,
    Point,
    Radii,
    Reply,
    Search,
    Task,
    join_replies,
    next_ask,
    radii_of,
)
from parsimon.errors import InputError

_NO_ASK = Ask(Images(np.empty((0, 0, 0, 0), np.float32)))


class ActiveImage:
    """An image under attack: its search, its slot on the canvas, and its counts."""

    __slots__ = (
        *("allowed", "ask", "entries", "first_loss", "goal", "gradients", "index", "moved", "out_of_range", "outside"),
        *("closest", "contenders", "draws", "history", "queries", "search", "sent", "slot", "uncharged", "whole"),
    )

    def __init__(
        self, task: Task, slot: int, search: Search, closest: Closest | None = None, history: Watched | None = None
    ) -> None:
        """`closest` keeps the closest adversarial point of a label-only attack, `history` what a detector has seen."""
        self.closest, self.history = closest, history
        self.draws: list[int | None] = []  # by fresh draw, the class if it errs
        self.index, self.goal, self.slot, self.search = task.index, task.goal, slot, search
        self.queries = self.uncharged = self.outside = self.out_of_range = self.gradients = 0
        self.contenders: NDArray[np.int32] | None = None  # classes whose margins the search receives
        self.first_loss: float | None = None
        self.moved = False  # whether a loss differed from the first
        self.ask = _NO_ASK
        self.whole = Part(slot, _NO_ASK.points, 0, 0)  # all points of the ask
        self.allowed = self.sent = 0  # points of the ask that the budget allows, and that were sent
        self.entries: list[JournalEntry] = []  # received for the ask so far, without the last

    def advance(self, reply: Reply | None, budget: int) -> Ended | None:
        """Send the search its reply and take its next ask. Return how the attack ended, if it did."""
        ask = next_ask(self.search, reply)
        if ask is None:
            return "exhausted"
        if ask is not self.ask:  # a search that changes its set in place repeats one ask
            self._take(ask)
        self.sent = 0
        self.allowed = size = self.whole.stop
        if ask.charged and size > budget - self.queries:
            self.allowed = budget - self.queries
        return None if self.allowed else "budget"

    def _take(self, ask: Ask) -> None:
        """Accept a new ask."""
        size = ask.points.size
        if not size:
            raise InputError("the attack asks for no image: an ask must have at least one point")
        if self.closest is not None and not (ask.charged and ask.eligible_from == -math.inf):
            raise InputError("the attack is label-only: all of its asks must be charged, and end at any success")
        self.ask, self.whole = ask, Part(self.slot, ask.points, 0, size)

    def send(self, room: int) -> Part:
        """Return the next points of the ask to evaluate, at most `room`."""
        start = self.sent
        self.sent = stop = min(self.allowed, start + room)
        return self.whole if stop - start == self.whole.stop else Part(self.slot, self.ask.points, start, stop)

    def count(self, entry: JournalEntry) -> int:
        """Count the points of an entry and return how many are charged."""
        points = len(entry.loss)
        charged = points - entry.uncharged
        if self.closest is not None:
            self.closest.update(entry, self.ask.points, self.sent - points, self.queries)
        elif not self.moved:
            self.first_loss = entry.loss[0] if self.first_loss is None else self.first_loss
            self.moved = bool((entry.loss != self.first_loss).any())
        self.outside += entry.outside
        self.out_of_range += entry.out_of_range
        self.gradients += 0 if entry.gradient is None else points
        self.uncharged += entry.uncharged
        self.queries += charged
        return charged

    def receive(self, entry: JournalEntry, budget: int) -> Ended | None:
        """Keep the losses of some points; advance the search once all are there. Return how it ended, if it did."""
        if self.sent < self.allowed:
            self.entries.append(entry)
            return None
        if self.allowed < self.whole.stop:
            return "budget"
        reply = _reply(entry)
        if self.entries:  # the ask was evaluated in several batches
            reply = join_replies([*map(_reply, self.entries), reply])
            self.entries.clear()
        return self.advance(reply, budget)

    @property
    def evaluated(self) -> int:
        """Number of points whose losses the search received."""
        return self.queries + self.uncharged

    def decide(self, draws: Iterable[int | None]) -> Outcome | None:
        """Take fresh draws of the point that was returned, each the class if it errs; return the outcome after all."""
        self.draws += draws
        if self.sent < self.allowed:
            return None
        errors = [each for each in self.draws if each is not None]
        success, point = 2 * len(errors) > len(self.draws), self.ask.points.point(0)
        ended = "success" if success else self.ask.verdict
        assert ended is not None, "only a verdict is decided"
        outcome = self.outcome(ended, Counter(errors).most_common(1)[0][0], point) if success else self.outcome(ended)
        return replace(outcome, draws=len(self.draws), errors=len(errors))

    def outcome(
        self, ended: Ended, predicted: int | None = None, point: Point | None = None, confidence: float | None = None
    ) -> Outcome:
        found = self._outcome(ended, predicted, point, confidence)
        if self.history is None:
            return found
        return replace(found, flagged=self.history.flagged, first_flag=self.history.first_flag)

    def _outcome(self, ended: Ended, predicted: int | None, point: Point | None, confidence: float | None) -> Outcome:
        label_only = self.closest is not None
        found = Outcome(
            self.index,
            success=ended == "success",
            queries=self.queries,
            ended=ended,
            uncharged=self.uncharged,
            outside=self.outside,
            gradients=self.gradients,
            predicted=predicted,
            point=point,
            confidence=confidence,
            out_of_range=self.out_of_range,
            flat=not label_only and ended != "success" and not self.moved and self.evaluated > 1,
        )
        return found if self.closest is None else self.closest.complete(found)


class Watched:
    """The charged queries on an image that a detector has seen, and how many of them it has flagged."""

    __slots__ = ("_history", "first_flag", "flagged", "queries")

    def __init__(self, history: History) -> None:
        self._history = history
        self.queries = self.flagged = 0
        self.first_flag: int | None = None

    def observe(self, images: NDArray[np.float32]) -> None:
        """Show further queries to the detector, in their order."""
        flags = np.flatnonzero(self._history.observe(images))
        if len(flags) and self.first_flag is None:
            self.first_flag = self.queries + int(flags[0]) + 1
        self.queries += len(images)
        self.flagged += len(flags)


class Closest:
    """The closest adversarial point of a label-only attack so far.

    With `until_budget`, an attack does not end at its success. Then this holds the success: its query, and the closest
    point inside the ball.
    """

    __slots__ = ("_loss", "_point", "_predicted", "_radii", "_success", "_threat")

    def __init__(self, threat: Threat) -> None:
        self._threat = threat
        self._radii: Radii = ()
        self._loss = -math.inf
        self._success: int | None = None  # number of the first query that succeeded
        self._point: Point | None = None
        self._predicted: int | None = None

    def update(self, entry: JournalEntry, points: Corners | Images, first: int, queries: int) -> None:
        """Note the losses of points `first` and following of an ask, asked after this many queries."""
        found = radii_of(entry.loss.tolist(), self._loss, queries)
        if not found:
            return
        self._radii += found
        self._loss = -found[-1][1]
        if not self._threat.until_budget or self._loss < -self._threat.eps:
            return
        if self._success is None:
            self._success = next(number for number, radius in found if radius <= self._threat.eps)
        self._point = points.point(first + found[-1][0] - queries - 1)
        self._predicted = entry.predicted

    def complete(self, outcome: Outcome) -> Outcome:
        """Return an outcome with the radii, and with the success that the attack did not end at."""
        outcome = replace(outcome, radii=self._radii)
        if self._success is None or outcome.ended == "interrupted":
            return outcome
        found = replace(outcome, success=True, predicted=self._predicted, point=self._point)
        return replace(found, queries=self._success, extra=outcome.queries - self._success)


def _reply(entry: JournalEntry) -> Reply:
    return Reply(entry.loss, entry.gradient, None if entry.margins is None else entry.margins.values)

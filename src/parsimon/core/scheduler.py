"""The active images: their asks become batches, and the scores of a batch become replies to their searches.

Only this module and `active_image` count what is charged and enforce the budget. The layer of random models,
`random_search`, keeps a count of its own, so that it asks for no more than is left. None of them calls the model, so
all of their work can run while the model computes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import to_device
from numpy.typing import NDArray

from parsimon.core.active_image import ActiveImage, Closest, Watched
from parsimon.core.canvas import Canvas, Part, RenderedBatch, render
from parsimon.core.draws import Purpose
from parsimon.core.large_canvas import LargeCanvas
from parsimon.core.model import Model
from parsimon.core.threat import Threat
from parsimon.core.types import (
    Ended,
    JournalEntry,
    Margins,
    Outcome,
    Search,
    Task,
)
from parsimon.errors import ModelError


class Batch(NamedTuple):
    """Points to evaluate in one model call."""

    active: list[ActiveImage]  # the image of each part
    parts: list[Part]
    rendered: RenderedBatch
    goals: NDArray[np.intp]  # per point
    draws: NDArray[np.int64] | None = None  # per point, for a random model: image, purpose and number, as in its key


class BatchScores(NamedTuple):
    """The scores of a batch, per point, and their gradients for a white-box attack."""

    batch: Batch
    scores: NDArray[Any]
    gradients: NDArray[np.float32] | None = None


class Judged(NamedTuple):
    """Losses, successes and predicted classes of a batch, per point."""

    losses: NDArray[np.float64]
    wins: NDArray[np.bool_]
    predicted: NDArray[np.intp]
    margins: NDArray[np.float32] | None  # of the contenders


class Turn(NamedTuple):
    """The result of one turn of the scheduler."""

    ended: list[Outcome]
    entries: list[JournalEntry]  # of the images that are still active
    queries: int  # charged
    batch: Batch | None  # to evaluate next
    free: int  # number of free slots


class Scheduler:
    """All active images, one per slot."""

    def __init__(
        self,
        canvas: Canvas | LargeCanvas,
        search: Callable[[Task], Search],
        threat: Threat,
        model: Model,
        *,
        slots: int,
        budget: int,
        batch_size: int,
        enough: int,
    ) -> None:
        """`search` begins the attack on an image; `enough` points make a batch while the model computes another."""
        self._random, self._detector = model.random, model.detector
        self._label_only = threat.loss == "label"
        self._canvas, self._search, self._threat = canvas, search, threat
        self._budget, self._batch_size, self._enough = budget, batch_size, enough
        self._free = list(range(slots))
        self._active: dict[int, ActiveImage] = {}  # by slot
        self._ready: deque[ActiveImage] = deque()  # those with points to send
        # Of the current turn:
        self._ended: list[Outcome] = []
        self._entries: list[JournalEntry] = []
        self._queries = 0

    def turn(self, scored: BatchScores | None, arrivals: Iterable[Task], *, ahead: bool) -> Turn:
        """Deliver scores, start arrivals and render the next batch; if `ahead`, only if there are enough points."""
        self._ended, self._entries, self._queries = [], [], 0
        if scored is not None:
            self._deliver(scored)
        for task in arrivals:
            self._start(task)
        batch = self._render() if self._ready and (not ahead or self._has_enough()) else None
        return Turn(self._ended, self._entries, self._queries, batch, len(self._free))

    def interrupted(self) -> Iterator[Outcome]:
        """Yield the outcomes of all active images as they are now."""
        for active in self._active.values():
            yield active.outcome("interrupted")

    def _start(self, task: Task) -> None:
        slot = self._free.pop()
        self._canvas.load(slot, task.image)
        closest = Closest(self._threat) if self._label_only else None
        history = None if self._detector is None else Watched(self._detector.history())
        self._active[slot] = active = ActiveImage(task, slot, self._search(task), closest, history)
        ended = active.advance(None, self._budget)
        if ended is None and task.journal is not None:
            ended = self._replay(active, task)
        if ended is None:
            self._ready.append(active)
        else:
            self._finish(active, active.outcome(ended))

    def _replay(self, active: ActiveImage, task: Task) -> Ended | None:
        """Send a search the losses that it received before an interruption."""
        ended, journal = None, task.journal
        assert journal is not None, "only an image with a journal is replayed"
        loss, gradient, margins = journal.loss, journal.gradient, journal.margins
        active.contenders = None if margins is None else margins.contenders
        active.outside, active.out_of_range = journal.outside, journal.out_of_range
        while ended is None and len(loss):
            active.sent = points = min(active.allowed, len(loss))
            of_these = None
            if active.ask.gradient and gradient is not None:
                of_these, gradient = gradient[:points], gradient[points:]
            uncharged = 0 if active.ask.charged else points
            entry = JournalEntry(active.index, loss[:points], of_these, 0, uncharged, predicted=journal.predicted)
            if active.ask.margins and margins is not None:
                entry = entry._replace(margins=margins._replace(values=margins.values[:points]))
                margins = margins._replace(values=margins.values[points:])
            loss = loss[points:]
            if active.history is not None and active.ask.charged:
                shown = (active.ask.points.point(number) for number in range(points))
                active.history.observe(np.stack([render(task.image, self._threat, point) for point in shown]))
            self._queries += active.count(entry)
            ended = active.receive(entry, self._budget)
        return ended

    def _has_enough(self) -> bool:
        missing = self._enough
        for active in self._ready:
            missing -= active.allowed - active.sent
            if missing <= 0:
                return True
        return False

    def _render(self) -> Batch:
        """Render the next points, first come, first served."""
        images: list[ActiveImage] = []
        parts: list[Part] = []
        room = self._batch_size
        while self._ready and room:
            active = self._ready.popleft()
            part = active.send(room)
            room -= part.stop - part.start
            images.append(active)
            parts.append(part)
        goals = np.repeat([active.goal for active in images], [part.stop - part.start for part in parts])
        draws = _draws(images, parts) if self._random else None
        return Batch(images, parts, self._canvas.draw(parts), goals, draws)

    def _deliver(self, scored: BatchScores) -> None:
        """Send each search the losses of its points, up to its first success."""
        batch, judged = scored.batch, self._judge(scored)
        hits = deque() if self._threat.until_budget else deque(np.flatnonzero(judged.wins).tolist())
        row = 0
        for active, part in zip(batch.active, batch.parts, strict=True):
            end = row + part.stop - part.start
            first = _first_success(active, hits, end, judged.losses)
            if active.ask.verdict is not None:
                self._decide(active, judged.wins[row:end], judged.predicted[row:end])
            elif first is None:
                self._reply(active, self._charge(active, scored, judged, slice(row, end)))
            else:
                self._charge(active, scored, judged, slice(row, first + 1))
                found = self._threat.confidence(scored.scores[first : first + 1])
                confidence = None if found is None else float(found[0])
                point = active.ask.points.point(part.start + first - row)
                self._finish(active, active.outcome("success", int(judged.predicted[first]), point, confidence))
            row = end

    def _charge(self, active: ActiveImage, scored: BatchScores, judged: Judged, rows: slice) -> JournalEntry:
        """Count the queries of a search in a batch, and return their entry in the journal."""
        ask, rendered = active.ask, scored.batch.rendered
        margins = None
        if judged.margins is not None and ask.margins and active.contenders is not None:
            margins = Margins(active.contenders, judged.margins[rows])
        uncharged = 0 if ask.charged else rows.stop - rows.start
        entry = JournalEntry(active.index, judged.losses[rows], None, 0, uncharged, 0, None, margins)
        if self._label_only or scored.gradients is not None or rendered.outside is not None:
            entry = self._complete(entry, scored, rows, judged.predicted, gradient=ask.gradient)
        self._queries += active.count(entry)
        if active.history is not None and ask.charged:
            active.history.observe(_as_numpy(rendered.images[rows]))
        return entry

    def _reply(self, active: ActiveImage, entry: JournalEntry) -> None:
        """Send a search its losses if no point is a success."""
        ended = active.receive(entry, self._budget)
        if ended is None:
            self._ready.append(active)
            self._entries.append(entry)
        else:
            self._finish(active, active.outcome(ended))

    def _decide(self, active: ActiveImage, wins: NDArray[np.bool_], predicted: NDArray[np.intp]) -> None:
        """Deliver fresh draws of the point that an attack returns. They are not in the journal."""
        errors = zip(wins.tolist(), predicted.tolist(), strict=True)
        outcome = active.decide(number if win else None for win, number in errors)
        if outcome is None:
            self._ready.append(active)
        else:
            self._finish(active, outcome)

    def _margins(self, batch: Batch, scores: NDArray[Any]) -> NDArray[np.float32] | None:
        """Return the margins of the contenders per point, if a search wants them and the loss has any."""
        if not self._threat.has_margins or not any(active.ask.margins for active in batch.active):
            return None
        row = 0
        contenders = []
        for active, part in zip(batch.active, batch.parts, strict=True):
            own = active.contenders
            if own is None:
                own = self._threat.contenders(scores[row], active.goal)
                active.contenders = own if active.ask.margins else None  # the same in any batch and after a resume
            row += part.stop - part.start
            contenders.append(own)
        sizes = [part.stop - part.start for part in batch.parts]
        return self._threat.margins(scores, batch.goals, np.array(contenders).repeat(sizes, axis=0))

    def _complete(
        self, entry: JournalEntry, scored: BatchScores, rows: slice, predicted: NDArray[np.intp], *, gradient: bool
    ) -> JournalEntry:
        """Return an entry with what only some attacks need, or only some points have."""
        rendered, gradients = scored.batch.rendered, scored.gradients
        return entry._replace(
            gradient=gradients[rows] if gradients is not None and gradient else None,
            outside=_count(rendered.outside, rows),
            out_of_range=_count(rendered.out_of_range, rows),
            predicted=int(predicted[rows][entry.loss.argmax()]) if self._label_only else None,
        )

    def _judge(self, scored: BatchScores) -> Judged:
        batch, scores, _ = scored
        with np.errstate(invalid="ignore"):  # reported below
            losses, wins, predicted = self._threat.judge(scores, batch.goals)
        # A class is predicted even from NaN, so the loss of a label-only attack does not show it.
        bad = ~np.isfinite(scores).all(axis=1) if self._label_only else np.isnan(losses)
        if bad.any():
            row = int(bad.argmax())
            ends = np.cumsum([part.stop - part.start for part in batch.parts])
            image = batch.active[int(np.searchsorted(ends, row, side="right"))].index
            raise ModelError(
                f"the model returned infinite or NaN scores for a point near image {image}; "
                "a classifier must return numbers"
            )
        if batch.rendered.distance is not None:
            losses -= batch.rendered.distance
        if batch.rendered.outside is not None:
            wins &= ~batch.rendered.outside
        return Judged(losses, wins, predicted, self._margins(batch, scores))

    def _finish(self, active: ActiveImage, outcome: Outcome) -> None:
        del self._active[active.slot]
        self._free.append(active.slot)
        self._ended.append(outcome)


def _first_success(active: ActiveImage, hits: deque[int], end: int, losses: NDArray[np.float64]) -> int | None:
    """Remove the hits before `end`, and return the first of them that ends the search."""
    first = None
    while hits and hits[0] < end:
        hit = hits.popleft()
        if first is None and active.ask.ends_at(losses[hit]):
            first = hit
    return first


def _draws(images: list[ActiveImage], parts: list[Part]) -> NDArray[np.int64]:
    """Return image, purpose and number of each draw of a batch; they do not depend on the batch."""
    draws: list[tuple[int, int, int]] = []
    for active, part in zip(images, parts, strict=True):
        purpose = Purpose.QUERY if active.ask.verdict is None else Purpose.FRESH
        first = active.evaluated if purpose == Purpose.QUERY else part.start
        draws += [(active.index, purpose, first + number) for number in range(part.stop - part.start)]
    return np.array(draws, np.int64)


def _as_numpy(images: Any) -> NDArray[np.float32]:
    return np.asarray(to_device(images, "cpu"))


def _count(marked: NDArray[np.bool_] | None, rows: slice) -> int:
    return 0 if marked is None else int(np.count_nonzero(marked[rows]))

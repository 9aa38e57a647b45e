"""Attack a random model: run any search on repeated draws instead of exact losses.

A *draw* is one query to a random model, and a *mean* is the average loss of `repeats` draws of a point. The search asks
as if the model were exact, and this module answers it:

1. Take a mean of every point.
2. A search that climbs keeps a change only if it raises the loss. Compare the changed point with its *reference*, the
   point that was changed. If its first mean is not above the level of the reference, the loss has not risen.
3. Otherwise take further means of both points, in pairs. Stop at evidence that the changed point has the higher mean
   more often than not. Without evidence, the loss has not risen.
4. If most draws of the best point err, draw it until there is evidence that it errs more often than not. Then the
   search ends. All of these tests on one image share one error rate; a change has the error rate to itself.
5. When the search or its budget ends, return the best point. Fresh draws of it, which are not charged, decide.

The level of a reference averages its means. Losses are reported relative to it, and it becomes more and more precise.

With an error rate of 1 there are no tests, and every mean counts as an exact loss. Points that may end the search are
then taken one by one. It ends after the first that has the highest mean so far and errs in most of its draws. Only
queries up to there are charged. So with one draw per mean, it ends at the first draw that errs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import as_input, render_corner
from parsimon.core.evidence import events_missing, evidence, spent_error_rate
from parsimon.core.threat import Threat
from parsimon.core.types import (
    Ask,
    Attack,
    Corner,
    Corners,
    Ended,
    Image,
    ImageContext,
    Images,
    Reply,
    Search,
    join_replies,
    next_ask,
)
from parsimon.errors import InputError

_FRESH_MEANS = 5  # of a reference: as many as the evidence for a clear change needs
_ENOUGH_FRESH = 3  # to estimate its loss from these alone
_MOST_PAIRS = 20  # after which a change that is not clearly better is dropped
_MOST_CLAIM_DRAWS = 60
_MOST_SETS = 256  # references of sets; a search returns to the last ones
# A loss or margin beyond this counts as this, since infinite ones have no differences. Double precision still tells
# numbers of this size apart if they differ by 1e-6.
_MOST_LOSS = 1e9

Row = NDArray[np.float64]  # the loss of a point, and the margins of its contenders if the search wants them
Draws = NDArray[np.float64]  # (points, repeats, columns), the columns being those of a row


class _SpentError(Exception):
    """The budget does not suffice for the next draws."""


class _Reference:
    """A point that changes are compared with.

    Attributes:
        point: The point: one of a set as a corner, which takes little memory, and any other as an image.
        reported: The row that the search was sent for it.
        fresh: Its means, except those that made it a reference.
        errs: Whether most of its draws err.
    """

    def __init__(self, point: Image | Corner, reported: Row, draws: Draws, threat: Threat) -> None:
        self.point, self.reported, self._threat = point, reported, threat
        self.fresh: list[Row] = []
        self._errors = self._draws = 0
        self._count(draws)

    @property
    def errs(self) -> bool:
        return 2 * self._errors > self._draws

    @property
    def level(self) -> Row:
        """The best estimate of its row."""
        found: Row = np.mean(self.fresh, axis=0) if len(self.fresh) >= _ENOUGH_FRESH else self.reported
        return found

    def add(self, draws: Draws) -> None:
        """Add the draws of a fresh mean."""
        self.fresh.append(draws.mean(axis=0))
        self._count(draws)

    def _count(self, draws: Draws) -> None:
        errs = self._threat.errs(draws[..., 0])
        self._errors += int(errs.sum())
        self._draws += errs.size


class RandomSearch:
    """The attack on one image of a random model."""

    def __init__(self, attack: Attack, context: ImageContext, rng: np.random.Generator) -> None:
        assert context.threat.sampling is not None, "only a random model is sampled"
        self._search, self._climbs = attack.search(context, rng), attack.climbs
        self._context, self._sampling = context, context.threat.sampling
        self._tests = self._sampling.error_rate < 1
        self._left = context.budget
        self._claims = 0  # tests of whether a point errs
        self._best: _Reference | None = None
        self._references: dict[object, tuple[object, _Reference]] = {}

    def run(self) -> Search:
        """Run the search, and return its best point."""
        ended: Ended = "exhausted"
        try:
            yield from self._run()
        except _SpentError:
            ended = "budget"
        # Without any point, the clean image is returned.
        point = self._context.image if self._best is None else self._pixels(self._best)
        draws = np.broadcast_to(point, (self._sampling.draws, *point.shape))  # one copy in memory
        yield Ask(Images(draws), charged=False, eligible_from=math.inf, verdict=ended)

    def _run(self) -> Generator[Ask, Reply, None]:
        ask = next_ask(self._search, None)
        while ask is not None:
            in_order = ask.points.size > 1 and self._may_end_within(ask)
            reply = yield from (self._answer_in_order(ask) if in_order else self._answer(ask))
            if reply is None:
                return
            ask = next_ask(self._search, reply)

    def _may_end_within(self, ask: Ask) -> bool:
        """Return whether an ask may end before its last point: at an error without tests, or by the budget."""
        if not self._tests and ask.eligible_from < math.inf:
            return True
        return ask.charged and ask.points.size * self._sampling.repeats > self._left

    def _answer_in_order(self, ask: Ask) -> Generator[Ask, Reply, Reply | None]:
        """Answer an ask point by point, so that nothing after its end is queried."""
        replies = []
        for number in range(ask.points.size):
            reply = yield from self._answer(ask._replace(points=_single(ask.points, number)))
            if reply is None:
                return None
            replies.append(reply)
        return join_replies(replies)

    def _answer(self, ask: Ask) -> Generator[Ask, Reply, Reply | None]:
        """Return the reply to an ask of the search; None if the search ends at one of its points."""
        points = self._render(ask.points)
        draws, gradient = yield from self._draw_ask(ask, points)
        before = self._best
        if ask.eligible_from == math.inf:  # a probe, which is never adopted
            rows = draws.mean(axis=1)
        elif self._climbs and self._tests:
            rows = yield from self._compare_all(ask, points, draws)
        else:
            rows = draws.mean(axis=1)
            for one in zip(points, rows, draws, strict=True):
                self._note(_Reference(*one, self._context.threat), ask)
        best = self._best
        if best is not None and best is not before:
            ended = (yield from self._claim(best, ask)) if self._tests else best.errs
            if ended:
                return None
        margins = rows[:, 1:].astype(np.float32) if rows.shape[1] > 1 else None
        return Reply(rows[:, 0], gradient, margins)

    # --- draws --------------------------------------------------------------------------------------------------------

    def _render(self, points: Corners | Images) -> NDArray[np.float32]:
        """Return the points as images, so that they can be asked for in any order."""
        threat = self._context.threat
        if isinstance(points, Images):
            return as_input(points.pixels, threat)
        sets = [points.base.copy() for _ in range(points.size)]
        for members, flip in zip(sets, points.flips, strict=False):
            members[flip] ^= True
        return np.stack([render_corner(points.grid, members, *self._context.bounds) for members in sets])

    def _pixels(self, reference: _Reference) -> Image:
        point = reference.point
        return render_corner(point.grid, point.members, *self._context.bounds) if isinstance(point, Corner) else point

    def _draw_ask(
        self, ask: Ask, points: NDArray[np.float32]
    ) -> Generator[Ask, Reply, tuple[Draws, NDArray[np.float32] | None]]:
        """Draw the points of an ask of the search, with the gradient if it wants that."""
        repeats = self._sampling.repeats
        self._spend(len(points) * repeats if ask.charged else 0)
        repeated = Images(np.repeat(points, repeats, axis=0))
        reply = yield ask._replace(points=repeated, eligible_from=math.inf)
        gradient = reply.gradient
        if gradient is not None:
            gradient = gradient.reshape(len(points), repeats, *gradient.shape[1:]).mean(axis=1)
        return _rows(reply).reshape(len(points), repeats, -1), gradient

    def _draw(self, points: Sequence[Image], repeats: int, *, margins: bool) -> Generator[Ask, Reply, Draws]:
        """Draw some points."""
        self._spend(len(points) * repeats)
        repeated = Images(np.repeat(np.stack(points), repeats, axis=0))
        reply = yield Ask(repeated, eligible_from=math.inf, margins=margins)
        return _rows(reply).reshape(len(points), repeats, -1)

    def _spend(self, queries: int) -> None:
        if queries > self._left:
            raise _SpentError
        self._left -= queries

    # --- changes ------------------------------------------------------------------------------------------------------

    def _compare_all(self, ask: Ask, points: NDArray[np.float32], draws: Draws) -> Generator[Ask, Reply, Row]:
        """Return the rows to report: above that of the reference only on evidence."""
        asked = ask.points
        reference = yield from self._reference(ask)
        _check_columns(reference, draws)
        rows = []
        for number, (pixels, drawn) in enumerate(zip(points, draws, strict=True)):
            point: Image | Corner = asked.point(number) if _is_set(asked) else pixels
            found = None
            if reference is None:
                found = _Reference(point, drawn.mean(axis=0), drawn, self._context.threat)
                found.fresh.append(found.reported)  # it was not chosen for its draws
                row = found.reported
            else:
                row, seen = yield from self._compare(pixels, drawn, reference, margins=ask.margins)
                if row[0] > reference.reported[0]:
                    found = _Reference(point, row, seen, self._context.threat)
            if found is not None:
                self._note(found, ask)
                self._keep(asked, found, pixels)
                reference = reference if _is_set(asked) else found
            rows.append(row)
        return np.stack(rows)

    def _reference(self, ask: Ask) -> Generator[Ask, Reply, _Reference | None]:
        """Return the point that an ask is compared with; None if there is none yet."""
        asked = ask.points
        if not _is_set(asked):
            kept = self._references.get(_owner(asked))
            return None if kept is None else kept[1]
        if not asked.flips:
            return self._best
        base = render_corner(asked.grid, asked.base, *self._context.bounds)
        key = _digest(base)
        if key not in self._references:
            drawn = (yield from self._draw([base], self._sampling.repeats, margins=ask.margins))[0]
            corner = asked._replace(flips=()).point(0)
            self._references[key] = None, _Reference(corner, drawn.mean(axis=0), drawn, self._context.threat)
        return self._references[key][1]

    def _keep(self, asked: Corners | Images, found: _Reference, pixels: Image) -> None:
        """Keep a point as a reference of later asks."""
        if not _is_set(asked):
            # The owner is kept too, so that no other object gets its number.
            self._references[_owner(asked)] = asked, found
            return
        self._references[_digest(pixels)] = None, found
        while len(self._references) > _MOST_SETS:
            del self._references[next(iter(self._references))]

    def _compare(
        self, pixels: Image, drawn: Draws, reference: _Reference, *, margins: bool
    ) -> Generator[Ask, Reply, tuple[Row, Draws]]:
        """Return the row to report for a changed point, and its draws (steps 2 and 3)."""
        repeats = self._sampling.repeats
        if len(reference.fresh) < _FRESH_MEANS:
            reference.add((yield from self._draw([self._pixels(reference)], repeats, margins=margins))[0])
        seen = [drawn]
        wins = losses = 0
        risen = drawn[:, 0].mean() > reference.level[0]
        while risen:
            one, other = seen[-1].mean(axis=0)[0], reference.fresh[len(seen) - 1][0]
            wins, losses = wins + (one > other), losses + (one < other)
            if evidence(wins, wins + losses) * self._sampling.error_rate >= 1:
                break
            risen = wins > losses and len(seen) < _MOST_PAIRS
            if risen:
                wanted = [pixels]
                if len(reference.fresh) <= len(seen):
                    wanted.append(self._pixels(reference))
                draws = yield from self._draw(wanted, repeats, margins=margins)
                seen.append(draws[0])
                for fresh in draws[1:]:
                    reference.add(fresh)
        draws = np.concatenate(seen)[None]
        row = reference.reported + draws.mean(axis=(0, 1)) - reference.level
        if risen:
            row[0] = max(row[0], np.nextafter(reference.reported[0], np.inf))
        else:
            row[0] = min(row[0], np.nextafter(reference.reported[0], -np.inf))
        return row, draws

    def _note(self, found: _Reference, ask: Ask) -> None:
        """Keep the point with the highest reported loss, of those that may end the search."""
        if found.reported[0] < ask.eligible_from:
            return
        if self._best is None or found.reported[0] > self._best.reported[0]:
            self._best = found
            if not isinstance(found.point, Corner):
                found.point = found.point.copy()  # a view would keep all points of its ask in memory

    # --- claims -------------------------------------------------------------------------------------------------------

    def _claim(self, best: _Reference, ask: Ask) -> Generator[Ask, Reply, bool]:
        """Return whether there is evidence that the model errs at a point more often than not (step 4)."""
        if not best.errs:
            return False
        self._claims += 1
        error_rate = spent_error_rate(self._sampling.error_rate, self._claims)
        errors = draws = 0
        while draws < _MOST_CLAIM_DRAWS:
            missing = events_missing(errors, draws, error_rate)
            drawn = yield from self._draw([self._pixels(best)], missing, margins=ask.margins)
            errors, draws = errors + int(self._context.threat.errs(drawn[0, :, 0]).sum()), draws + missing
            if evidence(errors, draws) * error_rate >= 1:
                return True
            if 2 * errors <= draws:
                return False
        return False


def _rows(reply: Reply) -> NDArray[np.float64]:
    """Return loss and margins of each point in one row, all of them finite."""
    columns = reply.loss[:, None]
    if reply.margins is not None:
        columns = np.concatenate([columns, reply.margins.astype(np.float64)], axis=1)
    return np.clip(columns, -_MOST_LOSS, _MOST_LOSS)


def _check_columns(reference: _Reference | None, draws: Draws) -> None:
    """Refuse a search that wants margins in some asks only: it compares rows, which must have the same columns."""
    if reference is not None and len(reference.reported) != draws.shape[-1]:
        raise InputError(
            "the attack asks for margins in some asks and not in others; on a random model it must want them in all "
            "asks or in none"
        )


def _single(points: Corners | Images, number: int) -> Corners | Images:
    """Return one of some points."""
    if isinstance(points, Images):
        return Images(points.pixels[number : number + 1])
    return points._replace(flips=points.flips[number : number + 1])


def _is_set(asked: Corners | Images) -> TypeGuard[Corners]:
    """Return whether an ask is about sets that the search does not change in place: it may return to any of them."""
    return isinstance(asked, Corners) and asked.changed is None


def _owner(asked: Corners | Images) -> int | None:
    """Return the number of the corner that is changed in place; None for images, which have one reference."""
    return id(asked.base) if isinstance(asked, Corners) else None


def _digest(pixels: Image) -> bytes:
    return hashlib.blake2b(pixels.tobytes(), digest_size=16).digest()

"""Progress of a run on standard error: a bar on a terminal, and elsewhere a line every half minute.

The bar moves with queries: an image counts with its queries while it is attacked, and with its whole budget once it
has ended. So the time left is an upper bound, since an image that is fooled leaves queries unused.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from parsimon.core.engine import Counters, Step

_REFRESH_SECONDS = 0.2
_LINE_SECONDS = 30.0
_CONTEXT: ContextVar[str] = ContextVar("context", default="")


@contextmanager
def progress_context(text: str) -> Iterator[None]:
    """Show a text such as `model 1 of 2, eps 4/255` with the progress of every run in this context."""
    token = _CONTEXT.set(text)
    try:
        yield
    finally:
        _CONTEXT.reset(token)


@dataclass(frozen=True)
class Stage:
    """An attack of a run.

    Attributes:
        attack: Its name.
        number: Its place among the attacks, from 1.
        attacks: Number of attacks.
        images: Number of images that it attacks.
        budget: Queries allowed per image.
    """

    attack: str
    number: int
    attacks: int
    images: int
    budget: int

    @property
    def context(self) -> str:
        """Where the run stands: `model 1 of 2, eps 4/255, attack 2 of 3`."""
        place = f"attack {self.number} of {self.attacks}" if self.attacks > 1 else ""
        return ", ".join(filter(None, (_CONTEXT.get(), place)))

    @property
    def total(self) -> int:
        """The largest number of queries."""
        return self.images * self.budget

    def done(self, counters: Counters) -> int:
        """Return the queries that can no longer come: those made, and those that ended images left unused."""
        return min(self.total, counters.ended * self.budget + counters.queries - counters.ended_queries)

    def status(self, counters: Counters) -> str:
        # Relative to all images: successes end first, so the rate over finished images would start at 100 %.
        return f"{counters.successes / self.images:.1%} fooled, {counters.queries:,} queries"


class _Speed:
    """Measures queries per second from its first call on."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._before: int | None = None

    def of(self, counters: Counters) -> float:
        if self._before is None:  # queries of a resumed run took their time before
            self._before = max(0, counters.queries - counters.rows)
        return (counters.queries - self._before) / max(time.monotonic() - self._began, 1e-9)


def _time_left(stage: Stage, counters: Counters, speed: float) -> str:
    left = stage.total - stage.done(counters)
    return f"at most {timedelta(seconds=round(left / speed))}" if speed > 0 else ""


@contextmanager
def show_progress(stage: Stage, *, show: bool | None) -> Iterator[Callable[[Step], None] | None]:
    """Yield a function to call after each batch, or None to show nothing.

    `show`: True for a bar, False for nothing, None for a bar on a terminal and lines elsewhere.
    """
    if show is False:
        yield None
        return
    with _bar(stage) if show or sys.stderr.isatty() else _lines(stage) as update:
        yield update


@contextmanager
def _bar(stage: Stage) -> Iterator[Callable[[Step], None]]:
    console = Console(stderr=True)
    if stage.context:
        console.print(stage.context, style="dim", highlight=False)
    bar = Progress(  # fits into 80 columns for millions of queries
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        TextColumn("{task.fields[status]}"),
        console=console,
        auto_refresh=False,
    )
    with bar:
        task = bar.add_task(stage.attack, total=stage.total, status="")
        speed, shown = _Speed(), time.monotonic()

        def update(step: Step) -> None:
            nonlocal shown
            counters = step.counters
            rate, now = speed.of(counters), time.monotonic()
            if now - shown < _REFRESH_SECONDS and counters.ended < stage.images:
                return
            shown = now
            status = f"{counters.ended}/{stage.images} {stage.status(counters)} {_time_left(stage, counters, rate)}"
            bar.update(task, completed=stage.done(counters), status=status, refresh=True)

        yield update


@contextmanager
def _lines(stage: Stage) -> Iterator[Callable[[Step], None]]:
    head = f"{stage.context}: {stage.attack}" if stage.context else stage.attack
    speed, shown = _Speed(), time.monotonic()

    def update(step: Step) -> None:
        nonlocal shown
        counters = step.counters
        rate, now = speed.of(counters), time.monotonic()
        if now - shown < _LINE_SECONDS:
            return
        shown = now
        images = f"{counters.ended:,} of {stage.images:,} images"
        left = f"{_time_left(stage, counters, rate)} left" if rate > 0 else "no query yet"
        print(
            f"{head}: {images}, {stage.status(counters)}, {rate:,.0f} per second, {left}", file=sys.stderr, flush=True
        )

    yield update

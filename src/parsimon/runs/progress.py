"""A progress bar for a run: finished images, success rate, queries, queries per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from parsimon.core.engine import Step

_REFRESH_SECONDS = 0.2


@contextmanager
def live_line(name: str, images: int, *, show: bool) -> Iterator[Callable[[Step], None] | None]:
    """Yield a function to call after each batch, or None if nothing is shown."""
    if not show:
        yield None
        return
    bar = Progress(  # fits into 80 columns for millions of queries
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
    )
    with bar:
        task = bar.add_task(name, total=images, status="")
        began = shown = time.monotonic()

        def update(step: Step) -> None:
            nonlocal shown
            counters = step.counters
            now = time.monotonic()
            if now - shown < _REFRESH_SECONDS and counters.ended < images:
                return
            shown = now
            speed = counters.queries / max(now - began, 1e-9)
            # Relative to all images: successes end first, so the rate over finished images would start at 100 %.
            status = f"{counters.successes / images:.1%} fooled, {counters.queries:,} queries, {speed:,.0f}/s"
            bar.update(task, completed=counters.ended, status=status, refresh=True)

        yield update

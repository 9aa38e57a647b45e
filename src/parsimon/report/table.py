"""The results table, as text."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from parsimon.summary import Summary


def results_table(title: str, name: str, summary: Summary, clean_accuracy: float) -> Table:
    """One attack on one model; the captions say over what each number is taken."""
    low, high = summary.interval
    at_least = "≥ " if summary.unfinished else ""
    table = Table(title=title, title_justify="left", caption=_caption(summary), caption_justify="left")
    table.add_column("attack")
    for header in ("images", "success", "95 % interval", "mean queries", "median", "all queries"):
        table.add_column(header, justify="right")
    table.add_column("accuracy\nclean → attacked", justify="right")
    table.add_row(
        name,
        f"{summary.attacked:,}",
        f"{at_least}{summary.success_rate:.1%}",
        f"{low:.1%} to {high:.1%}",
        "-" if summary.mean is None else f"{summary.mean:,.1f}",
        "-" if summary.median is None else f"{summary.median:,.1f}",
        f"{summary.queries:,}",
        f"{clean_accuracy:.1%} → {clean_accuracy * (1 - summary.success_rate):.1%}",
    )
    return table


def _caption(summary: Summary) -> str:
    text = "Success: of all attacked (correctly classified) images. Mean and median: of the successes' queries."
    if summary.unfinished:
        text += f"\nInterrupted: {summary.unfinished:,} images are unfinished and count as not fooled so far."
    return text


def as_text(table: Table, width: int = 120) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()

"""The results table, as text."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from parsimon.summary import Summary


def results_table(title: str, name: str, summary: Summary, clean_accuracy: float) -> Table:
    """One attack on one model; the caption says over what each number is taken. Fits 80 columns."""
    low, high = summary.interval
    at_least = ">= " if summary.unfinished else ""
    table = Table(
        title=title,
        title_justify="left",
        caption=_caption(summary, clean_accuracy),
        caption_justify="left",
        # A frame would cost the columns that seven-digit numbers need.
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        min_width=76,  # so that the caption's lines stay whole
    )
    table.add_column("attack", no_wrap=True)
    for header in ("images", "success (95 %)", "mean", "median", "all queries"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_row(
        name,
        f"{summary.attacked:,}",
        f"{at_least}{summary.success_rate:.1%} ({100 * low:.1f} to {100 * high:.1f})",
        "-" if summary.mean is None else f"{summary.mean:,.1f}",
        "-" if summary.median is None else f"{summary.median:,.1f}",
        f"{summary.queries:,}",
    )
    return table


def _caption(summary: Summary, clean_accuracy: float) -> str:
    under_attack = clean_accuracy * (1 - summary.success_rate)
    lines = [
        f"Accuracy: {clean_accuracy:.1%} clean, {under_attack:.1%} under this attack.",
        "Success: of all attacked (correctly classified) images, with its interval.",
        "Mean and median: queries of the successes.",
    ]
    if summary.unfinished:
        lines.append(f"Interrupted: {summary.unfinished:,} of the images unfinished, counted as not fooled so far.")
    return "\n".join(lines)


def as_text(table: Table, width: int = 80) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()

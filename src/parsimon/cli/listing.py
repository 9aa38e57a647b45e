"""Lists of names with their properties, such as those of `parsimon zoo`, for terminals of any width."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

_WIDEST = 500  # columns in which any table fits

Rows = Sequence[Sequence[str]]


def print_listing(headers: Sequence[str], groups: Sequence[Rows], right: Collection[str] = ()) -> None:
    """Print rows of texts with markup, the name first; a rule separates groups.

    Lines are broken between words. Where the longest words do not fit beside each other, the other texts of a row stand
    below its name.

    Args:
        headers: The names of the columns.
        groups: Groups of rows.
        right: Headers of the columns that are aligned to the right.
    """
    console = Console()
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for header in headers:
        table.add_column(header, overflow="fold", justify="right" if header in right else "left")
    for group in groups:
        for row in group:
            table.add_row(*row)
        table.add_section()
    if console.measure(table, options=console.options.update(max_width=_WIDEST)).minimum <= console.width:
        console.print(table)
        return
    for name, *texts in (row for group in groups for row in group):
        console.print(f"[bold]{name}[/]", highlight=False)
        for header, text in zip(headers[1:], texts, strict=True):
            if text.strip():
                console.print(f"  {header}: {' '.join(text.split())}", highlight=False)

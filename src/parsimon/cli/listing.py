"""Lists of names with their properties, such as those of `parsimon zoo`, for terminals of any width."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from parsimon.cli.streams import print_rich

_WIDEST = 500  # columns in which any table fits
_GAP = 1  # spaces between columns

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
    rows = [row for group in groups for row in group]
    widths = _widths(console, [headers, *rows])
    if widths is None:
        _print_below_each_other(console, headers, rows)
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP, 0, 0))
    for header, width in zip(headers, widths, strict=True):
        table.add_column(header, width=width, overflow="fold", justify="right" if header in right else "left")
    for group in groups:
        for row in group:
            table.add_row(*row)
        table.add_section()
    print_rich(console, table)


def _widths(console: Console, rows: Rows) -> list[int] | None:
    """Return the widths of columns in which no word is broken; None if the longest words do not fit.

    Rich itself takes space from the widest columns, however long their words are.
    """
    wide = console.options.update(max_width=_WIDEST)
    columns = [[console.measure(text, options=wide) for text in column] for column in zip(*rows, strict=True)]
    widths = [max(each.minimum for each in column) for column in columns]
    wanted = [max(each.maximum for each in column) for column in columns]
    spare = console.width - sum(widths) - 2 * _GAP * (len(widths) - 1)
    if spare < 0:
        return None
    for _ in range(min(spare, sum(wanted) - sum(widths))):  # each time to the column that is cut into most lines
        neediest = max(range(len(widths)), key=lambda column: wanted[column] / widths[column])
        widths[neediest] += 1
    return widths


def _print_below_each_other(console: Console, headers: Sequence[str], rows: Rows) -> None:
    for name, *texts in rows:
        print_rich(console, f"[bold]{name}[/]", highlight=False)
        for header, text in zip(headers[1:], texts, strict=True):
            if text.strip():
                line = f"{header}: {' '.join(text.split())}"
                print_rich(console, Padding(line, (0, 0, 0, 2)), highlight=False)


def print_lines(*lines: str) -> None:
    """Print lines, each of them broken between words where the terminal ends."""
    console = Console()
    for line in lines:
        indent = len(line) - len(line.lstrip())
        print_rich(console, Padding(escape(line.lstrip()), (0, 0, 0, indent)), highlight=False)


def listed_source(described: Mapping[str, Any]) -> tuple[str, str]:
    """Return paper and presets of an attack or a defence, for a listing."""
    paper = described["paper"]
    return f"{paper['authors']} {paper['year']}" if paper else "-", ", ".join(described["presets"]) or "-"


def print_description(described: Mapping[str, Any], traits: str) -> None:
    """Print everything about an attack or a defence: a line on what it is, its paper, settings and presets."""
    console, paper = Console(highlight=False), described["paper"]
    print_rich(console, f"[bold]{described['name']}[/] ({described['class']}): {escape(described['summary'])}")
    print_rich(console, traits)
    if paper:
        print_rich(console, escape(f"Paper: {paper['authors']}, {paper['title']} ({paper['year']}), {paper['link']}"))
    for each in described["settings"]:
        print_rich(console, escape(f"{each['name']}={each['default']}  ({each['type']})"), style="bold")
        print_rich(console, Padding(escape(each["meaning"]), (0, 0, 0, 4)))
    for preset, settings in described["presets"].items():
        values = ", ".join(f"{key}={value}" for key, value in settings.items())
        print_rich(console, escape(f"Preset {described['name']}:{preset}: {values or 'the defaults'}"))

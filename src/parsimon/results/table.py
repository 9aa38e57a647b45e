"""The `Table` type, which can be written as text for a terminal, as Markdown, as LaTeX and as HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

_WIDTH = 80  # characters in a line of a terminal
_LEAST_NAME = 6  # characters of the first column, where names are folded


class Cell(NamedTuple):
    text: str
    best: bool = False
    interval: tuple[str, str] | None = None


@dataclass(frozen=True)
class Table:
    """A table in no particular format. A rule separates its groups of rows.

    Names may come from anywhere, so line breaks and control characters become spaces.
    """

    title: str
    headers: Sequence[str]
    groups: Sequence[Sequence[Sequence[Cell]]]
    notes: Sequence[str]

    def __post_init__(self) -> None:
        groups = [[[cell._replace(text=_flat(cell.text)) for cell in row] for row in group] for group in self.groups]
        object.__setattr__(self, "title", _flat(self.title))
        object.__setattr__(self, "headers", [*map(_flat, self.headers)])
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "notes", [*map(_flat, self.notes)])

    def rich(self, width: int = _WIDTH) -> RenderableType:
        """Return the table for a terminal, with each interval below its number. It needs at most 80 columns.

        In a narrow terminal headers and names are folded and intervals take two lines, but no digit is lost. Where even
        that is too wide, the cells of a row stand below each other.
        """
        width = min(width, _WIDTH)
        for lines in (_lines, _short_lines):
            if (widths := self._widths(width, lines)) is not None:
                return self._columns(width, widths, lines)
        return self._list(width)

    def _columns(self, width: int, widths: Sequence[int], lines: Callable[[Cell], list[str]]) -> RichTable:
        table = RichTable(
            title=escape(self.title),
            title_justify="left",
            caption=escape("\n".join(self.notes)),
            caption_justify="left",
            # A frame would take the columns that seven-digit numbers need.
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            min_width=width - 4,  # keeps the lines of the caption whole
        )
        names, *others = widths
        table.add_column(escape(self.headers[0]), overflow="fold", max_width=names)
        for header, needed in zip(self.headers[1:], others, strict=True):
            table.add_column(escape(header), justify="right", width=needed)
        for group in self.groups:
            for row in group:
                table.add_row(*(_markup(cell, lines) for cell in row))
            table.add_section()
        return table

    def _widths(self, width: int, lines: Callable[[Cell], list[str]]) -> list[int] | None:
        """Return the columns' widths, or None if they do not fit. Headers and names may be folded, numbers never."""
        cells = zip(*(row for group in self.groups for row in group), strict=True)
        names, *widest = [max(len(line) for cell in column for line in lines(cell)) for column in cells]
        for headers in (lambda header: len(header), lambda header: max(map(len, header.split()))):
            widths = [max(pair) for pair in zip(widest, map(headers, self.headers[1:]), strict=True)]
            left = width - sum(widths) - 2 * len(widths)  # two spaces between columns
            if left >= names:
                break
        return [left, *widths] if left >= min(names, _LEAST_NAME) else None

    def _list(self, width: int) -> RenderableType:
        """Return each row as a name, with a line for each of its cells below it."""
        parts: list[RenderableType] = [Text(self.title, style="italic")]
        for row in (row for group in self.groups for row in group):
            below = RichTable.grid(padding=(0, 2, 0, 0))
            below.add_column(overflow="fold")
            below.add_column(overflow="fold", max_width=width)
            for header, cell in zip(self.headers[1:], row[1:], strict=True):
                interval = f" [dim]({escape(_span(cell.interval))})[/]" if cell.interval else ""
                below.add_row(f"  {escape(header)}", f"{_markup(cell, _number_alone)}{interval}")
            parts += [Text(""), Text(row[0].text, style="bold", overflow="fold"), below]
        return Group(*parts, Text(""), Text("\n".join(self.notes), style="dim"))

    def markdown(self) -> str:
        """Return the table as Markdown, with title and notes."""
        rows = [[_markdown(cell) for cell in row] for group in self.groups for row in group]
        headers = [_escaped(header) for header in self.headers]
        widths = [max(len(line[column]) for line in (headers, *rows)) for column in range(len(headers))]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        lines = [_aligned(line, widths) for line in (headers, rule, *rows)]
        title, notes = _escaped(self.title), _escaped(" ".join(self.notes))
        return "\n".join([f"{title}:", "", *(f"| {line} |" for line in lines), "", notes])

    def latex(self) -> str:
        """Return a tabular for the package booktabs, with title and notes as comments.

        Intervals have rows of their own in small type, which are easily deleted.
        """
        headers = [_tex(header) for header in self.headers]
        groups = [[line for row in group for line in _tex_rows(row)] for group in self.groups]
        lines = [headers, *(row for group in groups for row in group)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
        body = "\n\\midrule\n".join(
            "\n".join(rf"{_aligned(row, widths, ' & ')} \\" for row in group) for group in ([headers], *groups)
        )
        comments = "\n".join(f"% {line}" for line in (self.title, *self.notes))
        columns = "l" + "r" * (len(headers) - 1)
        return f"{comments}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}"

    def html(self) -> str:
        """Return the table as HTML for a notebook, with title and notes; every text is escaped."""
        head = "".join(f"<th>{html.escape(header)}</th>" for header in self.headers)
        groups = ("".join(f"<tr>{''.join(map(_html, row))}</tr>" for row in group) for group in self.groups)
        body = "".join(f"<tbody>{rows}</tbody>" for rows in groups)
        notes = "<br>".join(map(html.escape, self.notes))
        title = f'<caption style="text-align: left">{html.escape(self.title)}</caption>'
        return f"<table>{title}<thead><tr>{head}</tr></thead>{body}</table><p><small>{notes}</small></p>"

    def __str__(self) -> str:
        console = Console(width=_WIDTH, color_system=None, force_terminal=False)
        with console.capture() as capture:
            console.print(self.rich())
        return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


TABLE_FILES = {"markdown": "table.md", "latex": "table.tex"}


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write all tables into one Markdown file and one LaTeX file."""
    paths = []
    for write, name in zip((Table.markdown, Table.latex), TABLE_FILES.values(), strict=True):
        paths.append(folder / name)
        paths[-1].write_text("\n\n".join(map(write, tables)) + "\n", encoding="utf-8")
    return paths


def _flat(text: str) -> str:
    """Return the text as one line of printable characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def _dash(interval: tuple[str, str], dash: str = "-") -> str:
    """Return what stands between the ends of an interval: a dash, unless it could be read as a minus."""
    return " to " if interval[0][0] in "+-" else dash


def _span(interval: tuple[str, str], dash: str = "-") -> str:
    """Return the interval as text."""
    return _dash(interval, dash).join(interval)


def _lines(cell: Cell) -> list[str]:
    """Return the lines of a cell in a terminal."""
    return [cell.text, *([_span(cell.interval)] if cell.interval else [])]


def _short_lines(cell: Cell) -> list[str]:
    """Return the lines of a cell in a narrow terminal, where each end of its interval has its own."""
    if cell.interval is None:
        return [cell.text]
    low, high = cell.interval
    return [cell.text, f"{low}{_dash(cell.interval).rstrip()}", high]


def _number_alone(cell: Cell) -> list[str]:
    return [cell.text]


def _markup(cell: Cell, lines: Callable[[Cell], list[str]]) -> str:
    text, *interval = map(escape, lines(cell))
    return "\n".join([f"[bold]{text}[/]" if cell.best else text, *(f"[dim]{line}[/]" for line in interval)])


def _html(cell: Cell) -> str:
    text = html.escape(cell.text)
    number = f"<b>{text}</b>" if cell.best else text
    interval = f"<br><small>{html.escape(_span(cell.interval))}</small>" if cell.interval else ""
    return f"<td>{number}{interval}</td>"


def _markdown(cell: Cell) -> str:
    text = f"**{_escaped(cell.text)}**" if cell.best else _escaped(cell.text)
    return f"{text} ({' to '.join(cell.interval)})" if cell.interval else text


def _escaped(text: str) -> str:
    """Return the text with Markdown's special characters escaped."""
    return re.sub(r"([\\|<*`\[])", r"\\\1", text)


def _tex_rows(row: Sequence[Cell]) -> list[list[str]]:
    """Return a row of numbers, followed by a row of intervals if there are any."""
    rows = [[rf"\textbf{{{_tex(cell.text)}}}" if cell.best else _tex(cell.text) for cell in row]]
    if any(cell.interval for cell in row):
        rows.append([rf"{{\scriptsize {_tex(_span(cell.interval, '--'))}}}" if cell.interval else "" for cell in row])
    return rows


def _aligned(cells: Sequence[str], widths: Sequence[int], between: str = " | ") -> str:
    first, *others = (
        cell.rjust(width) if column else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return between.join([first, *others])


_TEX = {
    **{character: f"\\{character}" for character in "%&_#${}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
}


def _tex(text: str) -> str:
    """Return the text escaped for LaTeX, with the sign of a number in math mode."""
    text = "".join(_TEX.get(character, character) for character in text).replace("$>$=", r"$\geq$")
    return re.sub(r"(?<![^ ])([+-])(?=\d)", r"$\1$", text)

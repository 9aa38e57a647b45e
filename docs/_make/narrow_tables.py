"""Prepare tables for narrow screens. A hook of MkDocs.

A table of short cells stays a table that scrolls sideways beside its first column. In the others, a row becomes a card,
and each cell names its column.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any

FEWEST = 3  # columns of a table that stays one
LONGEST, LONGEST_FIRST = 30, 64  # characters of a cell, and of a first cell
LONG = 16  # characters of a column that needs more than one line; there may be one
PROSE = frozenset({"meaning", "Description"})  # columns that no such table has
WIDE = 8  # columns from which those that describe the setting come last
SETTING = frozenset({"architecture", "data", "eps", "budget", "images", "images fooled"})

_TABLE = re.compile(r"<table[^>]*>.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr[^>]*>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<td(?P<attributes>[^>]*)>(?P<content>.*?)</td>", re.DOTALL)
_HEADING = re.compile(r"<th(?:\s[^>]*)?>(.*?)</th>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with prepared tables."""
    return _TABLE.sub(lambda table: prepare(table[0]), html)


def prepare(table: str) -> str:
    """Return a table that says how it is shown on a narrow screen."""
    headings = [_text(heading[1]) for heading in _HEADING.finditer(table)]
    rows = [[_text(cell["content"]) for cell in _CELL.finditer(row[0])] for row in _ROW.finditer(table)]
    longest = [max(map(len, cells)) for cells in zip(*filter(None, rows), strict=False)]
    if not is_compact(headings, longest):
        return label(table, headings)
    settings = f'data-narrow="compact" style="--columns: {len(headings)}; --first: {max(longest[0], len(headings[0]))}"'
    return mark(table.replace("<table", f"<table {settings}", 1), classes(headings, longest))


def is_compact(headings: list[str], longest: list[int]) -> bool:
    """Return whether the longest cells of each column are short enough for a table on a narrow screen."""
    if not FEWEST <= len(headings) == len(longest) or not PROSE.isdisjoint(headings):
        return False
    results = [each for each, name in zip(longest[1:], headings[1:], strict=True) if name not in SETTING]
    long = sum(each > LONG for each in results)
    return long <= 1 and max(results) <= LONGEST and longest[0] <= LONGEST_FIRST


def classes(headings: list[str], longest: list[int]) -> list[str]:
    """Return a class for each column: one that describes the setting comes last, and a long one has room."""
    wide = len(headings) >= WIDE
    return [
        "setting" if wide and name in SETTING else "long" if column and characters > LONG else ""
        for column, (name, characters) in enumerate(zip(headings, longest, strict=True))
    ]


def mark(table: str, columns: list[str]) -> str:
    """Return a table whose cells have the class of their column."""

    def mark_row(row: re.Match[str]) -> str:
        names = iter(columns)

        def mark_cell(cell: re.Match[str]) -> str:
            name = next(names, "")
            return f'{cell[0]} class="{name}"' if name else cell[0]

        return re.sub(r"<t[hd](?=[\s>])", mark_cell, row[0])

    return _ROW.sub(mark_row, table)


def label(table: str, headings: list[str]) -> str:
    """Return a table whose cells name their column."""

    def label_row(row: re.Match[str]) -> str:
        names = iter(headings)

        def label_cell(cell: re.Match[str]) -> str:
            content = f"<div>{cell['content']}</div>" if cell["content"].strip() else ""
            return f'<td{cell["attributes"]} data-label="{escape(next(names, ""))}">{content}</td>'

        return _CELL.sub(label_cell, row[0])

    return _ROW.sub(label_row, table)


def _text(content: str) -> str:
    """Return what a cell shows."""
    return " ".join(unescape(_TAG.sub("", content)).split())

"""Label the cells of tables by column, so that the style sheet can stack them on narrow screens. A hook of MkDocs."""

from __future__ import annotations

import re
from typing import Any

_TABLE = re.compile(r"<table[^>]*>.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr[^>]*>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<td(?P<attributes>[^>]*)>(?P<content>.*?)</td>", re.DOTALL)
_HEADING = re.compile(r"<th(?:\s[^>]*)?>(.*?)</th>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with labelled cells."""
    return _TABLE.sub(lambda table: label(table[0]), html)


def label(table: str) -> str:
    """Return a table whose cells name their column."""
    headings = [_TAG.sub("", heading).strip().replace('"', "&quot;") for heading in _HEADING.findall(table)]

    def label_row(row: re.Match[str]) -> str:
        names = iter(headings)

        def label_cell(cell: re.Match[str]) -> str:
            content = f"<div>{cell['content']}</div>" if cell["content"].strip() else ""
            return f'<td{cell["attributes"]} data-label="{next(names, "")}">{content}</td>'

        return _CELL.sub(label_cell, row[0])

    return _ROW.sub(label_row, table)

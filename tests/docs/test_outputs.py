"""The output on a page equals what its commands and code print, up to digits, which differ among processors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import command_line
import outputs


def shape(text: str) -> str:
    """Return a text without what depends on the processor: digits, and the spaces and lines that follow their width."""
    return re.sub(r"[ \t]+|─+", " ", re.sub(r"[-+]?\d[\d.,]*", "0", text))


@pytest.mark.parametrize("page", outputs.pages(), ids=lambda page: page.relative_to(outputs.ROOT).as_posix())
def test_a_page_shows_what_is_printed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(outputs.WIDTH))
    shown = page.read_text()
    assert shape(outputs.refreshed(page)) == shape(shown)


def test_every_text_block_is_generated() -> None:
    """A block that is neither generated nor part of a page made by a script was typed by hand."""
    by_hand = []
    for page in [outputs.ROOT / "README.md", *sorted((outputs.ROOT / "docs").rglob("*.md"))]:
        text = page.read_text()
        generated = len(re.findall(r"^<!-- output: [^\n]* -->\n\n?```text$", text, flags=re.MULTILINE))
        if page != command_line.PAGE and text.count("\n```text\n") != generated:
            by_hand.append(page.relative_to(outputs.ROOT).as_posix())
    assert by_hand == []


def test_output_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint(1 + len(labels))\n```\n\n<!-- output: python -->\n\n```text\nold\n```\n"
        "<!-- run: echo kept > file -->\n<!-- output: cat file; parsimon --version -->\n```text\n```\n"
    )
    monkeypatch.setattr(outputs, "IMAGES", 4)
    fresh = outputs.refreshed(page)
    assert "```text\n5\n```" in fresh
    assert re.search(r"```text\nkept\nparsimon\S* [^\n]*\d\n```\n$", fresh)
    assert shape(fresh) != shape(page.read_text())

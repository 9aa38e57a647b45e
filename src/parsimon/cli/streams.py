"""Standard output of the command: its encoding, its width, and how `--json` keeps it for one document."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from rich.console import Console, RenderableType

_NARROWEST = 20  # columns; a smaller COLUMNS is a terminal that does not know its width

_document_output: TextIO | None = None  # standard output, if only the JSON document may be written to it


def prepare(*, json: bool) -> None:
    """Make standard output print any character at a usable width; with `json`, keep it for the document."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) < _NARROWEST:
        del os.environ["COLUMNS"]
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")
    if json:
        _keep_for_document()


def _keep_for_document() -> None:
    """Let whatever else prints, such as the user's model here or in a worker process, print to standard error."""
    global _document_output
    if sys.stdout is None or sys.stderr is None:  # one of them is closed
        return
    sys.stdout.flush()
    output = sys.stdout.fileno()
    _document_output = open(os.dup(output), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    os.dup2(sys.stderr.fileno(), output)


def document_output() -> TextIO:
    """Return where the JSON document belongs."""
    return _document_output or sys.stdout


def silence() -> None:
    """Write nothing more: standard output is gone, and Python must not flush it again at exit."""
    global _document_output
    _document_output = None
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115


def print_sentence(console: Console, sentence: str) -> None:
    """Print a sentence, broken between words where lines end; in a file or a pipe of unknown width, on one line."""
    if console.is_terminal or "COLUMNS" in os.environ:
        print_rich(console, sentence)
    else:
        console.print(sentence, soft_wrap=True)


def print_rich(console: Console, renderable: RenderableType, **settings: Any) -> None:
    """Print to a console; in a file or a pipe without the spaces with which rich ends its lines."""
    if console.is_terminal:
        console.print(renderable, **settings)
        return
    with console.capture() as captured:
        console.print(renderable, **settings)
    for line in captured.get().splitlines():
        print(line.rstrip())

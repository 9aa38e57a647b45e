"""What a command says to people and to scripts: text or JSON, and a code with which it exits.

With `--json` a command prints one JSON document on standard output and nothing else; whatever is said besides goes to
standard error. docs/guides/scripts.md has the shape of each.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from parsimon.errors import OutageError, ParsimonError


class Exit(IntEnum):
    """The codes with which the command exits, for scripts."""

    DONE = 0
    FAILED = 1  # in a way that nobody foresaw
    BAD_INPUT = 2  # as click has it
    BELOW_GATE = 3
    TRY_LATER = 75  # a failure that may be over later, as sysexits.h has it
    INTERRUPTED = 130  # as shells report Ctrl-C


EXIT_CODES = """\b
Exit codes, for scripts:
    0  done
    2  bad input or usage: a sentence on standard error says what and why
    3  accuracy under attack is below --fail-under
   75  a model behind a network does not answer: try again later
  130  interrupted: a run can be resumed
Every command has --json; parsimon completion prints completion for a shell."""

_KEY = "parsimon.json"
_LONGEST_WORD = 250  # characters
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE}  # of a file or of standard output


def _remember(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[_KEY] = value or as_json()  # of a group, or of its command


JSON = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember, help="Print JSON, and nothing else, for scripts."
)


def as_json() -> bool:
    """Whether the command was asked for JSON."""
    return bool(click.get_current_context().meta.get(_KEY))


def answer(data: Callable[[], Any], text: Callable[[], None]) -> None:
    """What the command has to say: the data as JSON, or the text for people."""
    if as_json():
        _print(data())
    else:
        text()


def _print(data: Any) -> None:
    print(json.dumps(data, indent=2, allow_nan=False), flush=True)


def run(command: click.Command) -> int:
    """Run a command; every expected error is one sentence, and as JSON too where that was asked for."""
    try:
        code = _exit_code(command)
        sys.stdout.flush()
        return code
    except click.ClickException as error:
        object.__setattr__(error, "message", _readable(error.message))
        error.show()
        return _failed(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return _failed("interrupted", Exit.INTERRUPTED)
    except ParsimonError as error:
        _complain(str(error))
        return _failed(str(error), Exit.TRY_LATER if isinstance(error, OutageError) else Exit.BAD_INPUT)
    except MemoryError:
        sentence = "there is not enough memory: choose a smaller --batch-size or --in-flight, or smaller images"
        _complain(sentence)
        return _failed(sentence, Exit.BAD_INPUT)
    except OSError as error:
        if error.filename is None and error.errno not in _UNWRITABLE:  # not of a file that the user has named
            raise
        sentence = f"{error.filename or 'the output'} cannot be used: {error.strerror}"
        if error.errno == errno.EPIPE:  # its reader has seen enough
            return _failed(sentence, Exit.FAILED)
        _complain(sentence)
        return _failed(sentence, Exit.BAD_INPUT)


def _exit_code(command: click.Command) -> int:
    try:
        code = command.main(standalone_mode=False)
    except SystemExit as leaving:
        code = leaving.code
    return code if isinstance(code, int) else Exit.DONE


def _readable(sentence: str) -> str:
    """Return the sentence without what harms a terminal: control characters, and words without end."""
    plain = "".join(each if each.isprintable() or each == "\n" else "?" for each in sentence)
    return re.sub(rf"(\S{{{_LONGEST_WORD}}})\S+", r"\1...", plain)


def _complain(sentence: str) -> None:
    Console(stderr=True).print(f"[red]error[/]: {escape(_readable(sentence))}", highlight=False, soft_wrap=True)


def _failed(sentence: str, code: int) -> int:
    try:
        if "--json" in sys.argv:  # what went wrong may be the options themselves, so that they cannot be asked
            _print({"error": _readable(sentence), "exit_code": int(code)})
        sys.stdout.flush()
    except OSError:  # there is nobody to be told, and Python itself must not try once more when it ends
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    return code

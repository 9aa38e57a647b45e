"""Command output for people and for scripts: text or JSON, and exit codes.

With `--json` a command prints one JSON document on standard output; everything else goes to standard error.
docs/guides/scripts.md describes the documents.
"""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from parsimon.cli import streams
from parsimon.errors import OutageError, ParsimonError


class Exit(IntEnum):
    """Exit codes of the command."""

    DONE = 0
    FAILED = 1  # an unexpected error
    BAD_INPUT = 2  # as in click
    BELOW_GATE = 3
    TRY_LATER = 75  # a temporary failure, as in sysexits.h
    INTERRUPTED = 130  # as shells report Ctrl-C


EXIT_CODES = """\b
Exit codes:
    0  done
    2  bad input or usage; standard error says why
    3  a gate failed, a success does not hold, or a run to verify is missing
   75  a remote model does not respond: try again later
  130  interrupted: the run can be resumed
Every command has --json. `parsimon completion` prints shell completion."""

_KEY, _QUIET = "parsimon.json", "parsimon.quiet"
_LONGEST_WORD = 250  # characters
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE}  # a file, or standard output


def _remember(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[_KEY] = value or as_json()  # the flag may follow a group or its command


JSON = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember, help="Print one JSON document for scripts."
)


QUIET = click.option(
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, value: context.meta.update({_QUIET: value}),
    help="Show no progress, notes or estimates on standard error; errors and warnings remain.",
)


def as_json() -> bool:
    """Return whether the user asked for JSON."""
    return bool(click.get_current_context().meta.get(_KEY))


def is_quiet() -> bool:
    """Return whether the user asked for silence on standard error."""
    return bool(click.get_current_context().meta.get(_QUIET))


def note(sentence: str) -> None:
    """Print an optional sentence on standard error, unless the user asked for silence."""
    if not is_quiet():
        print(sentence, file=sys.stderr)


def note_images(asked: int | str, there: int, usual: int | str) -> None:
    """Say that the data have fewer images than the user asked for; `usual` is the default, which nobody asked for."""
    typed = click.get_current_context().get_parameter_source("images") is click.core.ParameterSource.COMMANDLINE
    if isinstance(asked, int) and asked > there and (typed or asked != usual):
        note(f"note: the data have only {counted(there, 'image')}, fewer than --images {asked:,}")


def counted(number: int, thing: str) -> str:
    """Return a number of things, whose plural ends in s."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def answer(data: Callable[[], Any], text: Callable[[], None]) -> None:
    """Print the data as JSON if the user asked for it, and the text otherwise."""
    if as_json():
        _print(data())
    else:
        text()


def _print(data: Any) -> None:
    print(json.dumps(data, indent=2, allow_nan=False), file=streams.document_output(), flush=True)


def run(command: click.Command) -> int:
    """Run a command and return its exit code; report an expected error in one sentence, and as JSON with `--json`."""
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
        code = Exit.TRY_LATER if isinstance(error, OutageError) else Exit.BAD_INPUT
        return _complain(in_shell(str(error), error.argument, command), code)
    except MemoryError:
        return _complain("out of memory: choose a smaller --batch-size or --in-flight, or smaller images")
    except OSError as error:
        if error.filename is None and error.errno not in _UNWRITABLE:  # not a file that the user named
            raise
        sentence = f"{error.filename or 'the output'} cannot be used: {error.strerror}"
        if error.errno == errno.EPIPE:  # the reader closed the pipe
            return _failed(sentence, Exit.FAILED)
        return _complain(sentence)


def in_shell(sentence: str, argument: str | None, command: click.Command) -> str:
    """Return a sentence with its argument as a flag: `scores='logits'` becomes `--scores logits`.

    A setting that is switched on, such as `stochastic=True`, becomes a flag in any sentence.
    """
    flags = dict(_flags(command))
    sentence = re.sub(r"\b(\w+)=True\b", lambda found: flags.get(found[1], found[0]), sentence)
    flag = flags.get(argument)
    if argument is None or flag is None:
        return sentence
    sentence = re.sub(rf"\b{argument}='?([\w.-]+)'?", rf"{flag} \1", sentence)
    # A name with an underscore is the argument anywhere; other names also occur as plain words.
    alone = rf"\b{argument}\b" if "_" in argument else rf"(?:^|(?<=[:;] )){argument}\b"
    return re.sub(alone, flag, sentence)


def _flags(command: click.Command) -> Iterator[tuple[str | None, str]]:
    """Yield the name and the flag of every option of a command and of its subcommands."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield parameter.name, parameter.opts[0]
    if isinstance(command, click.Group):
        for part in command.commands.values():
            yield from _flags(part)


def _exit_code(command: click.Command) -> int:
    try:
        code = command.main(standalone_mode=False)
    except SystemExit as leaving:
        code = leaving.code
    return code if isinstance(code, int) else Exit.DONE


def _readable(sentence: str) -> str:
    """Replace control characters, and shorten overlong words."""
    plain = "".join(each if each.isprintable() or each == "\n" else "?" for each in sentence)
    return re.sub(rf"(\S{{{_LONGEST_WORD}}})\S+", r"\1...", plain)


def _complain(sentence: str, code: int = Exit.BAD_INPUT) -> int:
    Console(stderr=True).print(f"[red]error[/]: {escape(_readable(sentence))}", highlight=False, soft_wrap=True)
    return _failed(sentence, code)


def _failed(sentence: str, code: int) -> int:
    try:
        if "--json" in sys.argv:  # the options may have failed to parse
            _print({"error": _readable(sentence), "exit_code": int(code)})
        sys.stdout.flush()
    except OSError:
        streams.silence()
    return code

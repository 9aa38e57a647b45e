"""Errors, whose messages say what was expected, what came, and what to do.

ParsimonError
  InputError             invalid images, labels or settings (also a ValueError)
    NothingToAttackError   no image is left to attack
  ModelError             a model that failed or cannot be opened (also a RuntimeError)
    OutageError            a remote model that has not answered for too long
  StoreError             a run file that cannot be read or written (also an OSError)
  WorkerError            no worker process is left (also a RuntimeError)
  MissingExtraError      an optional package that is not installed (also an ImportError)
"""

from __future__ import annotations

import importlib
import math
import os
import sysconfig
import traceback
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType

LARGEST = 2**63 - 1  # whole number that all parts of a run can hold
MOST = 2**31 - 1  # for the counts of an attack

_TINY, _HUGE = 1e-9, 1e9  # single precision holds products and quotients of such numbers
_QUOTED = 200  # characters of input in a message
_LONGEST_NAME = 4096  # characters, as in a path


class ParsimonError(Exception):
    """Base class of all errors that parsimon raises on purpose.

    Attributes:
        argument: The argument at fault, if there is one. The command line shows it as a flag.
    """

    def __init__(self, *message: object, argument: str | None = None) -> None:
        super().__init__(*message)
        self.argument = argument


class InputError(ParsimonError, ValueError):
    """Images, labels or settings that cannot be used."""


class NothingToAttackError(InputError):
    """No image is left to attack: all are misclassified, or already classified as the target."""


class ModelError(ParsimonError, RuntimeError):
    """A model that cannot be opened, that failed, or whose response is not that of a classifier."""


class OutageError(ModelError):
    """A remote model that did not answer after all retries. A stored run can be resumed."""


class StoreError(ParsimonError, OSError):
    """A run file that cannot be read or written, or that another process writes."""


class WorkerError(ParsimonError, RuntimeError):
    """No worker is left to continue a run, or none can be started."""


class MissingExtraError(ParsimonError, ImportError):
    """A feature whose package is not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional package; if it is missing, name the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        what = f"this needs {module}, which is not installed: pip install 'parsimon[{extra}]'"
        raise MissingExtraError(what) from error


def check_whole(name: str, value: object, least: int, most: int = LARGEST, why: str = "") -> None:
    """Refuse a setting that is not a whole number, too small or too large; `why` explains the upper limit."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number, at least {least}; got {quote(value)}", argument=name)
    if int(value) > most:
        raise InputError(f"{name} must be a whole number, at most {most:,}{why}; got {quote(value)}", argument=name)


def check_number(name: str, value: object, least: float = _TINY, most: float = _HUGE) -> None:
    """Refuse a setting that is not a number between two limits; by default, one that single precision can hold."""
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= _as_float(value) <= most:
        raise InputError(f"{name} must be a number from {least:g} to {most:g}; got {quote(value)}", argument=name)


def _as_float(value: Real) -> float:
    """Return a number in double precision, since half precision cannot be compared with the limits."""
    try:
        return float(value)
    except OverflowError:  # an integer or a fraction beyond the largest float
        return math.inf


def plain_number(value: object) -> object:
    """Return a number of numpy or a fraction as Python's own int or float, and anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    try:
        return int(value) if isinstance(value, Integral) else float(value)
    except OverflowError:  # beyond the largest float
        return value


def check_flag(name: str, value: object) -> None:
    """Refuse a setting that is neither true nor false."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False; got {quote(value)}", argument=name)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a setting that is not one of the choices."""
    if not isinstance(value, str) or value not in choices:
        hint = did_you_mean(value, choices)
        raise InputError(f"{name} must be one of {', '.join(choices)}; got {quote(value)}{hint}", argument=name)


def unknown_name(problem: str, name: object, listing: str, known: Collection[str]) -> InputError:
    """Return the error for a name that is not known; it suggests the closest known name, and lists all."""
    hint = did_you_mean(name, known) or "."
    return InputError(f"{problem} {quote(name)}{hint} {listing} {', '.join(known) or '(none)'}")


def did_you_mean(name: object, known: Collection[str]) -> str:
    """Return `: did you mean X?` with the closest known name; nothing if none is close."""
    close = get_close_matches(str(name).lower()[:_QUOTED], known, 1)
    return f": did you mean {close[0]}?" if close else ""


def check_name(what: str, text: object) -> None:
    """Refuse a text that cannot name a model, data or a file."""
    if not isinstance(text, str) or "\0" in text or len(text) > _LONGEST_NAME:
        limits = f"a text of at most {_LONGEST_NAME:,} characters, none of them NUL"
        got = f"one of {len(text):,} characters" if isinstance(text, str) else quote(text)  # it may hold a secret
        raise InputError(f"the name of {what} must be {limits}; got {got}")


def first_line(error: BaseException) -> str:
    """Return another library's error in one short line, to be quoted in a sentence."""
    return shorten(whole_line(error))


def whole_line(error: BaseException) -> str:
    """Return the first line of an error however long it is, for callers that hide secrets before they shorten it."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def users_place(error: BaseException) -> str:
    """Return ` (in mymodels.py, line 31, in f)`, the last place in the user's own code that an error went through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", *_foreign_folders()))
    ]
    if not frames:
        return ""
    last = frames[-1]
    return f" (in {Path(last.filename).name}, line {last.lineno}, in {last.name})"


@cache
def _foreign_folders() -> tuple[str, ...]:
    """Return the folders of this package, of installed packages and of Python itself."""
    paths = sysconfig.get_paths()
    folders = {str(Path(__file__).parent), *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))}
    return tuple(f"{folder}{os.sep}" for folder in folders)


def quote(value: object) -> str:
    """Return the repr of a value, cut to 200 characters, to quote it in a sentence."""
    try:
        text = " ".join(repr(value).split("\n"))  # an array has several lines
    except Exception:  # an integer with thousands of digits, deeply nested lists, or a broken repr
        text = f"<{type(value).__name__}>"
    return shorten(text)


def shorten(text: str) -> str:
    """Return the text, cut to 200 characters."""
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}..."

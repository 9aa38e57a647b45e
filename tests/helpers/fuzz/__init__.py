"""Random input for every door of parsimon. Each input must give a correct result or a `ParsimonError`.

- `PARSIMON_FUZZ`: the number of inputs of all parts together;
- `PARSIMON_FUZZ_SEED`: the seed of all of them;
- `PARSIMON_FUZZ_ONLY`: the number of one input, to try it again alone.

An input depends on the seed, its part and its number alone, so each failure can be repeated.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from parsimon.errors import ParsimonError

COUNT = int(os.environ.get("PARSIMON_FUZZ", "2600"))
SEED = int(os.environ.get("PARSIMON_FUZZ_SEED", "0"))
ONLY = os.environ.get("PARSIMON_FUZZ_ONLY")

_SECONDS = 120  # for one input, which takes milliseconds: a safety net against a search that never ends
_MEMORY = 12 * 2**30  # bytes: an array of absurd size is an error here, not the end of the machine
_SHOWN = 5  # failures in a message
_LONGEST = 2500  # characters of a sentence, which may name a path of 4,096 characters only in part

Value = TypeVar("Value")


class Hang(BaseException):
    """An input has taken far too long. No `except Exception` catches it."""


class Draw(random.Random):
    """The random choices of one input, with notes of what was chosen."""

    def __init__(self, part: str, number: int) -> None:
        super().__init__(f"{SEED} {part} {number}")
        self.notes: list[str] = []

    def note(self, **what: Any) -> None:
        """Remember a choice for the message of a failure."""
        self.notes += [f"{name} = {_shown(value)}" for name, value in what.items()]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def one(self, *values: Any) -> Any:
        """Return one of some values, of any types."""
        return self.choice(values)

    def some(self, values: Sequence[Value], most: int) -> list[Value]:
        """Return up to `most` of the values, in random order."""
        return self.sample(values, self.randint(0, min(most, len(values))))


def _shown(value: Any) -> str:
    try:
        return repr(value)[:600]
    except Exception:
        return f"<{type(value).__name__}>"


def sentence_of(error: ParsimonError) -> str:
    """Return the sentence of an error, which must be short and for people."""
    sentence = str(error)
    assert sentence.strip(), f"{type(error).__name__} says nothing"
    assert len(sentence) <= _LONGEST, f"a sentence of {len(sentence)} characters: {sentence[:300]}"
    assert "Traceback" not in sentence
    return sentence


def sweep(part: str, share: float, item: int, items: int, attempt: Callable[[Draw], str]) -> Counter[str]:
    """Try the inputs `item`, `item + items` ... of a part, whose share of all inputs is given; count what they give."""
    seen: Counter[str] = Counter()
    failures: list[str] = []
    for number in _numbers(round(share * COUNT), item, items):
        draw = Draw(part, number)
        try:
            with _limits():
                seen[attempt(draw)] += 1
        except (Exception, Hang):
            failures.append(_described(part, number, draw))
    shown = "\n\n".join(failures[:_SHOWN])
    assert not failures, f"{len(failures)} of {seen.total() + len(failures)} inputs failed.\n{shown}"
    return seen


def _numbers(count: int, item: int, items: int) -> Sequence[int]:
    if ONLY is not None:
        return [int(ONLY)] if int(ONLY) % items == item else []
    return range(item, count, items)


def _described(part: str, number: int, draw: Draw) -> str:
    again = f"PARSIMON_FUZZ_SEED={SEED} PARSIMON_FUZZ_ONLY={number} python -m pytest tests/test_fuzz.py -k {part}"
    return "\n".join([again, *draw.notes, traceback.format_exc()])


@contextmanager
def _limits() -> Iterator[None]:
    """Limit the time and the memory of one input."""

    def give_up(*_: object) -> None:
        raise Hang(f"an input has taken more than {_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard), hard))
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

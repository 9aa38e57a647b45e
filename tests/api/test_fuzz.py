"""Every door of parsimon with random input: each input gives a correct result or a sentence. See `tests/fuzz`.

`make fuzz` tries more inputs, of another seed if one is given: `make fuzz INPUTS=100000 SEED=7`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import pytest

from fuzz import ONLY, Draw, commands, folders, python, specs, sweep


class Part(NamedTuple):
    """One kind of input: its share of all inputs, the number of tests it is spread over, and what tries one."""

    share: float
    items: int
    prepared: Callable[[], AbstractContextManager[Callable[[Draw], str]]]


# Shares by which each test takes about as long as the others.
PARTS = {
    "python": Part(0.5, 4, lambda: nullcontext(python.attempt)),
    "commands": Part(0.15, 3, commands.prepared),
    "specs": Part(0.25, 2, specs.prepared),
    "folders": Part(0.1, 2, folders.prepared),
}


@pytest.mark.parametrize(("name", "item"), [(name, item) for name, part in PARTS.items() for item in range(part.items)])
def test_every_input_gives_a_result_or_a_sentence(name: str, item: int) -> None:
    part = PARTS[name]
    with part.prepared() as attempt:
        seen = sweep(name, part.share, item, part.items, attempt)
    print(f"{name} {item}: {dict(seen)}")
    if ONLY is None and seen.total() >= 50:
        results = seen.total() - seen["error"]
        assert min(results, seen["error"]) > seen.total() / 20, "the input is too seldom good, or too seldom bad"

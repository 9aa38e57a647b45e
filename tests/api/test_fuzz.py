"""Every door of parsimon with random input: each input gives a correct result or a sentence. See `tests/fuzz`."""

from __future__ import annotations

import pytest

from fuzz import python, sweep

ITEMS = 4


@pytest.mark.parametrize("item", range(ITEMS))
def test_python(item: int) -> None:
    seen = sweep("python", 0.4, item, ITEMS, python.attempt)
    print(seen)

"""Errors: what a message quotes of its input stays short."""

from __future__ import annotations

from typing import Any

import pytest

from parsimon.errors import quote


@pytest.mark.parametrize("value", [7, "8/255", ["a", None], b"\0"])
def test_a_short_value_is_quoted_as_it_is_written(value: Any) -> None:
    assert quote(value) == repr(value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", ["x" * 10_000, 10**5_000, nested(100_000), {"key": b"\0" * 1_000}], ids=type)
def test_a_long_value_is_cut(value: Any) -> None:
    text = quote(value)
    assert len(text) <= 200
    assert text.endswith(("...", ">"))


def test_a_value_of_just_the_limit_is_whole() -> None:
    assert quote("x" * 198) == repr("x" * 198)
    assert quote("x" * 199) == repr("x" * 199)[:197] + "..."

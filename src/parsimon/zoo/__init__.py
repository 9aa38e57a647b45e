"""Networks and data by name: those that come with parsimon, and those that it installs from packages.

The bundled ones are CIFAR-10 classifiers small enough to be attacked in seconds, and a thousand test images.
`path(name)` is a network's ONNX file, and `card(name)` says where it comes from and how accurate it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError
from parsimon.zoo import catalogue

NAMES = ("robust", "standard")  # of the bundled networks

_HERE = Path(__file__).parent


def networks() -> tuple[str, ...]:
    """The names of all networks, installed or not."""
    return (*NAMES, *(name for name, entry in catalogue.entries().items() if entry.is_network))


def path(name: str) -> Path:
    """The ONNX file of a bundled or installed network."""
    if name in NAMES:
        return _HERE / f"{name}.onnx"
    if name not in networks():
        others = ", ".join(networks()[len(NAMES) :])
        raise InputError(
            f"networks to install are {others}, and the bundled networks are {' and '.join(NAMES)}; got {name!r}"
        )
    return catalogue.find(name).installed / catalogue.MODEL


def card(name: str) -> dict[str, Any]:
    """Where a network or data come from, how they were trained or converted, and how accurate a network is."""
    if name in NAMES:
        file = path(name).with_suffix(".json")
    else:
        entry = catalogue.find(name)
        if not entry.is_installed:
            return entry.card
        file = entry.folder / catalogue.CARD
    text: dict[str, Any] = json.loads(file.read_text())
    return text


def preprocess(model: str) -> str | None:
    """How the card of a network of the zoo says that pictures are resized and cropped; None of other models."""
    known = catalogue.typed(model)
    return str(known[0].card["preprocess"]) if known and known[0].is_network else None


def data_place(text: str) -> str | None:
    """What opens the data of the zoo that are named, such as `cifar10:train`; None if they are not of the zoo."""
    known = catalogue.typed(text)
    if known is None or known[0].is_network:
        return None
    entry, split = known
    return f"{entry.card['form']}:{entry.installed}{split and f':{split}'}"


def ensure(names: Iterable[str], *, download: bool) -> None:
    """See to it that models and data are there, as far as they are the zoo's, or say what is missing.

    Args:
        names: As they are typed for `--model` and `--data`; what is not of the zoo is passed over.
        download: Install what is missing.
    """
    found = [known[0] for known in map(catalogue.typed, names) if known]
    missing = [entry for entry in found if not entry.is_installed]
    if missing and not download:
        raise InputError(catalogue.missing(missing))
    if missing:
        from parsimon.zoo.installer import install

        for entry in missing:
            install(entry)


def module(name: str) -> Any:
    """A network as a torch module, in evaluation mode."""
    from parsimon.oracles.onnx import as_module

    return as_module(path(name))


def images() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The first 1,000 CIFAR-10 test images (1000, 3, 32, 32) in [0, 1], and their labels."""
    with np.load(_HERE / "cifar10_test_1000.npz") as bundle:
        return bundle["images"].astype(np.float32) / np.float32(255), bundle["labels"].astype(np.int64)

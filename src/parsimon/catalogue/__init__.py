"""Names, cards and files of networks and data: the bundled ones, and those that `parsimon.zoo` installs.

The bundled networks are small CIFAR-10 classifiers, with 1,000 test images. This package imports `parsimon.errors`
only, so that models and data can look up names here.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.catalogue import entries
from parsimon.errors import InputError, did_you_mean

NAMES = ("robust", "standard")  # of the bundled networks
IMAGENET_CLASSES = 1000

_HERE = Path(__file__).parent


def networks() -> tuple[str, ...]:
    """Return the names of all networks, installed or not."""
    return (*NAMES, *(name for name, entry in entries.entries().items() if entry.is_network))


def path(name: str) -> Path:
    """Return the ONNX file of a bundled or installed network."""
    if name in NAMES:
        return _HERE / f"{name}.onnx"
    if name not in networks():
        others = ", ".join(networks()[len(NAMES) :])
        raise InputError(
            f"the bundled networks are {' and '.join(NAMES)}; others to install are {others}; got {name!r}"
            f"{did_you_mean(name, networks())}"
        )
    return entries.find(name).installed / entries.MODEL


def card(name: str) -> dict[str, Any]:
    """Return the card of a network or data: source, training or conversion, accuracy."""
    if name in NAMES:
        file = path(name).with_suffix(".json")
    else:
        entry = entries.find(name)
        if not entry.is_installed:
            return entry.card
        file = entry.folder / entries.CARD
    text: dict[str, Any] = json.loads(file.read_text())
    return text


def preprocess(model: str) -> str | None:
    """Return the preprocessing on the card of a zoo network, or None for other models."""
    known = entries.parse(model)
    return str(known[0].card["preprocess"]) if known and known[0].is_network else None


def data_place(text: str) -> str | None:
    """Return the form and folder of installed zoo data such as `cifar10:train`, or None for other data."""
    known = entries.parse(text)
    if known is None or known[0].is_network:
        return None
    entry, split = known
    return f"{entry.card['form']}:{entry.installed}{split and f':{split}'}"


@cache
def imagenet_classes() -> tuple[str, ...]:
    """Return the names of ImageNet's 1,000 classes, in order."""
    lines = (_HERE / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if not line.startswith("#"))


def images() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the first 1,000 CIFAR-10 test images (1000, 3, 32, 32) in [0, 1], and their labels."""
    with np.load(_HERE / "cifar10_test_1000.npz") as bundle:
        return bundle["images"].astype(np.float32) / np.float32(255), bundle["labels"].astype(np.int64)

"""The settings of a run that do not describe its attack: what each may be, and a sentence about anything else."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import partial
from typing import get_args

import numpy as np

from parsimon.core.threat import Loss, Scores
from parsimon.errors import InputError, check_choice, check_flag, check_whole, quote

Check = Callable[[str, object], None]

_LARGEST_BATCH = 2**16
_MOST_IN_FLIGHT = 2**20
_COPIES = 4  # of a batch that are in memory at once, at least
_PROCESSES, _PER_CORE = 64, 4  # the number of worker processes: this many, or so many per core if that is more


def check_settings(**settings: object) -> None:
    """Refuse a setting whose type or size cannot be used."""
    for name, value in settings.items():
        _CHECKS[name](name, value)


def check_known(function: str, settings: Mapping[str, object], known: Collection[str]) -> None:
    """Refuse a setting that a function does not have, and suggest the one that was probably meant."""
    for name in settings:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f": did you mean {close[0]}?" if close else "."
            raise InputError(f"{function} has no setting {quote(name)}{hint} It has {', '.join(known)}")


def check_processes(workers: object) -> None:
    """Refuse a number of worker processes that no machine like this one can use."""
    cores = os.cpu_count() or 1
    most = max(_PROCESSES, _PER_CORE * cores)
    why = f" on this machine of {cores} cores, since each worker is a process with a model of its own"
    check_whole("workers", workers, 1, most, why)


def check_batch(images: int, values: int) -> None:
    """Refuse a batch of images, of so many values each, that cannot fit into memory with what is computed from it."""
    if not hasattr(os, "sysconf"):  # on Windows
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    taken = np.dtype(np.float32).itemsize * images * values
    if _COPIES * taken > memory:
        sizes = f"{taken / 2**30:,.1f} GiB, and this machine has {memory / 2**30:,.1f} GiB of memory"
        sentence = f"a batch of {images:,} images takes {sizes}: choose a smaller batch_size"
        raise InputError(sentence, argument="batch_size")


def _optional(check: Check) -> Check:
    """Allow None too."""

    def checked(name: str, value: object) -> None:
        if value is not None:
            check(name, value)

    return checked


def _check_address(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} must be the address of a Ray cluster, or 'local'; got {quote(value)}", argument=name)


def _check_callable(name: str, value: object) -> None:
    if not callable(value):
        raise InputError(f"{name} must be a function; got {quote(value)}")


_CHECKS: Mapping[str, Check] = {
    "budget": partial(check_whole, least=1),
    "seed": partial(check_whole, least=0),
    "at_most": _optional(partial(check_whole, least=1)),
    "sample": _optional(partial(check_whole, least=0)),
    "batch_size": _optional(partial(check_whole, least=1, most=_LARGEST_BATCH)),
    "in_flight": _optional(partial(check_whole, least=1, most=_MOST_IN_FLIGHT)),
    "workers": _optional(partial(check_whole, least=1)),
    "ray": _optional(_check_address),
    "loss": _optional(partial(check_choice, choices=get_args(Loss))),
    "scores": _optional(partial(check_choice, choices=get_args(Scores))),
    "eight_bit": check_flag,
    "progress": _optional(check_flag),
    "verify": check_flag,
    "watch": _optional(_check_callable),
}

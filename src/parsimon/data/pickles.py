"""Read the pickle of a CIFAR-10 batch safely: arrays, numbers and texts only.

A pickle can call any function that it names. Here it may name only numpy's array functions, and gets stand-ins that
record their arguments.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from parsimon.errors import InputError, first_line


class _Kind:
    """Stand in for numpy.dtype."""

    def __init__(self, code: str, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass  # byte order and fields do not matter for bytes


class _Array:
    """Stand in for numpy.ndarray."""

    state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def array(self) -> Any:
        _, shape, kind, by_columns, content = self.state
        if kind.code != "u1":
            raise ValueError(f"expected an array of bytes; got {kind.code}")
        content = content.encode("latin1") if isinstance(content, str) else content  # Python 2 wrote bytes as text
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_columns else "C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


_STAND_INS = {
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray._reconstruct": _reconstruct,  # since numpy 2
    "numpy.ndarray": _Array,
    "numpy.dtype": _Kind,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[f"{module}.{name}"]
        except KeyError:
            raise InputError(f"it names {module}.{name}; only arrays are allowed") from None


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in a file, with numpy arrays of bytes."""
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="latin1").load()
        return {key: value.array() if isinstance(value, _Array) else value for key, value in content.items()}
    except InputError as error:
        raise InputError(f"{path} was not opened: {error}. None of its code was run.") from error
    except Exception as error:  # damaged pickles raise many kinds
        raise InputError(f"{path} cannot be read as a pickled batch: {first_line(error)}") from error

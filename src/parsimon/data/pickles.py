"""Read the pickle of a CIFAR-10 batch safely: arrays, numbers and texts only.

A pickle can call any function that it names. Here it may name only numpy's array functions, and gets stand-ins that
record their arguments.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

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


class SafeUnpickler(pickle.Unpickler):
    """Load a pickle that may name only the functions and classes of `allowed`, and gets their stand-ins.

    Attributes:
        allowed: The stand-ins by the full names that they replace.
    """

    allowed: ClassVar[Mapping[str, Any]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a name."""
        try:
            return self.allowed[f"{module}.{name}"]
        except KeyError:
            raise InputError(f"it names {module}.{name}, which is not allowed") from None


@contextmanager
def safe_errors(path: Path, what: str) -> Iterator[None]:
    """Turn every error of reading a pickle into a sentence about the file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path} was not opened: {error}. None of its code was run.") from error
    except Exception as error:  # damaged pickles raise many kinds
        raise InputError(f"{path} cannot be read as {what}: {first_line(error)}") from error


class _BatchUnpickler(SafeUnpickler):
    allowed: ClassVar = _STAND_INS


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in a file, with numpy arrays of bytes."""
    with safe_errors(path, "a pickled batch"), path.open("rb") as file:
        content = _BatchUnpickler(file, encoding="latin1").load()
        return {key: value.array() if isinstance(value, _Array) else value for key, value in content.items()}

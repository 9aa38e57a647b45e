"""Read the weights of a torch checkpoint safely and without torch.

A checkpoint is a pickle, which can call any function that it names. Here it may name only what describes a tensor, and
gets stand-ins. The layout is that of `torch.save` before torch 1.6. It has five pickles (magic number, version,
machine, tensors, keys of their storages), then the length and the bytes of each storage.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.data.pickles import SafeUnpickler, safe_errors

_KINDS = {"torch.FloatStorage": "<f4", "torch.LongStorage": "<i8"}


class _Tensors(dict[str, Any]):
    """Stand in for collections.OrderedDict, on which torch sets an attribute."""

    def __setstate__(self, state: object) -> None:
        pass


def _tensor(storage: tuple[str, str], offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object) -> Any:
    """Stand in for torch._utils._rebuild_tensor_v2: record how a tensor lies in its storage."""
    return storage, offset, shape, strides


class _Unpickler(SafeUnpickler):
    allowed: ClassVar = {**_KINDS, "collections.OrderedDict": _Tensors, "torch._utils._rebuild_tensor_v2": _tensor}

    def persistent_load(self, described: Any) -> Any:
        _, kind, key, *_ = described
        return kind, key


def read_checkpoint(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file by name."""
    with safe_errors(path, "a torch checkpoint"), path.open("rb") as file:
        _magic, _version, _machine, tensors, keys = (_Unpickler(file).load() for _ in range(5))
        kinds = {key: kind for (kind, key), *_ in tensors.values()}
        storages = {}
        for key in keys:
            (length,) = struct.unpack("<q", file.read(8))
            storages[key] = np.frombuffer(file.read(length * np.dtype(kinds[key]).itemsize), kinds[key])
        return {name: _view(storages[key], *layout) for name, ((_, key), *layout) in tensors.items()}


def _view(storage: NDArray[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[Any]:
    steps = [stride * storage.itemsize for stride in strides]
    last = offset + sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))
    if not 0 <= last < len(storage) or min(strides, default=0) < 0 or offset < 0:
        raise ValueError(f"a tensor {shape} does not fit its storage of {len(storage)}")
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps, writeable=False)

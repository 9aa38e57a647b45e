"""An ONNX model as the model, through ONNX Runtime."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model, ScoreGradient
from parsimon.errors import ModelError, first_line, require
from parsimon.models.chunks import images_per_call, start_in_chunks
from parsimon.models.torch import TorchModel

_MOST_PER_CALL = 8  # images on a CPU: the runtime takes no less time per image in larger calls
_PICKLES = {".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt"}
_TWIN_TOLERANCE = 0.01  # of the largest score: a larger difference means that torch computes another function


class SessionModel(Model):
    """An ONNX Runtime session.

    The model takes one float32 input (images, channels, rows, columns) in [0, 1]; its first output is the scores. On a
    CPU, or if the model has a fixed batch size, one batch takes several calls.
    """

    image_shape: tuple[int | None, ...]

    def __init__(self, session: Any, concurrent_calls: int = 1) -> None:
        self._session = session
        self._concurrent_calls = concurrent_calls
        self._enter_process()
        self.asynchronous = concurrent_calls > 1
        self.saturating_batch = concurrent_calls * _MOST_PER_CALL
        inputs = session.get_inputs()
        if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 4:
            found = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
            raise ModelError(
                f"the ONNX model must have one float32 input (images, channels, rows, columns); got {found}. "
                "Wrap it in a Python function that prepares its input."
            )
        provider = session.get_providers()[0]
        self.backend = f"ONNX Runtime on {provider.removesuffix('ExecutionProvider')}"
        self.runtime = f"onnxruntime {require('onnxruntime', 'onnx').__version__}"
        self._on_cpu = provider == "CPUExecutionProvider"
        self._input = inputs[0].name
        self._output = session.get_outputs()[0].name
        batch, *shape = inputs[0].shape
        self._images_per_call = batch if isinstance(batch, int) else None
        self.fixed_batch = self._images_per_call is None and not self._on_cpu
        self.image_shape = tuple(side if isinstance(side, int) else None for side in shape)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        return self.start(images)()

    def _enter_process(self) -> None:
        """Create what a forked process cannot inherit."""
        self._process = os.getpid()
        calls = self._concurrent_calls
        self._map = map if calls == 1 else ThreadPoolExecutor(calls, "parsimon").map

    def _after_fork(self) -> None:
        """Continue in a forked process, if the session has no threads of its own: they would be missing here."""
        options = self._session.get_session_options()
        if not self._on_cpu or options.intra_op_num_threads != 1 or options.execution_mode.name != "ORT_SEQUENTIAL":
            raise ModelError(
                "this ONNX model was opened in another process, and its threads do not exist in a fork of it: open the "
                "model in this process, start processes by the method `spawn`, or set intra_op_num_threads to 1"
            )
        self._enter_process()

    def start(self, images: NDArray[np.float32]) -> Callable[[], NDArray[Any]]:
        if self._process != os.getpid():
            self._after_fork()
        if self.fixed_batch:
            return partial(self._run, images)
        size = self._images_per_call or images_per_call(images.shape[1:], _MOST_PER_CALL)
        return start_in_chunks(self._run, images, size, self.namespace, self._map)

    def _run(self, images: NDArray[np.float32]) -> NDArray[Any]:
        return np.asarray(self._session.run([self._output], {self._input: images})[0])


class OnnxModel(SessionModel):
    """The model in an ONNX file.

    On a CPU, one call with small images does not keep several cores busy, so each core makes its own single-threaded
    calls. Scores then do not depend on the number of cores.

    Gradients come from a copy in torch, on the CPU, which is made for the first of them.
    """

    gives = "gradient"

    def __init__(self, path: Path) -> None:
        cores = _available_cores()
        super().__init__(_open_session(path, cores))
        if self._on_cpu and _is_small(self.image_shape):
            if cores > 1:
                super().__init__(_open_session(path, threads=1), concurrent_calls=cores)
            self.backend = "ONNX Runtime, one single-threaded call per core"
        with path.open("rb") as file:
            self.fingerprint = hashlib.file_digest(file, "sha256").hexdigest()
        self._path = path
        self._twin_agrees = False

    def vjp(self, images: NDArray[np.float32], score_gradient: ScoreGradient) -> tuple[NDArray[Any], NDArray[Any]]:
        scores, gradients = self._twin.vjp(self._twin.namespace.asarray(images), score_gradient)
        if not self._twin_agrees:
            self._check_twin(scores, self(images))
            self._twin_agrees = True
        return scores, gradients

    @cached_property
    def _twin(self) -> TorchModel:
        return TorchModel(as_module(self._path))

    def _check_twin(self, scores: NDArray[Any], expected: NDArray[Any]) -> None:
        """Refuse gradients of another function, which would make the model look more robust than it is."""
        tolerance = _TWIN_TOLERANCE * float(np.abs(expected).max())
        if not np.allclose(scores, expected, rtol=0, atol=tolerance, equal_nan=True):
            raise ModelError(
                f"the gradients of {self._path} cannot be trusted: evaluated in torch, its scores differ from those of "
                f"ONNX Runtime by up to {np.abs(scores - expected).max():.2g}. Pass the model as a torch module."
            )


def as_module(path: Path) -> Any:
    """Return the model in an ONNX file as a torch module, with gradients and in evaluation mode."""
    require("torch", "torch")
    onnx = require("onnx", "torch")
    from parsimon.models.onnx_in_torch import OnnxModule

    return OnnxModule(onnx.load(str(path)))


def _available_cores() -> int:
    """Return the number of cores, or OMP_NUM_THREADS, which ONNX Runtime ignores."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(os.environ.get("OMP_NUM_THREADS", 0)) or available


def _is_small(shape: tuple[int | None, ...]) -> bool:
    """Return whether a call can hold the largest number of images of this shape."""
    sides = tuple(side for side in shape if side is not None)
    return sides == shape and images_per_call(sides, _MOST_PER_CALL) == _MOST_PER_CALL


def _open_session(path: Path, threads: int) -> Any:
    runtime = require("onnxruntime", "onnx")
    if not path.is_file():
        raise ModelError(f"there is no model file {path}: give the path of an ONNX file")
    if path.suffix.lower() in _PICKLES:
        raise ModelError(
            f"{path} may be a pickle, which can run any code when it is opened, so it is not opened. Export the "
            "model with torch.onnx.export, or build it in Python and pass the torch module."
        )
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    try:
        return runtime.InferenceSession(str(path), options, providers=_providers(runtime.get_available_providers()))
    except Exception as error:  # the runtime's errors have no common base of their own
        raise ModelError(f"{path} cannot be opened as an ONNX model: {first_line(error)}") from error


def _providers(available: Collection[str]) -> list[Any]:
    """Return the execution providers that keep single precision, in order of preference.

    Others may reduce it silently, as CUDA does with TensorFloat-32. To allow that, pass a session.
    """
    cuda = ("CUDAExecutionProvider", {"use_tf32": "0"})
    return [*([cuda] if cuda[0] in available else []), "CPUExecutionProvider"]

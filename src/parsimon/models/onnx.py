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
from parsimon.models.pieces import images_per_call, started_in_pieces
from parsimon.models.torch import TorchModel

_AT_MOST = 8  # images in a call on a processor, where the runtime takes no less time for each of more


class SessionModel(Model):
    """Shows images to an ONNX Runtime session.

    The model takes one float32 input (images, channels, rows, columns) in [0, 1]; its first output is the scores. On a
    processor, or where the model's number of images is fixed, it is called as often as it takes.
    """

    only_reads = True
    image_shape: tuple[int | None, ...]

    def __init__(self, session: Any, at_once: int = 1) -> None:
        """`at_once`: calls to make side by side, where a batch takes several."""
        self._session = session
        self._at_once = at_once
        self._enter_process()
        self.saturating_batch = at_once * _AT_MOST
        inputs = session.get_inputs()
        if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 4:
            found = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
            raise ModelError(
                f"the ONNX model must have one float32 input (images, channels, rows, columns); got {found}. "
                "Wrap it in a Python function that prepares its input."
            )
        self.backend = f"ONNX Runtime on {session.get_providers()[0].removesuffix('ExecutionProvider')}"
        self.runtime = f"onnxruntime {require('onnxruntime', 'onnx').__version__}"
        self._input = inputs[0].name
        self._output = session.get_outputs()[0].name
        batch, *shape = inputs[0].shape
        self._images_per_call = batch if isinstance(batch, int) else None
        self.fixed_batch = self._images_per_call is None and not self._on_cpu
        self.image_shape = tuple(side if isinstance(side, int) else None for side in shape)

    @property
    def _on_cpu(self) -> bool:
        return bool(self._session.get_providers()[0] == "CPUExecutionProvider")

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        return self.start(images)()

    def _enter_process(self) -> None:
        """Make what a forked process cannot inherit."""
        self._process = os.getpid()
        self._map = map if self._at_once == 1 else ThreadPoolExecutor(self._at_once, "parsimon").map

    def _after_fork(self) -> None:
        """Continue in a forked process, where the session's own threads are missing: a call would wait for them."""
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
        size = self._images_per_call or images_per_call(images.shape[1:], _AT_MOST)
        return started_in_pieces(self._run, images, size, self.namespace, self._map)

    def _run(self, images: NDArray[np.float32]) -> NDArray[Any]:
        return np.asarray(self._session.run([self._output], {self._input: images})[0])


class OnnxModel(SessionModel):
    """Shows images to the model in a file.

    On a processor, a call of small images does not keep several cores busy, so each core gets a call of its own. A
    score is then always computed by one thread, on however many cores the rest is.

    Gradients come from a twin in torch, on the CPU, which is made when the first one is asked for.
    """

    gives = "gradient"

    def __init__(self, path: Path) -> None:
        cores = _cores()
        super().__init__(_open(path, cores))
        if self._on_cpu and _small(self.image_shape):
            if cores > 1:
                super().__init__(_open(path, threads=1), at_once=cores)
            self.backend = "ONNX Runtime, one single-threaded call per core"
        with path.open("rb") as file:
            self.fingerprint = hashlib.file_digest(file, "sha256").hexdigest()
        self._path = path
        self._twin_agrees = False

    def vjp(self, images: NDArray[np.float32], score_gradient: ScoreGradient) -> tuple[NDArray[Any], NDArray[Any]]:
        scores, gradients = self._twin.vjp(self._twin.namespace.asarray(images), score_gradient)
        if not self._twin_agrees:
            self._compare(scores, self(images))
            self._twin_agrees = True
        return scores, gradients

    @cached_property
    def _twin(self) -> TorchModel:
        return TorchModel(as_module(self._path))

    def _compare(self, scores: NDArray[Any], expected: NDArray[Any]) -> None:
        """Gradients of another function than the file's would make the model look more robust than it is."""
        if not np.allclose(scores, expected, rtol=0, atol=0.01 * float(np.abs(expected).max()), equal_nan=True):
            raise ModelError(
                f"the gradients of {self._path} cannot be trusted: evaluated in torch, its scores differ from those of "
                f"ONNX Runtime by up to {np.abs(scores - expected).max():.2g}. Pass the model as a torch module."
            )


def as_module(path: Path) -> Any:
    """The model in an ONNX file as a torch module, with gradients and in evaluation mode."""
    require("torch", "torch")
    onnx = require("onnx", "torch")
    from parsimon.models.onnx_in_torch import OnnxModule

    return OnnxModule(onnx.load(str(path)))


def _cores() -> int:
    """How many there are for the model, or as many as OMP_NUM_THREADS allows, which the runtime alone does not heed."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(os.environ.get("OMP_NUM_THREADS", 0)) or available


def _small(shape: tuple[int | None, ...]) -> bool:
    """Whether as many images of a shape fit into a call as may be in one."""
    sides = tuple(side for side in shape if side is not None)
    return sides == shape and images_per_call(sides, _AT_MOST) == _AT_MOST


def _open(path: Path, threads: int) -> Any:
    runtime = require("onnxruntime", "onnx")
    if not path.is_file():
        raise ModelError(f"there is no model file {path}: give the path of an ONNX file")
    if path.suffix.lower() in {".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt"}:
        raise ModelError(
            f"{path} may be a pickle, which can run any code when it is opened, so it is not opened. Export the "
            "model with torch.onnx.export, or build it in Python and pass the torch module."
        )
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    try:
        return runtime.InferenceSession(str(path), options, providers=_exact(runtime.get_available_providers()))
    except Exception as error:  # the runtime's errors have no common base of their own
        raise ModelError(f"{path} cannot be opened as an ONNX model: {first_line(error)}") from error


def _exact(available: Collection[str]) -> list[Any]:
    """Where the runtime may compute, in the order of preference: only where single precision is kept.

    Others may take less without being asked, as CUDA would, too (TensorFloat-32). Whoever wants that makes a session.
    """
    cuda = ("CUDAExecutionProvider", {"use_tf32": "0"})
    return [*([cuda] if cuda[0] in available else []), "CPUExecutionProvider"]

"""An ONNX model as the model, through ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
from numpy.typing import NDArray

from parsimon.errors import ModelError, first_line, require


class OnnxOracle:
    """Shows images to an ONNX Runtime session, or to one that is opened for a file.

    The model takes one float32 input (images, channels, rows, columns) in [0, 1]; its first output is the scores. A
    file whose number of images is fixed is called as often as it takes.
    """

    namespace = numpy_namespace
    device = "cpu"
    # Kernels are picked by the shape of the batch, and may round differently.
    fixed_batch = True

    def __init__(self, model: str | Path | Any) -> None:
        self._runtime = require("onnxruntime", "onnx")
        self._session = self._open(Path(model)) if isinstance(model, str | Path) else model
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 4:
            found = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
            raise ModelError(
                f"the ONNX model must have one float32 input (images, channels, rows, columns); got {found}. "
                "Wrap it in a Python function that prepares its input."
            )
        self._input = inputs[0].name
        self._output = self._session.get_outputs()[0].name
        batch, *shape = inputs[0].shape
        self._images_per_call = batch if isinstance(batch, int) else None
        self.image_shape = tuple(side if isinstance(side, int) else None for side in shape)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        size = self._images_per_call
        if size is None or size == len(images):
            return self._run(images)
        padded = np.concatenate([images, np.zeros((-len(images) % size, *images.shape[1:]), images.dtype)])
        parts = [self._run(padded[start : start + size]) for start in range(0, len(padded), size)]
        return np.concatenate(parts)[: len(images)]

    def _run(self, images: NDArray[np.float32]) -> NDArray[Any]:
        return np.asarray(self._session.run([self._output], {self._input: images})[0])

    def _open(self, path: Path) -> Any:
        if not path.is_file():
            raise ModelError(f"there is no model file {path}: give the path of an ONNX file")
        if path.suffix.lower() in {".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt"}:
            raise ModelError(
                f"{path} may be a pickle, which can run any code when it is opened, so it is not opened. Export the "
                "model with torch.onnx.export, or build it in Python and pass the torch module."
            )
        try:
            return self._runtime.InferenceSession(str(path), providers=self._runtime.get_available_providers())
        except Exception as error:  # the runtime's errors have no common base of their own
            raise ModelError(f"{path} cannot be opened as an ONNX model: {first_line(error)}") from error

"""An ONNX file as a model of MLServer, which imports this in an environment of its own."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):  # type: ignore[misc]
    """Of the file that its settings name; an input of 8 bits is channels last."""

    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
        path = self.settings.parameters.uri
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        images: Any = NumpyCodec.decode_input(payload.inputs[0])
        if images.dtype == np.uint8:
            images = np.ascontiguousarray(images.transpose(0, 3, 1, 2)) / np.float32(255)
        scores = self._session.run(None, {self._input: images})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("scores", scores)])

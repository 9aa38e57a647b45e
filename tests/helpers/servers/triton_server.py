"""Triton with an ONNX file as the model `robust`, run in an environment of its own: FILE GRPC-PORT HTTP-PORT.

`robust` takes float32, channels first; `robust-nhwc` takes uint8, channels last, at most 16 images at once.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

path, grpc_port, http_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name


@batch  # type: ignore[untyped-decorator]
def robust(images: NDArray[np.float32]) -> list[NDArray[Any]]:
    return [np.asarray(session.run(None, {name: images})[0])]


@batch  # type: ignore[untyped-decorator]
def channels_last(images: NDArray[np.uint8]) -> list[NDArray[Any]]:
    pixels = np.ascontiguousarray(images.transpose(0, 3, 1, 2)) / np.float32(255)
    return [np.asarray(session.run(None, {name: pixels})[0])]


config = TritonConfig(
    grpc_address="127.0.0.1",
    grpc_port=grpc_port,
    http_address="127.0.0.1",
    http_port=http_port,
    allow_metrics=False,
)
scores = [Tensor(name="scores", dtype=np.float32, shape=(10,))]
with Triton(config=config) as triton:
    for model, function, dtype, shape, most in (
        ("robust", robust, np.float32, (3, 32, 32), 256),
        ("robust-nhwc", channels_last, np.uint8, (32, 32, 3), 16),
    ):
        triton.bind(
            model_name=model,
            infer_func=function,
            inputs=[Tensor(name="images", dtype=dtype, shape=shape)],
            outputs=scores,
            config=ModelConfig(max_batch_size=most),
        )
    triton.serve()

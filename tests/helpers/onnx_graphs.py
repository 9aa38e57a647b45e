"""Small ONNX models from `x` to `y`, and what ONNX Runtime says of them, for tests of their twins in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from parsimon.models.onnx_in_torch import OnnxModule

Array = NDArray[Any]


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int | str],
    constants: dict[str, Array] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """From `x` to `y`."""
    stored = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def runtime(model: onnx.ModelProto, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns where onnx expects another shape than its own
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], {session.get_inputs()[0].name: x})[0])


def agree(model: onnx.ModelProto, x: Array) -> None:
    """The twin's numbers are those of ONNX Runtime, and its gradients are the differences of its numbers."""
    twin = OnnxModule(model)
    scores = twin.evaluate(torch.from_numpy(x))
    expected = runtime(model, x)
    assert scores.shape == expected.shape
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-5, atol=1e-5)
    leaf = torch.from_numpy(x).double().requires_grad_()
    assert torch.autograd.gradcheck(twin.double().evaluate, leaf, fast_mode=True)

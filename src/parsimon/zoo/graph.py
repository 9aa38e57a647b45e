"""Build ONNX networks layer by layer, for the converters of the zoo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import require

if TYPE_CHECKING:
    import onnx

Array = NDArray[np.float32]
Padding = Literal["same", "valid"] | int

_OPSET, _IR_VERSION = 17, 8  # old enough for every supported ONNX Runtime


class Graph:
    """An ONNX network under construction: each method adds a layer and returns the name of its output.

    The input `images` has shape (n, channels, rows, columns) with n open. Padding is a number of pixels on every side,
    or that of TensorFlow: its `same` gives an output side of side / stride, rounded up, with an odd pixel of padding at
    the end, and its `valid` does not pad.
    """

    def __init__(self, channels: int, rows: int, columns: int) -> None:
        self._onnx: Any = require("onnx", "zoo")
        self._shape = (channels, rows, columns)
        self._sides = {"images": (rows, columns)}
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def affine(self, value: str, scale: float | Sequence[float], shift: float | Sequence[float]) -> str:
        """Multiply by a scale and add a shift, each a number or one number per channel."""
        scaled = self._same_sides("Mul", value, np.reshape(scale, (1, -1, 1, 1)))
        return self._same_sides("Add", scaled, np.reshape(shift, (1, -1, 1, 1)))

    def conv(
        self, value: str, weight: Array, bias: Array, *, stride: int = 1, padding: Padding = "same", groups: int = 1
    ) -> str:
        """Convolve; the weight has shape (outputs, inputs / groups, rows, columns)."""
        return self._windowed("Conv", (value, weight, bias), weight.shape[2:], stride, padding, group=groups)

    def max_pool(self, value: str, kernel: int, *, stride: int, padding: Padding) -> str:
        return self._windowed("MaxPool", (value,), (kernel, kernel), stride, padding)

    def average_pool(self, value: str, kernel: int, *, stride: int, padding: Padding) -> str:
        """Average over windows, excluding padding, as in TensorFlow."""
        return self._windowed("AveragePool", (value,), (kernel, kernel), stride, padding)

    def relu(self, value: str) -> str:
        return self._same_sides("Relu", value)

    def clip(self, value: str, low: float, high: float) -> str:
        return self._same_sides("Clip", value, np.asarray(low), np.asarray(high))

    def add(self, first: str, second: str) -> str:
        return self._same_sides("Add", first, second)

    def concat(self, values: Sequence[str]) -> str:
        """Concatenate channels."""
        return self._same_sides("Concat", *values, axis=1)

    def mean(self, value: str) -> str:
        """Average over all pixels, to shape (n, channels)."""
        return self._node("Flatten", self._node("GlobalAveragePool", value))

    def linear(self, value: str, weight: Array, bias: Array) -> str:
        """Apply a fully connected layer; the weight has shape (outputs, inputs)."""
        return self._node("Gemm", value, weight, bias, transB=1)

    def model(self, scores: str, classes: int) -> onnx.ModelProto:
        """Return the whole network, checked."""
        helper, number = self._onnx.helper, self._onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "parsimon",
            [helper.make_tensor_value_info("images", number, ["n", *self._shape])],
            [helper.make_tensor_value_info(scores, number, ["n", classes])],
            self._constants,
        )
        model: onnx.ModelProto = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="parsimon",
        )
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def _windowed(
        self,
        kind: str,
        inputs: Sequence[str | Array],
        kernel: Sequence[int],
        stride: int,
        padding: Padding,
        **more: Any,
    ) -> str:
        before, behind, sides = [], [], []
        for side, width in zip(self._sides[str(inputs[0])], kernel, strict=True):
            if padding == "same":
                total = max(0, (-(-side // stride) - 1) * stride + width - side)
            else:
                total = 0 if padding == "valid" else 2 * padding
            before.append(total // 2)
            behind.append(total - total // 2)
            sides.append((side + total - width) // stride + 1)
        output = self._node(
            kind, *inputs, kernel_shape=list(kernel), strides=[stride, stride], pads=before + behind, **more
        )
        self._sides[output] = (sides[0], sides[1])
        return output

    def _same_sides(self, kind: str, value: str, *others: str | NDArray[Any], **attributes: Any) -> str:
        output = self._node(kind, value, *others, **attributes)
        self._sides[output] = self._sides[value]
        return output

    def _node(self, kind: str, *inputs: str | NDArray[Any], **attributes: Any) -> str:
        output = f"{kind.lower()}_{len(self._nodes)}"
        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        self._nodes.append(self._onnx.helper.make_node(kind, names, [output], **attributes))
        return output

    def _constant(self, array: NDArray[Any]) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(array, np.float32, order="C"), name))
        return name


def fold_batch_norm(
    weight: Array, scale: Array, shift: Array, mean: Array, variance: Array, *, epsilon: float
) -> tuple[Array, Array]:
    """Return the weight and bias of one convolution equal to a bias-free one followed by a batch norm."""
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    bias = shift - mean * factor
    return (weight * factor[:, None, None, None]).astype(np.float32), bias.astype(np.float32)

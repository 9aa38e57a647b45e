"""Inception v3's conversion, on a small TFLite file with all of its operators, against torch.

The network itself is held against its accuracy on real images where it is installed, in test_zoo_networks.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
import onnx
import onnxruntime
import pytest
import tflite
import torch
from numpy.typing import NDArray
from torch.nn import functional as F  # noqa: N812  (torch's own convention)

from parsimon import ModelError
from parsimon.zoo import inception_v3

SIDE, CLASSES = 9, 5


class Quantised(NamedTuple):
    """A tensor as it is stored: whole numbers of a step, from a zero on."""

    shape: tuple[int, ...]
    scale: float
    zero: int
    steps: NDArray[Any] | None = None  # None: an activation

    @property
    def numbers(self) -> NDArray[np.float64]:
        assert self.steps is not None
        return (self.steps.astype(np.float64) - self.zero) * np.float64(np.float32(self.scale))

    @property
    def range(self) -> tuple[float, float]:
        return (0 - self.zero) * self.scale, (255 - self.zero) * self.scale


class Operator(NamedTuple):
    kind: str  # CONV_2D and its like
    inputs: list[int]
    output: int
    options: dict[str, int] = {}  # noqa: RUF012  (never changed)


_OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "CONCATENATION": "ConcatenationOptions",
}


def write_tflite(path: Path, tensors: list[Quantised], operators: list[Operator]) -> None:
    """Write a file whose first tensor is the input and whose last one is the output."""
    builder = flatbuffers.Builder(0)

    def table(kind: str, **fields: Any) -> int:
        getattr(tflite, f"{kind}Start")(builder)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(builder, value)
        made: int = getattr(tflite, f"{kind}End")(builder)
        return made

    def offsets(items: list[int]) -> int:
        builder.StartVector(4, len(items), 4)
        for item in reversed(items):
            builder.PrependUOffsetTRelative(item)
        made: int = builder.EndVector()
        return made

    def numbers(items: Any, kind: type) -> int:
        made: int = builder.CreateNumpyVector(np.asarray(items, kind).ravel())
        return made

    buffers, described = [table("Buffer")], []
    for tensor in tensors:
        scale, zero = numbers([tensor.scale], np.float32), numbers([tensor.zero], np.int64)
        quantisation = table("QuantizationParameters", Scale=scale, ZeroPoint=zero)
        steps = np.zeros(0, np.uint8) if tensor.steps is None else tensor.steps
        kind = tflite.TensorType.INT32 if steps.dtype == np.int32 else tflite.TensorType.UINT8
        shape = numbers(tensor.shape, np.int32)
        described.append(table("Tensor", Shape=shape, Type=kind, Buffer=len(buffers), Quantization=quantisation))
        buffers.append(table("Buffer", Data=numbers(np.frombuffer(steps.tobytes(), np.uint8), np.uint8)))
    kinds = sorted({operator.kind for operator in operators})
    codes = [table("OperatorCode", DeprecatedBuiltinCode=getattr(tflite.BuiltinOperator, kind)) for kind in kinds]
    listed = []
    for operator in operators:
        fields = {
            "OpcodeIndex": kinds.index(operator.kind),
            "Inputs": numbers(operator.inputs, np.int32),
            "Outputs": numbers([operator.output], np.int32),
        }
        if operator.kind in _OPTIONS:
            options = _OPTIONS[operator.kind]
            fields["BuiltinOptions"] = table(options, **operator.options)
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, options)
        listed.append(table("Operator", **fields))
    ends = [numbers([number], np.int32) for number in (0, len(tensors) - 1)]
    graph = table("SubGraph", Tensors=offsets(described), Inputs=ends[0], Outputs=ends[1], Operators=offsets(listed))
    vectors = {"OperatorCodes": offsets(codes), "Subgraphs": offsets([graph]), "Buffers": offsets(buffers)}
    builder.Finish(table("Model", Version=3, **vectors), b"TFL3")
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(builder.Output()))


@pytest.fixture
def tensors() -> list[Quantised]:
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Quantised:
        return Quantised(shape, 0.01, 120, rng.integers(0, 256, shape, np.uint8))

    def bias(count: int) -> Quantised:
        return Quantised((count,), 0.0002, 0, rng.integers(-2000, 2000, count, np.int32))

    return [
        Quantised((1, SIDE, SIDE, 3), 1 / 128, 128),
        *(weight(4, 3, 3, 3), bias(4), Quantised((1, SIDE, SIDE, 4), 0.008, 0)),  # 3: same
        Quantised((1, 4, 4, 4), 0.008, 0),  # 4: its maximum
        *(weight(2, 3, 3, 3), bias(2), Quantised((1, 4, 4, 2), 0.01, 100)),  # 7: valid, with a stride
        Quantised((1, 4, 4, 2), 0.01, 100),  # 8: its mean
        Quantised((1, 4, 4, 6), 0.01, 50),  # 9: both
        *(weight(3, 1, 3, 6), bias(3), Quantised((1, 4, 4, 3), 0.02, 0)),  # 12: a row of three
        Quantised((1, 1, 1, 3), 0.02, 0),  # 13: its mean over all pixels
        *(weight(1 + CLASSES, 1, 1, 3), bias(1 + CLASSES), Quantised((1, 1, 1, 1 + CLASSES), 0.001, 128)),
        Quantised((1, 1 + CLASSES), 0.001, 128),
    ]


def operators() -> list[Operator]:
    same, valid = ({"Padding": getattr(tflite.Padding, name)} for name in ("SAME", "VALID"))
    once, twice = ({"StrideW": stride, "StrideH": stride} for stride in (1, 2))
    three, four = ({"FilterWidth": size, "FilterHeight": size} for size in (3, 4))
    return [
        Operator("CONV_2D", [0, 1, 2], 3, same | once),
        Operator("MAX_POOL_2D", [3], 4, valid | twice | three),
        Operator("CONV_2D", [0, 5, 6], 7, valid | twice),
        Operator("AVERAGE_POOL_2D", [7], 8, same | once | three),
        Operator("CONCATENATION", [4, 8], 9, {"Axis": 3}),
        Operator("CONV_2D", [9, 10, 11], 12, same | once),
        Operator("AVERAGE_POOL_2D", [12], 13, valid | twice | four),
        Operator("CONV_2D", [13, 14, 15], 16, same | once),
        Operator("RESHAPE", [16], 17),
    ]


def expected_logits(tensors: list[Quantised], images: NDArray[np.float32]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """In double precision; and the activations before they are held to their range."""
    before = []

    def convolved(x: torch.Tensor, first: int, **settings: Any) -> torch.Tensor:
        weight, bias = (torch.from_numpy(tensor.numbers) for tensor in tensors[first : first + 2])
        y = F.conv2d(x, weight.permute(0, 3, 1, 2), bias, **settings)
        before.append(y)
        return y.clamp(*tensors[first + 2].range)

    x = (torch.from_numpy(images).double() * 255 - 128) / 128
    most = F.max_pool2d(convolved(x, 1, padding=1), 3, 2)
    mean = F.avg_pool2d(convolved(x, 5, stride=2), 3, 1, 1, count_include_pad=False)
    pixels = convolved(torch.cat([most, mean], 1), 10, padding=(0, 1))
    weight, bias = (torch.from_numpy(tensor.numbers) for tensor in tensors[14:16])
    return (pixels.mean((2, 3)) @ weight[:, 0, 0].T + bias)[:, 1:], before


def test_a_converted_file_computes_the_quantised_network(tmp_path: Path, tensors: list[Quantised]) -> None:
    write_tflite(tmp_path / inception_v3._FILE, tensors, operators())
    model = inception_v3.convert(tmp_path)
    images = np.random.default_rng(1).random((6, 3, SIDE, SIDE), dtype=np.float32)
    expected, before = expected_logits(tensors, images)
    for y, held in zip(before, (tensors[3], tensors[7], tensors[12]), strict=True):  # or clamping is not seen
        low, high = held.range
        assert (y < low).any()
        assert (y > high).any()
        assert ((low < y) & (y < high)).any()
    low, high = tensors[-1].range
    assert (expected < low).any() or (expected > high).any()  # logits are not clamped

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [side if isinstance(side, int) else None for side in session.get_inputs()[0].shape] == [None, 3, SIDE, SIDE]
    (logits,) = session.run(None, {"images": images})
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    assert not {"Transpose", "Softmax"} & {node.op_type for node in model.graph.node}


def test_weights_are_exactly_those_of_the_file(tmp_path: Path, tensors: list[Quantised]) -> None:
    write_tflite(tmp_path / inception_v3._FILE, tensors, operators())
    stored = [onnx.numpy_helper.to_array(each) for each in inception_v3.convert(tmp_path).graph.initializer]
    for tensor in (tensors[1], tensors[5], tensors[10]):
        kernel = tensor.numbers.astype(np.float32).transpose(0, 3, 1, 2)
        assert any(array.shape == kernel.shape and np.array_equal(array, kernel) for array in stored)


def test_an_operator_that_inception_v3_does_not_have_is_refused(tmp_path: Path, tensors: list[Quantised]) -> None:
    write_tflite(tmp_path / inception_v3._FILE, tensors, [*operators()[:1], Operator("TANH", [3], 4)])
    with pytest.raises(ModelError, match=f"does not have, number {tflite.BuiltinOperator.TANH}"):
        inception_v3.convert(tmp_path)

"""Operators of ONNX in torch, against ONNX Runtime and onnx's own examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from onnx_graphs import Array, agree, array, ints, model_of
from parsimon.models.onnx_in_torch import OnnxModule
from parsimon.models.onnx_operators import OPERATORS

# --- operators, against ONNX Runtime --------------------------------------------------------------------------------


class Case(NamedTuple):
    """An operator of `x` and constants."""

    kind: str
    attributes: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    constants: Sequence[Any] = ()  # None: left out
    shape: tuple[int, ...] = (2, 3, 4, 4)
    opset: int = 18
    positive: bool = False

    def __str__(self) -> str:
        settings = ",".join(f"{name}={value}" for name, value in self.attributes.items())
        return f"{self.kind}-{self.opset}({settings})"

    @property
    def model(self) -> onnx.ModelProto:
        named = {f"c{number}": value for number, value in enumerate(self.constants)}
        inputs = ["x", *("" if value is None else name for name, value in named.items())]
        node = helper.make_node(self.kind, inputs, ["y"], **self.attributes)
        return model_of([node], self.shape, {k: v for k, v in named.items() if v is not None}, self.opset)

    @property
    def x(self) -> Array:
        x = array(*self.shape)
        return np.abs(x) + np.float32(0.1) if self.positive else x


def real(number: float) -> Array:
    return np.array(number, np.float32)


CHANNELS = array(3, seed=1)
CASES = [
    *(Case(kind, constants=[array(3, 1, 1, seed=1)]) for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    Case("Sum", constants=[array(3, 1, 1, seed=1), array(1, 4, seed=2)]),
    *(Case(kind) for kind in ("Abs", "Erf", "Exp", "Identity", "Neg", "Relu", "Sigmoid", "Softplus", "Tanh")),
    *(Case(kind) for kind in ("Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Dropout", "Flatten")),
    *(Case(kind, positive=True) for kind in ("Log", "Sqrt", "Reciprocal")),
    *(Case("Pow", constants=[real(power)], positive=True) for power in (2, 0.5, -1)),
    Case("Elu", {"alpha": 0.3}),
    Case("LeakyRelu", {"alpha": 0.3}),
    Case("HardSigmoid", {"alpha": 1 / 6, "beta": 0.4}),
    Case("Gelu", opset=20),
    Case("Gelu", {"approximate": "tanh"}, opset=20),
    Case("PRelu", constants=[array(3, 1, 1, seed=1)]),
    Case("Clip", constants=[real(-0.5), real(0.7)]),
    Case("Clip", constants=[None, real(0.7)]),
    Case("Clip", {"min": -0.5, "max": 0.7}, opset=10),
    Case("Clip"),
    Case(
        "BatchNormalization", {"epsilon": 1e-2}, [CHANNELS, array(3, seed=2), array(3, seed=3), abs(array(3, seed=4))]
    ),
    Case("InstanceNormalization", {"epsilon": 1e-2}, [CHANNELS, array(3, seed=2)]),
    Case("LayerNormalization", {"axis": -2}, [array(4, 4, seed=1), array(4, 4, seed=2)]),
    Case("LayerNormalization", {"epsilon": 0.1}, [array(4, seed=1)]),
    Case("LRN", {"size": 3, "alpha": 0.3, "beta": 0.5, "bias": 2.0}, shape=(2, 5, 3, 3)),
    *(Case(kind) for kind in ("GlobalAveragePool", "GlobalMaxPool")),
    Case("Gemm", {}, [array(6, 5, seed=1), array(5, seed=2)], (3, 6)),
    Case("Gemm", {"transB": 1, "alpha": 0.5, "beta": 2.0}, [array(5, 6, seed=1), array(3, 1, seed=2)], (3, 6)),
    Case("Gemm", {"transA": 1, "alpha": 0.5}, [array(6, 5, seed=1)], (6, 3)),
    Case("MatMul", {}, [array(4, 5, seed=1)]),
    *(
        Case(kind, {"axis": axis}, opset=opset)
        for kind in ("Softmax", "LogSoftmax")
        for axis, opset in ((1, 13), (2, 11))
    ),
    *(Case(kind, opset=opset) for kind in ("Softmax", "LogSoftmax") for opset in (11, 13)),
    *(Case(kind, {"axes": [2, 3], "keepdims": 0}, opset=12) for kind in ("ReduceMean", "ReduceSum", "ReduceMax")),
    *(Case(kind, {"keepdims": 1}, [ints(-1)]) for kind in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2")),
    Case("ReduceMean"),
    Case("ReduceMean", {"noop_with_empty_axes": 1}),
    Case("Flatten", {"axis": -1}),
    Case("Flatten", {"axis": 0}),
    Case("Reshape", {}, [ints(0, -1, 2)]),
    Case("Squeeze", {}, [ints(-1, 1)], (2, 1, 3, 1)),
    Case("Squeeze", {"axes": [1]}, shape=(2, 1, 3, 1), opset=11),
    Case("Squeeze", shape=(2, 1, 3, 1)),
    Case("Unsqueeze", {}, [ints(-1, 0)]),
    Case("Unsqueeze", {"axes": [0, 5]}, opset=11),
    Case("Transpose", {"perm": [0, 2, 3, 1]}),
    Case("Transpose"),
    Case("Concat", {"axis": -3}, [array(2, 2, 4, 4, seed=1)]),
    Case("Expand", {}, [ints(2, 1, 3, 1)], (3, 1)),
    Case("Gather", {"axis": 2}, [np.array([[0, -1], [2, 2]])]),
    Case("Gather", {"axis": 1}, [np.array(1)]),
    Case("Slice", {}, [ints(1, -1), ints(3, -(2**62)), ints(2, 3), ints(1, -2)]),
    Case("Slice", {}, [ints(0, 1), ints(2**62, -1)]),
    Case("Slice", {"starts": [1], "ends": [3], "axes": [-1]}, opset=9),
    Case("Pad", {}, [ints(0, 0, 1, 2, 0, 0, 0, 3), real(0.5)]),
    Case("Pad", {}, [ints(1, 2), None, ints(-1)]),
    Case("Pad", {"pads": [0, 0, 1, 2, 0, 1, 0, 3], "value": 0.5}, opset=10),
    *(Case("Pad", {"mode": mode}, [ints(0, 0, 1, 2, 0, 0, 0, 3)]) for mode in ("reflect", "edge")),
    Case("Pad", {"mode": "wrap"}, [ints(0, 0, 1, 2, 0, 0, 0, 3)], opset=19),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_is_that_of_onnx_runtime(case: Case) -> None:
    agree(case.model, case.x)


def test_the_parts_of_a_split_go_their_own_ways() -> None:
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b", "c"], axis=1),
        helper.make_node("Concat", ["c", "a"], ["y"], axis=1),
    ]
    agree(model_of(nodes, (2, 6, 2, 2), {"sizes": ints(1, 2, 3)}), array(2, 6, 2, 2))


@pytest.mark.parametrize("numbers", [(5, 0, -2), (0, 6, 1), (1, 6, 3), (5, 0, 1)])
def test_a_range_is_that_of_onnx_runtime(numbers: tuple[int, int, int]) -> None:
    nodes = [
        helper.make_node("Range", ["start", "limit", "delta"], ["some"]),
        helper.make_node("Gather", ["x", "some"], ["y"], axis=1),
    ]
    constants = {name: np.array(number) for name, number in zip(("start", "limit", "delta"), numbers, strict=True)}
    agree(model_of(nodes, (2, 6, 2, 2), constants), array(2, 6, 2, 2))


# --- windows --------------------------------------------------------------------------------------------------------


@st.composite
def windows(draw: st.DrawFn, pooling: bool) -> tuple[tuple[int, int], dict[str, Any]]:
    """The sides of a picture, and a window that goes over them: at least one fits, and none lies on padding alone."""
    kernel, strides, dilations = (draw(st.tuples(st.integers(1, most), st.integers(1, most))) for most in (3, 3, 2))
    extents = [dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    rows, columns = (draw(st.integers(extent, 8)) for extent in extents)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    attributes["auto_pad"] = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if attributes["auto_pad"].startswith("SAME"):
        # ONNX Runtime refuses strides that leave pixels out, and departs from the specification with dilations.
        attributes |= {"strides": tuple(map(min, strides, kernel)), "dilations": (1, 1)}
    if attributes["auto_pad"] == "NOTSET":
        most = [size - 1 for size in kernel] if pooling else [2, 2]
        attributes["pads"] = [draw(st.integers(0, size)) for size in most * 2]
    return (rows, columns), attributes


@settings(max_examples=60)
@given(windows(pooling=False), st.sampled_from([(4, 4, 1), (4, 2, 2), (3, 6, 3)]), st.booleans())
def test_a_convolution_is_that_of_onnx_runtime(
    window: tuple[tuple[int, int], dict[str, Any]], channels: tuple[int, int, int], with_bias: bool
) -> None:
    sides, attributes = window
    given, made, groups = channels
    weight = array(made, given // groups, *attributes["kernel_shape"], seed=1)
    constants = [weight, array(made, seed=2)] if with_bias else [weight]
    case = Case("Conv", {**attributes, "group": groups}, constants, (2, given, *sides))
    agree(case.model, case.x)


@settings(max_examples=60)
@given(windows(pooling=True), st.booleans())
def test_a_maximum_of_pixels_is_that_of_onnx_runtime(
    window: tuple[tuple[int, int], dict[str, Any]], ceil_mode: bool
) -> None:
    sides, attributes = window
    case = Case("MaxPool", {**attributes, "ceil_mode": int(ceil_mode)}, shape=(2, 2, *sides))
    agree(case.model, case.x)


@settings(max_examples=60)
@given(windows(pooling=True), st.booleans(), st.booleans())
def test_a_mean_of_pixels_is_that_of_onnx_runtime(
    window: tuple[tuple[int, int], dict[str, Any]], ceil_mode: bool, count_include_pad: bool
) -> None:
    sides, attributes = window
    del attributes["dilations"]
    attributes |= {"ceil_mode": int(ceil_mode), "count_include_pad": int(count_include_pad)}
    case = Case("AveragePool", attributes, shape=(2, 2, *sides), opset=19)
    agree(case.model, case.x)


# --- operators, against onnx's own examples -------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # of numbers out of range, while the examples are made
def test_operators_give_what_onnx_says() -> None:
    """All its examples of the known operators, but those of numbers that no classifier has and of training."""
    from onnx.backend.test.case.node import collect_testcases

    others = re.compile(
        "uint|int8|int16|float16|FLOAT|INT|string|sequence|_opt$|empty_set|training|_dilations|equal_parts_.*opset13"
    )
    # Cast's examples are between types of all kinds, and those of Range begin with numbers, not with images.
    known = OPERATORS.keys() - {"Cast", "Range"}
    held = set()
    for example in collect_testcases(None):
        assert example.model is not None
        assert example.data_sets is not None
        kinds = {node.op_type for node in example.model.graph.node}
        if not kinds <= known or others.search(example.name):
            continue
        twin = OnnxModule(example.model)
        for inputs, (expected, *_) in example.data_sets:
            found = twin.evaluate(*(torch.tensor(np.asarray(each)) for each in inputs))
            assert found.shape == expected.shape, example.name
            np.testing.assert_allclose(found, expected, example.rtol, max(example.atol, 1e-6), err_msg=example.name)
        held |= kinds
    assert held == known

"""Gradients of ONNX files: their twin in torch against ONNX Runtime, onnx's own examples, and modules exported."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional as F  # noqa: N812  (torch's own convention)

from conftest import Bundled
from hand_made import hand_made
from parsimon import ModelError, zoo
from parsimon.oracles import as_oracle
from parsimon.oracles.onnx import OnnxOracle
from parsimon.oracles.onnx_in_torch import OnnxModule
from parsimon.oracles.onnx_operators import OPERATORS
from parsimon.protocol import GradientOracle

Array = NDArray[Any]


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


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


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


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
    held = set()
    for example in collect_testcases(None):
        assert example.model is not None
        assert example.data_sets is not None
        kinds = {node.op_type for node in example.model.graph.node}
        if not kinds <= OPERATORS.keys() or others.search(example.name):
            continue
        twin = OnnxModule(example.model)
        for inputs, (expected, *_) in example.data_sets:
            found = twin.evaluate(*(torch.tensor(np.asarray(each)) for each in inputs))
            assert found.shape == expected.shape, example.name
            np.testing.assert_allclose(found, expected, example.rtol, max(example.atol, 1e-6), err_msg=example.name)
        held |= kinds
    assert held == OPERATORS.keys() - {"Cast"}  # whose examples are between types of all kinds


# --- whole networks, against the modules that they were exported from -----------------------------------------------


class Gated(nn.Module):
    """A depthwise convolution, and channels that are weighed by what is in them, as in MobileNet and EfficientNet."""

    def __init__(self, activation: Callable[[], nn.Module], gate: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), activation()),
            *(nn.Conv2d(8, 8, 5, 1, 2, groups=8, bias=False), nn.BatchNorm2d(8), activation()),
        )
        self.weights = nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1), gate())
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        x = x * self.weights(F.adaptive_avg_pool2d(x, 1))
        return torch.as_tensor(self.head(x.mean([2, 3])))


class Dense(nn.Module):
    """A residual, a dense and a shuffled block with every kind of pool, as in ResNet, DenseNet and ShuffleNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.residual = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.dense = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=2, dilation=2))
        self.pools = nn.Sequential(
            nn.MaxPool2d(3, 2, 1),
            nn.AvgPool2d(3, 2, 1, ceil_mode=True),
            nn.AvgPool2d(3, 1, 1, count_include_pad=False),
            nn.MaxPool2d(2, 2, ceil_mode=True),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU6(), nn.Dropout(), nn.Linear(16, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.relu(x + self.residual(x))
        left, right = torch.cat([x, self.dense(x)], 1).chunk(2, dim=1)
        x = torch.cat([right, left], 1)
        n, channels, rows, columns = x.size()
        x = x.view(n, 2, channels // 2, rows, columns).transpose(1, 2).reshape(n, -1, rows, columns)
        return F.log_softmax(self.head(F.adaptive_avg_pool2d(self.pools(x), 1)), dim=1)


class Attending(nn.Module):
    """Patches with a class token and attention, as in a vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 5, 16))
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.mixed = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        x = self.patches(x).reshape(n, 16, -1).permute(0, 2, 1)
        x = torch.cat([self.token.expand(n, -1, -1), x], 1) + self.places
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        x = x + self.mixed(x)
        return torch.as_tensor(self.head(self.norm(x)[:, 0]))


class Odd(nn.Module):
    """What is left: other norms and activations, slices, a picture padded by hand, scores of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")
        self.norms = nn.Sequential(
            nn.GroupNorm(2, 8), nn.LeakyReLU(0.1), nn.InstanceNorm2d(8, affine=True), nn.PReLU(8)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1)
        x = self.norms(self.conv(F.pad((x - mean) / torch.sqrt(mean), (1, 2, 0, 1))))
        x = F.elu(x[:, :, 1:-1, ::2]).clamp(-0.9, 1.5) ** 2
        return F.normalize(self.head(torch.tanh(x).mean((2, 3))), dim=1)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "Gated, ReLU6": lambda: Gated(nn.ReLU6, nn.Sigmoid),
    "Gated, Hardswish": lambda: Gated(nn.Hardswish, nn.Hardsigmoid),
    "Gated, SiLU": lambda: Gated(nn.SiLU, nn.Softplus),
    "Dense": Dense,
    "Attending": Attending,
    "Odd": Odd,
}


# The newer exporter takes seconds, and has written the bundled networks too.
@pytest.fixture(params=[*((name, "trace") for name in NETWORKS), ("Attending", "graph"), ("Odd", "graph")], ids=str)
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[nn.Module, Path]:
    """A network with statistics of its own, and its file by either of torch's exporters."""
    name, way = request.param
    torch.manual_seed(0)
    module = NETWORKS[name]().eval()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(torch.as_tensor(part.running_mean))
            nn.init.uniform_(torch.as_tensor(part.running_var), 0.5, 2)
    path = tmp_path / "model.onnx"
    any_number: dict[str, Any] = {"dynamic_axes": {"x": {0: "n"}}, "dynamo": False}
    if way == "graph":
        any_number = {"dynamic_shapes": ({0: torch.export.Dim("n")},), "dynamo": True, "verbose": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.rand(2, 3, 16, 16),), path, input_names=["x"], **any_number)
    return module, path


def test_a_file_has_the_scores_and_gradients_of_the_module_that_it_was_exported_from(
    exported: tuple[nn.Module, Path],
) -> None:
    module, path = exported
    images = np.random.default_rng(0).random((3, 3, 16, 16), dtype=np.float32)
    weights = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    leaves = torch.from_numpy(images).requires_grad_()
    expected = module(leaves)
    (expected_gradients,) = torch.autograd.grad(expected, leaves, torch.from_numpy(weights))
    largest = float(expected_gradients.abs().max())
    assert largest > 0

    oracle = as_oracle(path)
    assert isinstance(oracle, GradientOracle)
    scores, gradients = oracle.pull_back(images, lambda _: weights)
    np.testing.assert_allclose(scores, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(oracle(images), expected.detach(), atol=1e-5)
    np.testing.assert_allclose(gradients, expected_gradients, atol=1e-4 * largest)


@pytest.mark.parametrize("name", zoo.NAMES)
def test_a_bundled_network_is_the_one_that_was_trained(name: str) -> None:
    """In double precision, where no ReLU is in doubt."""
    images = torch.from_numpy(zoo.images()[0][:8]).double()
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=(8, 10)))
    told = []
    for module in (hand_made(name), zoo.module(name)):
        leaves = images.clone().requires_grad_()
        scores = module.double()(leaves)
        told.append((scores.detach(), torch.autograd.grad(scores, leaves, weights)[0]))
    (expected, expected_gradients), (scores, gradients) = told
    np.testing.assert_allclose(scores, expected, atol=1e-10)
    np.testing.assert_allclose(gradients, expected_gradients, atol=1e-10)


def test_the_gradient_is_the_slope_of_what_onnx_runtime_says(bundled: Bundled) -> None:
    """In its own direction, over a step that single precision resolves."""
    oracle = OnnxOracle(zoo.path("robust"))
    images = bundled.images[:4]
    weights = np.random.default_rng(0).normal(size=(4, 10))
    _, gradients = oracle.pull_back(images, lambda _: weights)
    lengths = np.sqrt((gradients**2).sum(axis=(1, 2, 3), keepdims=True))
    step = (0.01 * gradients / lengths).astype(np.float32)
    rise = ((oracle(images + step) - oracle(images - step)) * weights).sum(axis=1) / 0.02
    np.testing.assert_allclose(rise, lengths.ravel(), rtol=0.02)


# --- files of every kind --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_file_that_fixes_its_number_of_images_tells_the_gradients_of_any_number(tmp_path: Path, count: int) -> None:
    weight = array(12, 5)
    nodes = [helper.make_node("Reshape", ["x", "two"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])]
    model = model_of(nodes, (2, 3, 2, 2), {"two": ints(2, 12), "w": weight})
    onnx.save(model, str(tmp_path / "two.onnx"))
    images, slope = array(count, 3, 2, 2), array(count, 5, seed=1)
    scores, gradients = OnnxOracle(tmp_path / "two.onnx").pull_back(images, lambda _: slope)
    np.testing.assert_allclose(scores, images.reshape(count, 12) @ weight, atol=1e-5)
    np.testing.assert_allclose(gradients.reshape(count, 12), slope @ weight.T, atol=1e-5)


def test_weights_in_half_precision_are_read() -> None:
    weight = array(3, 1, 1).astype(np.float16)
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["half", "w"], ["product"]),
        helper.make_node("Cast", ["product"], ["y"], to=TensorProto.FLOAT),
    ]
    model, x = model_of(nodes, (2, 3, 2, 2), {"w": weight}), array(2, 3, 2, 2)
    np.testing.assert_allclose(OnnxModule(model).evaluate(torch.from_numpy(x)), runtime(model, x), rtol=5e-3)


def test_what_the_scores_do_not_need_is_not_asked_for() -> None:
    """A second output by operators that are not known, and second outputs of those that are."""
    nodes = [
        helper.make_node("Dropout", ["x"], ["same", "mask"]),
        helper.make_node("NonZero", ["mask"], ["places"]),
        helper.make_node("Relu", ["same"], ["y"]),
    ]
    agree(model_of(nodes, (2, 3, 4, 4)), array(2, 3, 4, 4))


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (
            [
                helper.make_node("Det", ["x"], ["a"]),
                helper.make_node("NonZero", ["a"], ["b"]),
                helper.make_node("Relu", ["b"], ["c"]),
                helper.make_node("Inverse", ["c"], ["y"], domain="com.microsoft"),
            ],
            "Det, NonZero, com.microsoft.Inverse",
        ),
        ([helper.make_node("Relu", ["x"], ["y"], slope=1.0)], "Relu (got an unexpected keyword argument 'slope')"),
        (
            [helper.make_node("MaxPool", ["x"], ["most", "y"], kernel_shape=[2, 2])],
            "MaxPool with more than one output",
        ),
        (
            [helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 2])],
            "AveragePool with dilations",
        ),
        ([helper.make_node("Split", ["x"], ["y", "rest"])], "Split without the sizes of the parts"),
        ([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.UINT8)], "Cast to type number 2"),
    ],
    ids=["operators", "attribute", "output", "setting", "sizes", "type"],
)
def test_what_is_not_known_is_named(nodes: list[onnx.NodeProto], reason: str) -> None:
    sentence = f"the gradients of this ONNX model are not known, because of {reason}: pass it as a torch module"
    with pytest.raises(ModelError) as caught:
        OnnxModule(model_of(nodes, (2, 3, 4, 4)))(torch.zeros(2, 3, 4, 4))
    assert str(caught.value) == sentence


def test_a_twin_that_says_something_else_than_the_file_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    images = zoo.images()[0][:2]
    monkeypatch.setitem(OPERATORS, "Relu", lambda x: F.leaky_relu(x, 0.1))
    oracle = OnnxOracle(zoo.path("robust"))
    for _ in range(2):
        with pytest.raises(ModelError, match=r"robust.onnx cannot be trusted: .* differ .* by up to .*torch module"):
            oracle.pull_back(images, np.zeros_like)

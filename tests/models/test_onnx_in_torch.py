"""Gradients of ONNX files: their twin in torch against modules that were exported, and files of every kind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn
from torch.nn import functional as F  # noqa: N812  (torch's own convention)

from bundled_images import Bundled
from hand_made import hand_made
from onnx_graphs import agree, array, ints, model_of, runtime
from parsimon import ModelError, zoo
from parsimon.models import as_model
from parsimon.models.onnx import OnnxModel
from parsimon.models.onnx_in_torch import OnnxModule
from parsimon.models.onnx_operators import OPERATORS

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

    model = as_model(path)
    assert model.gives == "gradient"
    scores, gradients = model.vjp(images, lambda _: weights)
    np.testing.assert_allclose(scores, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(model(images), expected.detach(), atol=1e-5)
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
    model = OnnxModel(zoo.path("robust"))
    images = bundled.images[:4]
    weights = np.random.default_rng(0).normal(size=(4, 10))
    _, gradients = model.vjp(images, lambda _: weights)
    lengths = np.sqrt((gradients**2).sum(axis=(1, 2, 3), keepdims=True))
    step = (0.01 * gradients / lengths).astype(np.float32)
    rise = ((model(images + step) - model(images - step)) * weights).sum(axis=1) / 0.02
    np.testing.assert_allclose(rise, lengths.ravel(), rtol=0.02)


# --- files of every kind --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_file_that_fixes_its_number_of_images_tells_the_gradients_of_any_number(tmp_path: Path, count: int) -> None:
    weight = array(12, 5)
    nodes = [helper.make_node("Reshape", ["x", "two"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])]
    model = model_of(nodes, (2, 3, 2, 2), {"two": ints(2, 12), "w": weight})
    onnx.save(model, str(tmp_path / "two.onnx"))
    images, slope = array(count, 3, 2, 2), array(count, 5, seed=1)
    scores, gradients = OnnxModel(tmp_path / "two.onnx").vjp(images, lambda _: slope)
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
    sentence = f"the gradients of this ONNX model are unknown, because of {reason}: pass it as a torch module"
    with pytest.raises(ModelError) as caught:
        OnnxModule(model_of(nodes, (2, 3, 4, 4)))(torch.zeros(2, 3, 4, 4))
    assert str(caught.value) == sentence


def test_a_twin_that_says_something_else_than_the_file_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    images = zoo.images()[0][:2]
    monkeypatch.setitem(OPERATORS, "Relu", lambda x: F.leaky_relu(x, 0.1))
    model = OnnxModel(zoo.path("robust"))
    for _ in range(2):
        with pytest.raises(ModelError, match=r"robust.onnx cannot be trusted: .* differ .* by up to .*torch module"):
            model.vjp(images, np.zeros_like)

"""Models: the same weights give the same scores however they are opened, and a model is left as it was found."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch import nn

import parsimon
from bundled_images import Bundled
from hand_made import hand_made
from parsimon import zoo
from parsimon.core.model import Model
from parsimon.errors import InputError, MissingExtraError, ModelError, require
from parsimon.models import FunctionModel, as_model
from parsimon.models.named import open_model
from parsimon.models.onnx import OnnxModel, SessionModel
from parsimon.models.torch import TorchModel

SHAPE = (3, 4, 4)


def ask(model: Model, images: NDArray[np.float32]) -> NDArray[Any]:
    return model(model.namespace.asarray(images, device=model.device))


def random_images(count: int, shape: tuple[int, ...] = SHAPE) -> NDArray[np.float32]:
    return np.random.default_rng(count).random((count, *shape), dtype=np.float32)


class FakeEvent:
    """An event of a device that has always finished."""

    recorded: ClassVar[list[Any]] = []

    def __init__(self, device: Any) -> None:
        self.device = device

    def record(self, stream: Any) -> None:
        self.recorded.append(stream)

    def synchronize(self) -> None:
        assert self.recorded, "the event was not recorded"


@pytest.fixture
def pinned_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU pass for a GPU, to run the lines that start a batch there; pinning and events are faked."""
    empty = torch.empty
    monkeypatch.setattr(parsimon.models.torch, "_PINNED", ("cpu",))
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory=False, **kwargs: empty(*shape, **kwargs))  # noqa: ARG005
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch, "Event", FakeEvent)


def write_onnx(path: Path, batch: int | str, weights: NDArray[np.float32], shape: tuple[int, ...] = SHAPE) -> Path:
    """A linear classifier whose file fixes its number of images, or does not."""
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Flatten", ["images"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["scores"])],
            "linear",
            [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, *shape])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, weights.shape[1]])],
            [onnx.numpy_helper.from_array(weights, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, str(path))
    return path


@pytest.fixture
def weights() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32)


# --- the same scores ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7])
def test_torch_onnx_and_a_function_agree_on_the_bundled_weights(bundled: Bundled, count: int) -> None:
    images = bundled.images[:count]
    module = hand_made("robust")
    with torch.no_grad():
        expected = module(torch.from_numpy(images)).numpy()

    def function(images: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            return np.asarray(module(torch.from_numpy(images)))

    for model in (module, zoo.path("robust"), function):
        scores = ask(as_model(model), images)
        assert scores.shape == (count, 10)
        np.testing.assert_allclose(scores, expected, atol=1e-4)


# --- torch ----------------------------------------------------------------------------------------------------------


class Troubled(nn.Module):
    """Everything that evaluation must not touch: batch statistics, dropout, frozen parts, mixed training flags."""

    def __init__(self, *, failing: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.frozen_norm = nn.BatchNorm2d(3)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(48, 5)
        self.failing = failing
        self.train()
        self.frozen_norm.eval()
        self.head.bias.requires_grad_(False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.frozen_norm(self.norm(images))
        if self.failing:
            raise ValueError("out of order")
        scores: torch.Tensor = self.head(self.drop(features).flatten(1))
        return scores


def state_of(module: nn.Module) -> dict[str, Any]:
    return {
        "training": {name: part.training for name, part in module.named_modules()},
        "tensors": {name: tensor.numpy().tobytes() for name, tensor in module.state_dict().items()},
        "trainable": {name: weight.requires_grad for name, weight in module.named_parameters()},
        "gradients": {name: weight.grad for name, weight in module.named_parameters()},
        "kinds": {name: (tensor.dtype, tensor.device) for name, tensor in module.state_dict().items()},
    }


def test_a_module_is_evaluated_in_evaluation_mode_and_left_as_it_was_found() -> None:
    torch.manual_seed(0)
    module = Troubled()
    before = state_of(module)
    assert before["training"] == {"": True, "norm": True, "frozen_norm": False, "drop": True, "head": True}
    scores = ask(TorchModel(module), random_images(6))
    assert state_of(module) == before
    module.eval()  # only now, to know what evaluation gives
    with torch.no_grad():
        np.testing.assert_array_equal(scores, module(torch.from_numpy(random_images(6))).numpy())


def test_a_module_that_raises_is_left_as_it_was_found() -> None:
    module = Troubled(failing=True)
    before = state_of(module)
    with pytest.raises(ValueError, match="out of order"):
        ask(TorchModel(module), random_images(6))
    assert state_of(module) == before


def test_a_whole_attack_leaves_the_module_as_it_was_found() -> None:
    torch.manual_seed(0)
    module = Troubled()
    images = random_images(6)
    before = state_of(module)
    labels = ask(TorchModel(module), images).argmax(axis=1)
    result = parsimon.attack(module, images, labels, 0.05, budget=30)
    assert result.summary.queries > 0
    assert state_of(module) == before


def test_a_module_keeps_the_gradients_that_it_had() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    module(torch.from_numpy(random_images(2))).sum().backward()
    kept = [weight.grad for weight in module.parameters()]
    copies = [None if gradient is None else gradient.clone() for gradient in kept]
    ask(TorchModel(module), random_images(4))
    for weight, gradient, copy in zip(module.parameters(), kept, copies, strict=True):
        assert weight.grad is gradient
        assert copy is not None
        assert gradient is not None
        assert torch.equal(gradient, copy)


def test_gradients_may_be_switched_on_around_a_model() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    with torch.enable_grad():
        scores = ask(TorchModel(module), random_images(2))
        assert torch.is_grad_enabled()
    assert isinstance(scores, np.ndarray)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 1e-1)])
def test_a_module_of_another_precision_gets_images_of_its_own(dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    images = random_images(3)
    expected = module(torch.from_numpy(images)).detach().numpy()
    scores = ask(TorchModel(module.to(dtype)), images)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, atol=tolerance)


def test_a_module_without_parameters_works() -> None:
    class Means(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean((2, 3))

    images = random_images(4)
    np.testing.assert_allclose(ask(TorchModel(Means()), images), images.mean((2, 3)), atol=1e-6)


def test_a_module_that_returns_several_things_is_told_to_return_scores_alone() -> None:
    class Both(nn.Module):
        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return images.mean((2, 3)), images

    with pytest.raises(ModelError, match=r"one tensor of scores.*got tuple.*[Ww]rap"):
        parsimon.attack(Both(), random_images(4), [0, 1, 2, 0], 0.1)


# --- ONNX -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("batch", [1, 3, "n"])
def test_a_file_that_fixes_its_number_of_images_is_called_in_chunks(
    tmp_path: Path, weights: NDArray[np.float32], batch: int | str, count: int
) -> None:
    model = OnnxModel(write_onnx(tmp_path / "linear.onnx", batch, weights))
    images = random_images(count)
    scores = ask(model, images)
    assert scores.shape == (count, 5)
    np.testing.assert_allclose(scores, images.reshape(count, -1) @ weights, atol=1e-5)


def test_a_model_of_one_image_a_call_is_attacked_as_the_same_model_in_batches(
    tmp_path: Path, weights: NDArray[np.float32]
) -> None:
    images = random_images(6)
    labels = (images.reshape(6, -1) @ weights).argmax(axis=1)
    single, many = (
        parsimon.attack(write_onnx(tmp_path / f"{batch}.onnx", batch, weights), images, labels, 0.05, budget=40)
        for batch in (1, "n")
    )
    np.testing.assert_array_equal(single.queries, many.queries)
    np.testing.assert_array_equal(single.adversarial, many.adversarial)


def test_a_session_is_shown_the_images_like_its_file(bundled: Bundled) -> None:
    session = onnxruntime.InferenceSession(str(zoo.path("robust")), providers=["CPUExecutionProvider"])
    images = bundled.images[:4]
    np.testing.assert_array_equal(ask(as_model(session), images), ask(as_model(zoo.path("robust")), images))


def test_the_image_shape_of_a_file_is_known(tmp_path: Path, weights: NDArray[np.float32]) -> None:
    assert OnnxModel(write_onnx(tmp_path / "linear.onnx", "n", weights)).image_shape == SHAPE
    assert OnnxModel(zoo.path("robust")).image_shape[0] == 3


# --- which model ----------------------------------------------------------------------------------------------------


class Clip(Model):
    """A user's own model."""

    namespace: Any = np

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(images.mean(axis=(2, 3)))


def a_function(images: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(images.mean(axis=(2, 3)))


class Method:
    def scores(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return a_function(images)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: zoo.path("robust"), OnnxModel),
        (lambda: str(zoo.path("robust")), OnnxModel),
        (lambda: "robust", OnnxModel),
        (lambda: onnxruntime.InferenceSession(str(zoo.path("robust"))), SessionModel),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 5)), TorchModel),
        (lambda: a_function, FunctionModel),
        (lambda: Method().scores, FunctionModel),
        (lambda: Clip(), Clip),
    ],
    ids=["path", "string", "name", "session", "module", "function", "method", "model"],
)
def test_each_kind_of_object_becomes_its_kind_of_model(make: Callable[[], Any], kind: type) -> None:
    assert type(as_model(make())) is kind


def test_a_model_is_taken_as_it_is() -> None:
    model = Clip()
    assert as_model(model) is model


def test_only_what_is_asked_is_shown_to_a_function() -> None:
    """Behind it may be a service that counts: no padding, whatever the batch size."""
    shown = 0

    def counting(images: NDArray[np.float32]) -> NDArray[np.float32]:
        nonlocal shown
        shown += len(images)
        return np.asarray(10 * images.mean(axis=(2, 3)))

    images = random_images(3)
    labels = a_function(images).argmax(axis=1)
    result = parsimon.attack(counting, images, labels, 0.001, budget=17, batch_size=8)
    assert not result.success.any()
    assert shown == 3 + 3 + 3 * 17  # classified, classified again to see that answers repeat, attacked


# --- what a person types --------------------------------------------------------------------------------------------


def test_the_name_of_a_bundled_network_is_the_path_of_its_file() -> None:
    assert open_model("robust") == zoo.path("robust")


def test_a_file_is_its_path(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    assert open_model(str(tmp_path / "model.onnx")) == tmp_path / "model.onnx"


def test_a_file_with_a_colon_in_its_name_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "epoch:12").touch()
    assert open_model(str(tmp_path / "epoch:12")) == tmp_path / "epoch:12"


def test_a_function_of_a_module_builds_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_models_here.py").write_text("def build():\n    return 'built'\n\nclass Net:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = [*sys.path]
    assert open_model("my_models_here:build") == "built"
    assert type(open_model("my_models_here:Net")).__name__ == "Net"
    assert sys.path == before


def test_an_object_with_a_models_attributes_must_be_a_model() -> None:
    class Lookalike:
        namespace, device, fixed_batch = np, "cpu", False

        def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
            return a_function(images)

    with pytest.raises(InputError, match=r"Lookalike has the attributes .* subclass of parsimon.models.Model"):
        as_model(Lookalike())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_package.models:build", ["no_such_package.models:build", "No module named 'no_such_package'"]),
        ("json:loads", ["json:loads", "a function that takes no arguments and returns the model"]),
        (":", ["did not return a model"]),
    ],
)
def test_a_function_that_cannot_build_is_named_with_the_reason(name: str, words: list[str]) -> None:
    with pytest.raises(ModelError) as caught:
        open_model(name)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("json:dmups", "json has no function 'dmups': did you mean dumps? Its functions: dump, dumps"),
        ("/home/me/mymodels.py:build", "write mymodels:build, from the folder of the file; got '/home/me/mymodels.py"),
        ("mymodels.py:build", "write mymodels:build, from the folder of the file"),
        ("mine/mymodels:build", "write mymodels:build, from the folder of the file"),
    ],
)
def test_a_function_that_is_not_there_is_answered_with_what_to_write(name: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        open_model(name)
    assert words in str(caught.value)


def test_an_unknown_name_is_answered_with_what_can_be_named() -> None:
    with pytest.raises(InputError) as caught:
        open_model("resnet")
    for word in ("'resnet'", "robust", "ONNX file", "package.module:function"):
        assert word in str(caught.value)


def test_an_unknown_bundled_network_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"robust and standard; .*got 'resnet'"):
        zoo.path("resnet")


# --- extras ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "use", "extra"),
    [
        ("onnxruntime", lambda: as_model(zoo.path("robust")), "parsimon[onnx]"),
        ("torch", lambda: zoo.module("robust"), "parsimon[torch]"),
        ("onnx", lambda: zoo.module("robust"), "parsimon[torch]"),
    ],
    ids=["onnxruntime", "torch", "onnx"],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, missing: str, use: Callable[[], Any], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # as Python itself marks what cannot be imported
    with pytest.raises(MissingExtraError) as caught:
        use()
    assert str(caught.value) == f"this needs {missing}, which is not installed: pip install '{extra}'"


def test_a_missing_package_is_an_import_error_too() -> None:
    with pytest.raises(ImportError, match="no_such_package") as caught:
        require("no_such_package", "some")
    assert isinstance(caught.value, MissingExtraError)


@pytest.mark.usefixtures("pinned_cpu")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_that_was_started_on_a_device_has_the_scores_of_a_call(dtype: Any) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 5), nn.Dropout(0.5)).to(dtype).train()
    model = TorchModel(module)
    assert model.asynchronous
    batches = [model.put(random_images(count)) for count in (3, 5)]
    waits = [model.start(batch) for batch in batches]
    assert FakeEvent.recorded[-1] == "stream of cpu"
    for wait, batch in zip(waits, batches, strict=True):
        assert np.array_equal(wait(), model(batch))
        assert wait().dtype == np.float32
    assert all(part.training for part in module.modules())


@pytest.mark.usefixtures("pinned_cpu")
@pytest.mark.parametrize("attack", ["parsimonious", "thrift", "nes,samples=6"])
def test_an_attack_on_a_device_has_the_outcomes_of_one_that_waits(attack: str) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    images = random_images(20)
    ahead, in_turn = TorchModel(module), TorchModel(module)
    in_turn.asynchronous = False
    first, second = (
        parsimon.attack(model, images, "predicted", 0.05, attack=attack, budget=40, batch_size=4, progress=False)
        for model in (ahead, in_turn)
    )
    assert first.outcomes == second.outcomes


@pytest.mark.parametrize(
    "weights",
    [
        {"0.weight": torch.zeros(10, 3), "0.bias": torch.zeros(10)},
        {"epoch": 3, "state_dict": {"0.weight": torch.zeros(10, 3)}},
    ],
    ids=["state dict", "checkpoint"],
)
def test_weights_are_not_taken_for_models(weights: dict[str, object]) -> None:
    images = np.zeros((2, 3, 8, 8), np.float32)
    for call in (parsimon.attack, parsimon.evaluate):
        with pytest.raises(InputError, match=r"the model is a state dict.*load_state_dict"):
            call(weights, images, [0, 0], 0.1)

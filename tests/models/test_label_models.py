"""Models that return labels: in whatever form they come, a label-only attack finds what it finds in the scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch import nn

from fake_servers import http_server, inference
from parsimon import InputError, Result
from parsimon.errors import ModelError
from parsimon.models import HttpModel, Request, RequestPolicy
from small_model import IMAGES, LABELS, WEIGHTS, Pixels, attack, linear, softmax

SETTINGS: Any = {"attack": "rays", "eps": 0.05, "budget": 150}
FEW: Any = {**SETTINGS, "eps": 0.3, "budget": 12}  # for models behind a network, which are slow


@pytest.fixture(scope="module")
def expected() -> Result:
    """Attack the scores with an attack that sees only the label."""
    result: Result = attack(**SETTINGS)
    assert 0 < result.success.sum() < len(IMAGES)  # or else little would be tested
    return result


def numbers(images: Pixels) -> NDArray[Any]:
    return np.asarray(linear(images).argmax(axis=1))


def one_hot(images: Pixels) -> NDArray[Any]:
    return np.asarray(np.eye(10, dtype=np.float32)[numbers(images)])


def check(result: Result, expected: Result) -> None:
    assert result.outcomes == expected.outcomes
    assert result.clean.kind == result.threat.scores == "labels"
    assert result.clean.confidence is None
    assert all(outcome.confidence is None for outcome in result.outcomes)
    assert result.warnings == ()


@pytest.mark.parametrize("scores", [None, "labels"])
@pytest.mark.parametrize(
    "model",
    [
        numbers,
        lambda images: numbers(images)[:, None],
        lambda images: numbers(images).astype(np.uint8),
        lambda images: numbers(images).tolist(),
        one_hot,
        lambda images: one_hot(images).astype(np.int64),
    ],
)
def test_labels_of_every_form_are_attacked_alike(model: Any, scores: Any, expected: Result) -> None:
    check(attack(model, **SETTINGS, scores=scores), expected)


# --- frameworks -----------------------------------------------------------------------------------------------------


class Labels(nn.Module):
    """The linear model, as a convolution, such that its memory format may be chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 10, 8, bias=False)
        self.layer.weight = nn.Parameter(torch.from_numpy(WEIGHTS.T.reshape(10, 3, 8, 8).copy()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        labels: torch.Tensor = self.layer(images).flatten(1).argmax(1)
        return labels


def test_a_torch_module_may_return_labels(expected: Result) -> None:
    check(attack(Labels(), **SETTINGS), expected)


def test_a_foolbox_model_may_return_labels(expected: Result) -> None:
    foolbox: Any = pytest.importorskip("foolbox")
    from parsimon.adapters.foolbox import RayS

    model = foolbox.PyTorchModel(Labels().eval(), bounds=(0, 1), device="cpu")
    check(attack(model, **SETTINGS), expected)
    labels = torch.from_numpy(changed_label())
    images, _, success = RayS(budget=150)(model, torch.from_numpy(IMAGES), labels, epsilons=[0, 0.05])
    assert success[0].tolist() == [True] + [False] * 5  # of the clean images
    assert success[1].tolist()[1:] == expected.success.tolist()[1:]
    assert np.array_equal(images[1].numpy()[1:], expected.adversarial[1:])


def changed_label() -> NDArray[np.int64]:
    labels = np.array(LABELS, np.int64)
    labels[0] = (labels[0] + 1) % 10
    return labels


def test_an_art_classifier_may_return_one_hot_rows(expected: Result) -> None:
    classifiers: Any = pytest.importorskip("art.estimators.classification")
    from parsimon.adapters.art import RayS

    model = classifiers.BlackBoxClassifier(one_hot, (3, 8, 8), 10, clip_values=(0, 1))
    check(attack(model, **SETTINGS), expected)
    assert np.array_equal(RayS(model, 0.05, budget=150).generate(IMAGES, LABELS), expected.adversarial)


def write_onnx(path: Path) -> Path:
    """Labels first and scores second, as scikit-learn's models are exported."""
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "labels",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10]),
        ],
        [onnx.numpy_helper.from_array(WEIGHTS, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def test_an_onnx_model_may_return_labels(tmp_path: Path, expected: Result) -> None:
    path = write_onnx(tmp_path / "labels.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for model in (path, session):
        check(attack(model, **SETTINGS), expected)
    with pytest.raises(InputError, match="PGD needs gradients, and this model returns only labels"):
        attack(path, attack="pgd", eps=0.05)


# --- behind a network -----------------------------------------------------------------------------------------------

Classify = Callable[[Any], Generator[Request, bytes, Any]]


def asking(port: int, read: Callable[[Any], Any]) -> Classify:
    def classify(images: Any) -> Generator[Request, bytes, Any]:
        body = yield Request(f"http://127.0.0.1:{port}/", json.dumps(images.tolist()).encode())
        return read(json.loads(body))

    return classify


def endpoint(answer: Callable[[Pixels], Any]) -> Any:
    return http_server(lambda asked: (200, json.dumps(answer(np.array(json.loads(asked.body), np.float32))).encode()))


@pytest.fixture(scope="module")
def few() -> Result:
    result: Result = attack(**FEW)
    assert 0 < result.success.sum() < len(IMAGES)
    return result


@pytest.mark.parametrize("batch", [1, 4])
def test_an_endpoint_may_return_class_numbers(batch: int, few: Result) -> None:
    with endpoint(lambda images: {"classes": numbers(images).tolist()}) as port:
        model = HttpModel(asking(port, lambda reply: reply["classes"]), RequestPolicy(batch=batch))
        there = attack(model, **FEW)
    check(there, few)
    assert there.traffic.answered == there.counters.rows


def best(images: Pixels) -> list[Any]:
    return [[int(row.argmax()), float(row.max())] for row in softmax(images)]


def test_the_best_class_with_its_probability_is_enough_for_targets() -> None:
    white = numbers(np.ones_like(IMAGES))  # where the first direction leads
    targeted = {**FEW, "eps": 0.6, "targets": white}
    here = attack(**targeted)
    assert here.success.any()
    with endpoint(best) as port:
        read = asking(port, lambda reply: [{number: chance} for number, chance in reply])
        for scores in ("labels", "probabilities", None):
            model = HttpModel(read, RequestPolicy(batch=4), top=1, classes=10)
            there = attack(model, **targeted, scores=scores)
            assert there.outcomes == here.outcomes
            assert there.clean.kind == (scores or "probabilities")
        with pytest.raises(InputError, match=r"most probable classes.*leave out targets"):
            attack(HttpModel(read, top=1, classes=10), targets="next")
        with pytest.raises(InputError, match="Thrift needs scores, and this model returns only labels"):
            attack(HttpModel(read, top=1, classes=10), scores="labels")


def test_class_numbers_need_no_top() -> None:
    with endpoint(lambda images: numbers(images).tolist()) as port:
        model = HttpModel(asking(port, list), RequestPolicy(batch=4), top=1, classes=10)
        with pytest.raises(ModelError, match="To return class numbers, leave out top and classes"):
            attack(model, **SETTINGS)


def test_a_server_may_return_class_numbers(few: Result) -> None:
    for shape in ((-1,), (-1, 1)):

        def infer(images: Pixels, shape: tuple[int, ...] = shape) -> NDArray[Any]:
            return numbers(images).reshape(shape)

        with http_server(inference(infer)) as port:
            check(attack(f"http://127.0.0.1:{port}/v2/models/m?fill=false", **FEW), few)

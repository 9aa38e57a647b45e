"""The bundled networks and images: CIFAR-10 classifiers small enough to be attacked in seconds.

`card(name)` says how a network was trained and how accurate it is. The same weights open two ways: `path(name)` is
the ONNX file, `module(name)` a torch module, for gradients.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError, require

NAMES = ("robust", "standard")

_HERE = Path(__file__).parent


def path(name: str) -> Path:
    """The ONNX file of a bundled network."""
    if name not in NAMES:
        raise InputError(f"the bundled networks are {' and '.join(NAMES)}; got {name!r}")
    return _HERE / f"{name}.onnx"


def card(name: str) -> dict[str, Any]:
    """How the network was trained, and its accuracy on CIFAR-10's 10,000 test images."""
    text: dict[str, Any] = json.loads(path(name).with_suffix(".json").read_text())
    return text


def module(name: str) -> Any:
    """The network as a torch module, in evaluation mode."""
    torch = require("torch", "torch")
    onnx = require("onnx", "torch")
    from parsimon.zoo.network import PreActivationResNet

    network = PreActivationResNet(card(name)["recipe"]["widths"]).folded()
    state = network.state_dict()
    for tensor in onnx.load(str(path(name))).graph.initializer:
        if tensor.name in state:
            state[tensor.name] = torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
    network.load_state_dict(state)
    return network


def images() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The first 1,000 CIFAR-10 test images (1000, 3, 32, 32) in [0, 1], and their labels."""
    with np.load(_HERE / "cifar10_test_1000.npz") as bundle:
        return bundle["images"].astype(np.float32) / np.float32(255), bundle["labels"].astype(np.int64)

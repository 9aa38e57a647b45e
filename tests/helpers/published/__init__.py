"""What the authors' published code did on small networks, query for query: 86 cases, recorded by running that code.

vectors.json holds, for each case, the image's number (which seeds the search), the class to leave (untargeted) or to
reach (targeted), whether it succeeded, after how many queries, and a hash of the final image. A failure's number of
queries runs past the budget there, because that code looks at its budget only between mini-batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon import Parsimonious, Threat
from parsimon.core.types import Image, Task

Network = Callable[[NDArray[np.float32]], NDArray[np.float64]]

LOSSES: dict[str, Any] = {"xent": "cross-entropy", "cw": "margin"}


@dataclass(frozen=True)
class Case:
    """One recorded run, and all that is needed to repeat it."""

    name: str
    network: Network
    attack: Parsimonious
    threat: Threat
    budget: int
    task: Task
    success: bool
    queries: int
    final_image: str | None  # a hash of its bytes, height x width x channel


def cases() -> list[Case]:
    recorded = json.loads((Path(__file__).parent / "vectors.json").read_text())
    return [_cifar(case) for case in recorded["cifar"]] + [_imagenet(case) for case in recorded["imagenet"]]


def hash_of(image: Image) -> str:
    return sha256(np.rint(image * 255).astype(np.uint8).transpose(1, 2, 0).tobytes()).hexdigest()


def _cifar(case: dict[str, Any]) -> Case:
    """32 x 32 integers in 0..255, radius 1."""
    levels = np.random.RandomState(100 + case["net"]).randint(0, 256, (10, 32, 32, 3))[case["image"]]
    image = np.ascontiguousarray(levels.transpose(2, 0, 1), np.float32) / np.float32(255)
    threat = Threat(1 / 255, case["targeted"], LOSSES[case["loss"]], eight_bit=True)
    goal = "targeted" if case["targeted"] else "untargeted"
    return Case(
        f"cifar-{case['net']}-{case['loss']}-{goal}-{case['image']}",
        pooled_network(case["net"], 10),
        Parsimonious("published", block=4),
        threat,
        3000,
        Task(case["image"], image, case["label"]),
        case["success"],
        case["queries"],
        case["adversarial_sha256"],
    )


def _imagenet(case: dict[str, Any]) -> Case:
    """299 x 299 floats in [0, 1], noise of 256 x 256; the images come one after another from one generator."""
    rng = np.random.RandomState(121)
    for _ in range(case["image"] + 1):
        pixels = rng.rand(1, 299, 299, 3)[0]
    image = np.ascontiguousarray(pixels.transpose(2, 0, 1), np.float32)
    goal = "targeted" if case["targeted"] else "untargeted"
    return Case(
        f"imagenet-{goal}-{case['image']}",
        wide_network(21, 100),
        Parsimonious("published", block=32, noise=(256, 256), delete_zero=False),
        Threat(0.02, case["targeted"]),
        1500,
        Task(case["image"], image, case["label"]),
        case["success"],
        case["queries"],
        None,
    )


def pooled_network(seed: int, classes: int) -> Network:
    """Means over blocks of 4 x 4 pixels, one hidden layer; 32 x 32 images."""
    return _network(seed, classes, side=8, hidden=40, gains=(14, 5), quantised=True)


def wide_network(seed: int, classes: int) -> Network:
    """Means over blocks of 13 x 13 pixels, one hidden layer; 299 x 299 images."""
    return _network(seed, classes, side=23, hidden=64, gains=(6, 6), quantised=False)


def _network(seed: int, classes: int, *, side: int, hidden: int, gains: tuple[int, int], quantised: bool) -> Network:
    rng = np.random.RandomState(seed)
    inputs = 3 * side * side
    first = rng.randn(inputs, hidden) / np.sqrt(inputs)
    second = rng.randn(hidden, classes) / np.sqrt(hidden)

    def logits(images: NDArray[np.float32]) -> NDArray[np.float64]:
        pixels = images.transpose(0, 2, 3, 1).astype(np.float64)
        if quantised:  # the recorded code had whole numbers in 0..255
            pixels = np.rint(pixels * 255)
        block = images.shape[-1] // side
        pooled = pixels.reshape(len(images), side, block, side, block, 3).mean((2, 4)).reshape(len(images), inputs)
        centred = pooled / 255.0 - 0.5 if quantised else pooled - 0.5
        scores: NDArray[np.float64] = np.tanh(centred @ first * gains[0]) @ second * gains[1]
        return scores

    return logits

"""What the authors' published code did on small networks, query for query: 86 cases, recorded by running that code.

vectors.json holds, for each case, the image's number (which seeds the search), the class to leave (untargeted) or to
reach (targeted), whether it succeeded, after how many queries, and a hash of the final image. A failure's number of
queries runs past the budget there, because that code looks at its budget only between mini-batches.

rays.json holds 34 runs of the code of RayS for single images: the class to leave or to reach, and the number of the
first query that was adversarial and within eps, or null if none of 3,000 was.
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


@dataclass(frozen=True)
class RaysCase:
    """One recorded run of RayS, and all that is needed to repeat it."""

    name: str
    network: Network
    threat: Threat
    budget: int
    task: Task
    queries: int | None  # up to the first success


def rays_cases() -> list[RaysCase]:
    recorded = json.loads((Path(__file__).parent / "rays.json").read_text())
    return [_rays(case) for case in recorded["cases"]]


def _rays(case: dict[str, Any]) -> RaysCase:
    """32 x 32 floats k / 255; the network had 255 times the image, in single precision."""
    levels = np.random.RandomState(500 + case["net"]).randint(0, 256, (6, 32, 32, 3))[case["image"]]
    image = np.ascontiguousarray((levels / 255).astype(np.float32).transpose(2, 0, 1))
    goal = "targeted" if case["targeted"] else "untargeted"
    return RaysCase(
        f"{case['net']}-{goal}-{case['image']}",
        pooled_network(case["net"], 10, rounded=False),
        Threat(case["eps"], case["targeted"], "label"),
        case["limit"],
        Task(case["image"], image, case["goal"]),
        case["first_success_query"],
    )


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


def pooled_network(seed: int, classes: int, *, rounded: bool = True) -> Network:
    """Means over blocks of 4 x 4 pixels, one hidden layer; 32 x 32 images, as levels 0 .. 255, rounded or not."""
    return _network(seed, classes, side=8, hidden=40, gains=(14, 5), to_levels=np.rint if rounded else np.asarray)


def wide_network(seed: int, classes: int) -> Network:
    """Means over blocks of 13 x 13 pixels, one hidden layer; 299 x 299 images."""
    return _network(seed, classes, side=23, hidden=64, gains=(6, 6), to_levels=None)


def _network(
    seed: int, classes: int, *, side: int, hidden: int, gains: tuple[int, int], to_levels: Callable[[Any], Any] | None
) -> Network:
    """`to_levels` is applied to pixels on the scale 0 .. 255; None: the network takes them on the scale 0 .. 1."""
    rng = np.random.RandomState(seed)
    inputs = 3 * side * side
    first = rng.randn(inputs, hidden) / np.sqrt(inputs)
    second = rng.randn(hidden, classes) / np.sqrt(hidden)

    def logits(images: NDArray[np.float32]) -> NDArray[np.float64]:
        scaled = images if to_levels is None else to_levels(images * np.float32(255))
        pixels = scaled.transpose(0, 2, 3, 1).astype(np.float64)
        block = images.shape[-1] // side
        pooled = pixels.reshape(len(images), side, block, side, block, 3).mean((2, 4)).reshape(len(images), inputs)
        centred = pooled - 0.5 if to_levels is None else pooled / 255.0 - 0.5
        scores: NDArray[np.float64] = np.tanh(centred @ first * gains[0]) @ second * gains[1]
        return scores

    return logits

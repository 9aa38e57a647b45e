"""Compare the time of an evaluation with other libraries: same network, images and budget.

    make bench-throughput
    python benchmarks/throughput.py [--images 128] [--budget 200] [--rounds 2] [--only NAME ...]

The benchmark attacks the first correctly classified images of the bundled robust network at eps 8/255. Square Attack
uses the margin loss and p_init 0.8.

- torchattacks, pyautoattack and ART get the network as a torch module and all images at once, as their documentation
  describes;
- the loop is the authors' procedure on a torch module: one image after another, with at most 100 candidates per model
  call, mostly one (`published_loop.py`);
- parsimon gets the same torch module, or the same network as an ONNX file. With `workers` it has one process per core.

Each contestant runs in its own process, in turns, with one thread (OMP_NUM_THREADS=1) or all cores as its name says.
The time starts after imports and loading, and ends with the adversarial images. One-thread runs compare processor time,
which other load affects least. Runs on all cores and with workers compare wall time, including the start of workers.

Two counts are recorded, and kept apart. `queries` are those that parsimon or the loop charges to the attack; they
depend on the seed only. `shown` are all images that the torch module saw. They include the clean images, what fills a
call, and the candidates that ART shows several times. The peers charge nothing, and ONNX Runtime does not count images.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import parsimon
from parsimon import Parsimonious, Threat, zoo
from parsimon.attacks import Square
from published_loop import Loop

EPS, P_INIT = 8 / 255, 0.8
Images = NDArray[np.float32]
Labels = NDArray[np.int64]


class Counts(NamedTuple):
    """Counts of one implementation; None: not counted."""

    queries: int | None  # charged to the attack
    shown: int | None  # to the torch module
    fooled: int


Contestant = Callable[[Images, Labels, int], Counts]  # attacks the images


def network() -> Any:
    """Return the bundled network as a torch module that counts its input images."""
    import torch

    sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("tests/helpers", "training")]
    module: Any = import_module("hand_made").hand_made("robust")

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module, self.rows = module, 0

        def forward(self, images: torch.Tensor) -> Any:
            self.rows += len(images)
            return self.module(images)

    return Counting().eval()


def fooled(model: Any, adversarial: Any, labels: Labels) -> int:
    import torch

    with torch.no_grad():
        return int((model.module(torch.as_tensor(adversarial)).argmax(dim=1).numpy() != labels).sum())


def peer(module: str, kind: str, call: str) -> Contestant:
    """Return a contestant of AutoAttack's family: torchattacks or pyautoattack."""

    def run(images: Images, labels: Labels, budget: int) -> Counts:
        import torch

        model = network()
        attack = getattr(import_module(module), kind)(
            model, norm="Linf", n_queries=budget - 1, eps=EPS, p_init=P_INIT, loss="margin"
        )
        torch.manual_seed(0)
        start()
        adversarial = getattr(attack, call)(torch.from_numpy(images), torch.from_numpy(labels))
        stop()
        return Counts(None, model.rows, fooled(model, adversarial, labels))

    return run


def art(images: Images, labels: Labels, budget: int) -> Counts:
    import torch

    evasion, classifiers = import_module("art.attacks.evasion"), import_module("art.estimators.classification")
    model = network()
    classifier = classifiers.PyTorchClassifier(
        model, torch.nn.CrossEntropyLoss(), images.shape[1:], 10, clip_values=(0.0, 1.0), device_type="cpu"
    )
    attack = evasion.SquareAttack(
        classifier, norm=np.inf, max_iter=budget - 1, eps=EPS, p_init=P_INIT, batch_size=len(images), verbose=False
    )
    np.random.seed(0)
    start()
    adversarial = attack.generate(images, np.eye(10, dtype=np.float32)[labels])
    stop()
    return Counts(None, model.rows, fooled(model, adversarial, labels))


def loop(images: Images, labels: Labels, budget: int) -> Counts:
    import torch

    model = network()

    def scores(pixels: Images) -> Any:
        with torch.no_grad():
            return model(torch.from_numpy(pixels)).numpy()

    loops = [
        Loop(scores, Threat(EPS), image, int(label), number, budget, noise_side=32, block=4)
        for number, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    start()
    successes = sum(each.run() for each in loops)
    stop()
    return Counts(sum(each.queries for each in loops), model.rows, successes)


def ours(attack: parsimon.Attack, model: str, workers: int | None = None) -> Contestant:
    """Return parsimon as a contestant; `model` is "torch" or the name of a bundled network."""

    def run(images: Images, labels: Labels, budget: int) -> Counts:
        opened: Any = network() if model == "torch" else model
        start()
        result = parsimon.attack(opened, images, labels, EPS, attack=attack, budget=budget, workers=workers)
        assert np.isfinite(result.adversarial).all()
        stop()
        shown = opened.rows if model == "torch" else None
        return Counts(result.counters.queries, shown, int(result.success.sum()))

    return run


SQUARE = Square(P_INIT)
CONTESTANTS: dict[str, tuple[str, Contestant]] = {
    "torchattacks": ("Square", peer("torchattacks.attacks.square", "Square", "__call__")),
    "pyautoattack": ("Square", peer("pyautoattack.square", "SquareAttack", "perturb")),
    "ART": ("Square", art),
    "parsimon, torch": ("Square", ours(SQUARE, "torch")),
    "parsimon, ONNX": ("Square", ours(SQUARE, "robust")),
    "the loop": ("Parsimonious", loop),
    "parsimon, torch, published": ("Parsimonious", ours(Parsimonious("published", block=4), "torch")),
    "parsimon, ONNX, published": ("Parsimonious", ours(Parsimonious("published", block=4), "robust")),
    "parsimon, ONNX, paper": ("Parsimonious", ours(Parsimonious(block=4), "robust")),
    "the loop, all cores": ("Parsimonious", loop),
    "parsimon, ONNX, published, all cores": ("Parsimonious", ours(Parsimonious("published", block=4), "robust")),
    "parsimon, ONNX, published, 2 workers": (
        "Parsimonious",
        ours(Parsimonious("published", block=4), "robust", workers=2),
    ),
}

_clock: list[float] = []


def start() -> None:
    _clock[:] = [time.process_time(), time.perf_counter()]


def stop() -> None:
    _clock[:] = [time.process_time() - _clock[0], time.perf_counter() - _clock[1]]


def one(name: str, count: int, budget: int) -> None:
    """Run a contestant in this process and print its cost."""
    images, labels = zoo.images()
    chosen = np.flatnonzero(parsimon.attack("robust", images, labels, EPS, budget=1).attacked)[:count]
    counts = CONTESTANTS[name][1](images[chosen], labels[chosen], budget)
    print(json.dumps({"cpu": _clock[0], "wall": _clock[1], **counts._asdict()}))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the time of an evaluation with other libraries.")
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(CONTESTANTS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments.one, arguments.images, arguments.budget)
        return
    same = ["--images", str(arguments.images), "--budget", str(arguments.budget)]
    took: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.only}
    for _ in range(arguments.rounds):
        for name, runs in took.items():
            threads = os.cpu_count() if "all cores" in name else 1
            said = subprocess.run(
                [sys.executable, __file__, "--one", name, *same],
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                stdout=subprocess.PIPE,
                check=True,
            )
            runs.append(json.loads(said.stdout.splitlines()[-1]))
            print(name, runs[-1], flush=True)
    print(f"{arguments.images} images, eps 8/255, at most {arguments.budget} queries per image")
    for name, runs in took.items():
        queries, shown = (f"{count:,}" if count else "not counted" for count in (runs[0]["queries"], runs[0]["shown"]))
        cpu, wall = (median(run[clock] for run in runs) for clock in ("cpu", "wall"))
        clock, seconds = ("wall", wall) if "workers" in name or "all cores" in name else ("processor", cpu)
        print(
            f"{CONTESTANTS[name][0]}, {name}: queries {queries}, images shown {shown}, fooled {runs[0]['fooled']}, "
            f"{seconds:.1f} s ({clock})",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Compare HopSkipJump with Foolbox's implementation: same network, images, radius, settings and counting.

    make bench-peers
    python benchmarks/hopskipjump_peers.py [--images 50] [--budget 2000] [--seeds 2]

The benchmark uses the bundled standard network as a torch module, its first correctly classified images, eps 8/255,
gamma 1 and 100 first probes. A query is one image shown to the network. An image is fooled at the first query that is
adversarial and in the ball; the script watches the input of the network for it, and stops the peer there. The table
shows the share of images that are fooled within a number of queries.

Differences by design:

- start: Foolbox blends the image with noise in 50 equal steps; parsimon and the authors bisect the line to the noise;
- checks: Foolbox asks again for points that it knows to be adversarial, up to three times per iteration;
- probes: from the second iteration on, Foolbox sets their size by the distance after the binary search, parsimon and
  the authors by the distance before it;
- binary search: Foolbox stops at the resolution of single precision, parsimon and the authors at their tolerance;
- randomness: each has its own stream.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from parsimon import Threat, zoo
from parsimon.attacks import HopSkipJump
from parsimon.core.engine import Engine
from parsimon.core.types import Task
from parsimon.models import as_model

EPS = 8 / 255
BUDGETS = (100, 500, 1000, 2000)


class Ended(Exception):  # noqa: N818  (not an error)
    """The attack on an image has succeeded, or its budget is spent."""


class Watched(torch.nn.Module):
    """A network that counts its input images, and ends the attack at the first success or after the budget."""

    def __init__(self, network: torch.nn.Module, task: Task, budget: int) -> None:
        super().__init__()
        self.network, self.goal, self.budget = network, task.goal, budget
        self.image = torch.from_numpy(task.image)
        self.queries = 0
        self.success: float = math.inf

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network(images)
        near = (images - self.image).abs().amax(dim=(1, 2, 3)) <= EPS + 1e-6
        hits = torch.nonzero(near & (scores.argmax(dim=1) != self.goal)).flatten().tolist()
        if hits and self.queries + hits[0] < self.budget:
            self.success = self.queries + hits[0] + 1
        self.queries += len(images)
        if hits or self.queries >= self.budget:
            raise Ended
        return scores


def correctly_classified(network: torch.nn.Module, count: int) -> list[Task]:
    images, labels = zoo.images()
    with torch.no_grad():
        seen = np.concatenate([network(part).argmax(dim=1) for part in torch.from_numpy(images).split(100)])
    chosen = np.flatnonzero(seen == labels)[:count].tolist()
    return [Task(index, images[index], int(labels[index])) for index in chosen]


def of_parsimon(network: torch.nn.Module, tasks: list[Task], budget: int, seed: int) -> list[float]:
    """Return the number of the first successful query of each image."""
    engine = Engine(HopSkipJump(), as_model(network), Threat(EPS, loss="label"), budget=budget, seed=seed)
    return [outcome.queries if outcome.success else math.inf for outcome in engine.run(tasks)]


def of_foolbox(network: torch.nn.Module, tasks: list[Task], budget: int, seed: int) -> list[float]:
    """Return the number of the first successful query of each image; its start may also fail."""
    foolbox: Any = importlib.import_module("foolbox")
    torch.manual_seed(seed)
    np.random.seed(seed)
    attack = foolbox.attacks.HopSkipJumpAttack(constraint="linf", gamma=1.0, initial_gradient_eval_steps=100)
    found: list[float] = []
    for task in tasks:
        watched = Watched(network, task, budget)
        model = foolbox.PyTorchModel(watched.eval(), bounds=(0, 1))
        criterion = foolbox.criteria.Misclassification(torch.tensor([task.goal]))
        try:
            attack.run(model, torch.from_numpy(task.image[None]), criterion)
        except Ended:
            pass
        except ValueError as error:
            if "init_attack failed" not in str(error):
                raise
        found.append(watched.success)
    return found


def runs(network: torch.nn.Module, tasks: list[Task], budget: int, seeds: int) -> Iterator[tuple[str, list[float]]]:
    for seed in range(seeds):
        yield "parsimon", of_parsimon(network, tasks, budget, seed)
        yield "foolbox", of_foolbox(network, tasks, budget, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare HopSkipJump with Foolbox's implementation.")
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--budget", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    try:
        importlib.import_module("foolbox")
    except ImportError as error:
        sys.exit(f"foolbox cannot be imported ({error}): see the top of this file")

    torch.set_num_threads(1)
    network = zoo.module("standard").eval()
    tasks = correctly_classified(network, arguments.images)
    print(f"{len(tasks)} images, eps 8/255, at most {arguments.budget:,} queries per image", flush=True)
    of: dict[str, list[list[float]]] = {}
    for name, queries in runs(network, tasks, arguments.budget, arguments.seeds):
        shares = [100 * sum(each <= budget for each in queries) / len(tasks) for budget in BUDGETS]
        of.setdefault(name, []).append(shares)
        print(f"{name}, seed {len(of[name]) - 1}: {shares}", flush=True)
    for name, rows in of.items():
        columns = [
            f"within {budget}: {np.mean(each):.0f} % ({min(each):.0f} to {max(each):.0f})"
            for budget, each in zip(BUDGETS, zip(*rows, strict=True), strict=True)
        ]
        print(f"{name}, {len(rows)} seeds: {', '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()

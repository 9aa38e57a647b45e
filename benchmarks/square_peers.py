"""Compare Square Attack with two other implementations: same network, images, radius, budget, loss and p_init.

    make bench-peers
    python benchmarks/square_peers.py [--images 200] [--budget 1000] [--seeds 3]

The benchmark uses the bundled robust network as a torch module, its first correctly classified images, eps 8/255, the
margin loss and p_init 0.8. Success rates are over all attacked images, mean and median queries over successes. All
implementations run with the same seeds; their spread over seeds is the noise of a comparison.

The peers report the queries of each image through an internal method. The script checks their sum against the rows
that the model counted. It decides about success itself: it queries the result once more and measures its distance.

Differences by design:

- budget: the peers' `n_queries` excludes the query of the stripes, so they get one less. The schedule of their window
  sizes follows;
- windows: the peers draw one position and colour per step for the whole batch, parsimon one per image. The peers'
  images depend on each other, but with the same chances;
- repainting: parsimon and the authors draw a window again if it would change nothing; the peers query the same image
  again. With three channels this concerns one in eight windows of one colour, such as those of a single pixel in the
  last fifth of the budget;
- rounding: the peers add and subtract 2 eps, parsimon picks one of the two extremes of the ball;
- success: the peers count a tie of the two highest scores as success;
- randomness: each has its own stream. torchattacks and pyautoattack descend from AutoAttack's code and draw in the same
  order, so their numbers agree for each seed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import numpy as np
import torch

from parsimon import Outcome, Threat, zoo
from parsimon.attacks import Square
from parsimon.core.engine import Engine
from parsimon.core.types import Task
from parsimon.models import as_model
from parsimon.results.summary import Summary, summarise

EPS = 8 / 255
P_INIT = 0.8
PEERS = {
    "pyautoattack": ("pyautoattack.square", "SquareAttack"),
    "torchattacks": ("torchattacks.attacks.square", "Square"),
}


class Counting(torch.nn.Module):
    """A network that counts its input images."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network
        self.rows = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.rows += len(images)
        scores: torch.Tensor = self.network(images)
        return scores


def correctly_classified(network: torch.nn.Module, count: int) -> list[Task]:
    images, labels = zoo.images()
    with torch.no_grad():
        seen = np.concatenate([network(part).argmax(dim=1) for part in torch.from_numpy(images).split(100)])
    chosen = np.flatnonzero(seen == labels)[:count].tolist()
    return [Task(index, images[index], int(labels[index])) for index in chosen]


def of_parsimon(network: torch.nn.Module, tasks: list[Task], budget: int, seed: int) -> list[Outcome]:
    threat = Threat(EPS, loss="margin")
    return list(Engine(Square(P_INIT), as_model(network), threat, budget=budget, seed=seed).run(tasks))


def of_peer(name: str, network: torch.nn.Module, tasks: list[Task], budget: int, seed: int) -> list[Outcome]:
    counting = Counting(network)
    module, kind = PEERS[name]
    attack: Any = getattr(importlib.import_module(module), kind)(
        counting, norm="Linf", n_queries=budget - 1, eps=EPS, p_init=P_INIT, loss="margin"
    )
    images = torch.from_numpy(np.stack([task.image for task in tasks]))
    labels = torch.tensor([task.goal for task in tasks])
    attack.init_hyperparam(images)
    torch.manual_seed(seed)
    reported, adversarial = attack.attack_single_run(images, labels)
    queries = [int(count) for count in reported]
    if sum(queries) != counting.rows or max(queries) > budget:
        most = max(queries)
        sys.exit(f"{name} reports {sum(queries)} queries, at most {most} per image; the model counted {counting.rows}")
    with torch.no_grad():
        fooled = network(adversarial).argmax(dim=1) != labels
    fooled &= (adversarial - images).abs().amax(dim=(1, 2, 3)) <= EPS + 1e-6
    return [
        Outcome(task.index, success, count, "success" if success else "budget")
        for task, success, count in zip(tasks, fooled.tolist(), queries, strict=True)
    ]


def runs(network: torch.nn.Module, tasks: list[Task], budget: int, seeds: int) -> Iterator[tuple[str, int, Summary]]:
    for seed in range(seeds):
        yield "parsimon", seed, summarise(of_parsimon(network, tasks, budget, seed), budget)
        for name in PEERS:
            yield name, seed, summarise(of_peer(name, network, tasks, budget, seed), budget)


def in_words(summary: Summary) -> str:
    if summary.mean is None or summary.median is None:
        return "none"
    return f"mean {summary.mean:.1f}, median {summary.median:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare Square Attack with two other implementations.")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for name, (module, _) in PEERS.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            sys.exit(f"{name} cannot be imported ({error}): see the top of this file")

    network = zoo.module("robust")
    tasks = correctly_classified(network, arguments.images)
    print(f"{len(tasks)} images, eps 8/255, margin loss, at most {arguments.budget:,} queries per image", flush=True)
    of: dict[str, list[Summary]] = {}
    for name, seed, summary in runs(network, tasks, arguments.budget, arguments.seeds):
        of.setdefault(name, []).append(summary)
        assert summary.interval is not None, "all images are finished"
        low, high = summary.interval
        print(
            f"{name}, seed {seed}: success {summary.success_at_least:.1%} (95 %: {low:.1%} to {high:.1%}), "
            f"queries of successes: {in_words(summary)}",
            flush=True,
        )
    for name, summaries in of.items():
        columns = {
            "success": [100 * summary.success_at_least for summary in summaries],
            "mean": [summary.mean for summary in summaries if summary.mean is not None],
            "median": [summary.median for summary in summaries if summary.median is not None],
        }
        text = [
            f"{what} {fmean(each):.1f} ({min(each):.1f} to {max(each):.1f})" for what, each in columns.items() if each
        ]
        print(f"{name}, {len(summaries)} seeds: {', '.join(text)}", flush=True)


if __name__ == "__main__":
    main()

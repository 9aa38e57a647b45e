"""Square Attack beside two other implementations: same network, images, radius, budget, loss and first share.

    make bench-peers
    python benchmarks/square_peers.py [--images 200] [--budget 1000] [--seeds 3]

The bundled robust network as a torch module, its first correctly classified images, eps 8/255, the margin loss, a first
share of 0.8. Success rates are over all attacked images, mean and median queries over successes. Every implementation
is run with the same number of seeds: what the rows of one differ by is the noise that a difference between two must
exceed to mean anything.

How the peers' queries are counted: both tell, for each image, how many times it was shown until its success or the
end, from the method behind their public one, which also classifies the images before and after. The model they are
given counts its rows, and the script stops unless the sum is the same. Whether an image is a success is found out
here: by showing the result to the network once more, and by measuring its distance.

What differs by design, and is left as it is:

- the budget: both peers take `n_queries` for the number of candidates after the stripes, so that they ask once more.
  They are given one less, and so are their windows' sizes, which follow a schedule over `n_queries`;
- windows: the peers draw one place and one colour in each step for all images of a batch, here of all images; parsimon
  draws for each image. That makes the peers' images depend on each other, but not an image's chances;
- repainting: a window that would change nothing is drawn again by parsimon, as by the attack's authors; the peers show
  the same image again and count it. With three channels that is one in eight of the windows that have one colour
  already, as those of a single pixel do, in the last fifth of the budget;
- rounding: the peers add and subtract 2 eps to and from an image, parsimon picks one of the ball's two extremes;
- success: to the peers a tie of the two highest scores is one;
- randomness: each has its own stream. torchattacks descends from AutoAttack's code and draws in the same order as
  pyautoattack, so that these two show the same figures, seed for seed, unless one of them departs from the other.
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
SHARE = 0.8
PEERS = {
    "pyautoattack": ("pyautoattack.square", "SquareAttack"),
    "torchattacks": ("torchattacks.attacks.square", "Square"),
}


class Counting(torch.nn.Module):
    """A network that counts the images that it is shown."""

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
    return list(Engine(Square(SHARE), as_model(network), threat, budget=budget, seed=seed).run(tasks))


def of_peer(name: str, network: torch.nn.Module, tasks: list[Task], budget: int, seed: int) -> list[Outcome]:
    counting = Counting(network)
    module, kind = PEERS[name]
    attack: Any = getattr(importlib.import_module(module), kind)(
        counting, norm="Linf", n_queries=budget - 1, eps=EPS, p_init=SHARE, loss="margin"
    )
    images = torch.from_numpy(np.stack([task.image for task in tasks]))
    labels = torch.tensor([task.goal for task in tasks])
    attack.init_hyperparam(images)
    torch.manual_seed(seed)
    told, adversarial = attack.attack_single_run(images, labels)
    queries = [int(count) for count in told]
    if sum(queries) != counting.rows or max(queries) > budget:
        sys.exit(f"{name} tells of {sum(queries)} queries, at most {max(queries)} an image; {counting.rows} were shown")
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
        return "there are none"
    return f"mean {summary.mean:.1f}, median {summary.median:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Square Attack beside two other implementations.")
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
        assert summary.interval is not None, "all of them end"
        low, high = summary.interval
        print(
            f"{name}, seed {seed}: success {summary.success_rate:.1%} (95 %: {low:.1%} to {high:.1%}), "
            f"queries of successes: {in_words(summary)}",
            flush=True,
        )
    for name, summaries in of.items():
        columns = {
            "success": [100 * summary.success_rate for summary in summaries],
            "mean": [summary.mean for summary in summaries if summary.mean is not None],
            "median": [summary.median for summary in summaries if summary.median is not None],
        }
        text = [
            f"{what} {fmean(each):.1f} ({min(each):.1f} to {max(each):.1f})" for what, each in columns.items() if each
        ]
        print(f"{name}, {len(summaries)} seeds: {', '.join(text)}", flush=True)


if __name__ == "__main__":
    main()

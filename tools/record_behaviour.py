"""Record what parsimon does, so that a rewrite can be held to it: digests of outcomes, and the output of commands.

    python tools/record_behaviour.py before.json          # on the old version
    python tools/record_behaviour.py after.json           # on the new one
    python tools/record_behaviour.py --compare before.json after.json

A digest covers each attacked image's outcome, its counts and the bytes of its final point. It covers every attack and
preset on grey, colour, odd-sized and large images, untargeted and targeted, with both losses, in 8-bit and float mode,
in one process and with workers. Output of commands is compared by its numbers, since wording may change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import parsimon
from parsimon.attacks import ATTACKS

SHAPES = {"grey": (1, 14, 14), "colour": (3, 16, 16), "odd": (3, 11, 17), "large": (3, 64, 64)}
CLASSES = 5
IMAGES = 6
BUDGET = 120

COMMANDS = (
    "--help",
    "run --help",
    "compare --help",
    "run --images 8 --budget 60 --out run",
    "run --images 6 --budget 60 --attack thrift --eps 4/255 --model standard --json --out json",
    "compare parsimonious square pgd --images 6 --budget 60 --out compare",
    "compare nes bandits simba --images 4 --budget 40 --eight-bit --targets next --format markdown --out odd",
    "run --images 6 --budget 60 --workers 2 --out workers",
    "show compare",
    "show compare --json",
    "show compare --format latex",
    "resume compare",
    "report compare",
    "plot compare --out curves.svg",
    "check --data bundled",
    "zoo list",
    "reproduce",
    "completion bash",
    "run --attack nonsense",
    "run --budget 0",
    "run --model missing.onnx",
    "show nowhere",
)
# Numbers that differ from run to run: times, speeds, dates.
VOLATILE = re.compile(r"\d{4}-\d\d-\d\d[-T\d:]*|[\d.]+ ms|[\d.]+ seconds|0x[0-9a-f]+")


class Network:
    """A smooth network of a few random features, computed in double precision."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng([*shape, 1])
        size = int(np.prod(shape))
        self._first = rng.normal(size=(size, 24)) / np.sqrt(size)
        self._second = rng.normal(size=(24, CLASSES))

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        features = (images.reshape(len(images), -1).astype(np.float64) - 0.5) @ self._first
        scores: NDArray[np.float64] = np.tanh(6 * features) @ self._second
        return scores


def build_colour() -> Network:
    """Return the network for colour images, for workers that open the model by name."""
    return Network(SHAPES["colour"])


def module(shape: tuple[int, ...]) -> Any:
    """Return a torch module with gradients, for white-box attacks."""
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(shape[0], 8, 3, padding=1),
        torch.nn.Tanh(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(128, CLASSES),
    )
    return network.double().float().eval()


def images_of(shape: tuple[int, ...]) -> NDArray[np.float32]:
    levels = np.random.default_rng([*shape, 2]).integers(0, 256, (IMAGES, *shape))
    return levels.astype(np.float32) / np.float32(255)


def attacks() -> Iterator[str]:
    for name, kind in ATTACKS.items():
        yield name
        yield from (f"{name}:{preset}" for preset in kind.presets)


def digest(result: parsimon.Result) -> dict[str, Any]:
    """Return the counts in the open, and a hash of all there is to an outcome."""
    names = ("index", "success", "queries", "ended", "uncharged", "outside", "out_of_range", "gradients", "predicted")
    content = hashlib.sha256()
    for outcome in result.outcomes:
        content.update(repr([getattr(outcome, name) for name in names]).encode())
        if outcome.success:
            content.update(result.draw(outcome).tobytes())
    queries = sum(outcome.queries for outcome in result.outcomes)
    return {"successes": int(result.success.sum()), "queries": queries, "sha256": content.hexdigest()}


def cases() -> Iterator[tuple[str, Callable[[], parsimon.Result]]]:
    """Yield every combination by name, with the function that runs it."""
    for kind, shape in SHAPES.items():
        for attack, targets, loss, eight_bit in product(
            attacks(), (None, "next"), ("cross-entropy", "margin"), (False, True)
        ):
            small_noise = "published-imagenet" in attack and min(shape[1:]) < 256
            if small_noise:  # its noise of 256 x 256 does not fit
                continue
            white_box = ATTACKS[attack.partition(":")[0]].__name__ == "PGD"

            def run(
                attack: str = attack,
                shape: tuple[int, ...] = shape,
                white_box: bool = white_box,
                **settings: Any,
            ) -> parsimon.Result:
                model = module(shape) if white_box else Network(shape)
                return parsimon.attack(
                    model, images_of(shape), "predicted", 0.05, attack=attack, budget=BUDGET, progress=False, **settings
                )

            settings: dict[str, Any] = {"targets": targets, "loss": loss, "eight_bit": eight_bit}
            name = f"{kind} {attack} {targets or 'untargeted'} {loss} {'8-bit' if eight_bit else 'float'}"
            yield name, partial(run, **settings)
    for attack in ("parsimonious", "thrift", "square", "bandits"):
        for workers in (1, 2):
            yield (
                f"colour {attack} workers={workers}",
                partial(
                    parsimon.attack,
                    "record_behaviour:build_colour",
                    images_of(SHAPES["colour"]),
                    "predicted",
                    0.05,
                    attack=attack,
                    budget=BUDGET,
                    workers=workers,
                    progress=False,
                ),
            )


def record_attacks() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, run in cases():
        try:
            found[name] = digest(run())
        except parsimon.ParsimonError as error:
            found[name] = type(error).__name__
    return found


def record_commands() -> dict[str, Any]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            done = subprocess.run(
                [sys.executable, "-m", "parsimon", *command.split()],
                cwd=folder,
                env={**os.environ, "COLUMNS": "100"},
                capture_output=True,
                text=True,
            )
            found[command] = {"code": done.returncode, "out": done.stdout, "err": done.stderr}
        for name in ("run/results.csv", "compare/results.csv", "odd/results.csv"):
            found[name] = {"code": 0, "out": (Path(folder) / name).read_text(), "err": ""}
    return found


def numbers(text: str) -> list[str]:
    return re.findall(r"\d[\d,.]*", VOLATILE.sub("", text))


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print what differs, and numbers in output to look at; return how many digests or exit codes differ."""
    wrong = 0
    for name, digest in before["attacks"].items():
        if after["attacks"].get(name) != digest:
            wrong += 1
            print(f"{name}: {digest} before, {after['attacks'].get(name)} after")
    for name, said in before["commands"].items():
        now = after["commands"].get(name)
        if now is None or now["code"] != said["code"]:
            wrong += 1
            print(f"{name}: exit code {said['code']} before, {now and now['code']} after")
        elif "help" not in name and numbers(said["out"]) != numbers(now["out"]):
            print(f"{name}: the numbers in its output differ; look at both")
    print(f"{len(before['attacks'])} digests and {len(before['commands'])} outputs compared; {wrong} differ")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--compare", action="store_true", help="compare two recordings")
    arguments = parser.parse_args()
    if arguments.compare:
        before, after = (json.loads(path.read_text()) for path in arguments.files)
        sys.exit(1 if compare(before, after) else 0)
    (path,) = arguments.files
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    recorded = {"version": parsimon.__version__, "attacks": record_attacks(), "commands": record_commands()}
    path.write_text(json.dumps(recorded, indent=1) + "\n")
    print(f"{len(recorded['attacks'])} digests and {len(recorded['commands'])} outputs in {path}")


if __name__ == "__main__":
    main()

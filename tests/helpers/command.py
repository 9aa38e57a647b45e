"""The command as another process, and what a user has in a folder to run it on."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A model of a user's own, beside the data.
USERS_MODULE = """
import numpy as np

def torch_model():
    import torch

    class Means(torch.nn.Module):
        def forward(self, images):
            return 10 * images.mean((2, 3))

    return Means()

def function():
    return lambda images: 10 * images.mean(axis=(2, 3))

def probabilities():
    return lambda images: images.mean(axis=(2, 3)) / images.mean(axis=(2, 3)).sum(axis=1, keepdims=True)

def random_model():
    return lambda images: np.random.default_rng().normal(size=(len(images), 3))

def broken():
    def fail(images):
        raise RuntimeError("[bold]no[/] such layer")
    return fail

def nothing():
    return None
"""


def run(folder: Path, *arguments: str, command: list[str] | None = None, **environment: str) -> Any:
    """Exit code, standard output and standard error of the command, started in a folder."""
    command = command or [sys.executable, "-m", "parsimon"]
    settings = {**os.environ, "COLUMNS": "80", **environment}
    return subprocess.run([*command, *arguments], cwd=folder, env=settings, capture_output=True, text=True, timeout=100)


def refused(ran: Any) -> str:
    """The one sentence with which bad input is refused."""
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    (sentence,) = ran.stderr.splitlines()
    assert sentence.startswith("error: ")
    assert ran.stdout == ""
    return str(sentence)


def table_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def coloured_images(count: int = 6) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    images = np.random.default_rng(1).random((count, 3, 8, 8), dtype=np.float32)
    return images, np.argmax(images.mean(axis=(2, 3)), axis=1)

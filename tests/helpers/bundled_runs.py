"""Small stored runs and evaluations of the bundled networks, on their first test images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from parsimon import runs, zoo
from parsimon.runs.config import RunConfig
from parsimon.runs.evaluation import EvaluationConfig

IMAGES = 30
BUDGET = 40


def data_file(folder: Path, name: str = "images.npz", start: int = 0) -> Path:
    """Write some bundled images as a file, once."""
    path = folder / name
    if not path.exists():
        images, labels = (array[start : start + IMAGES] for array in zoo.images())
        np.savez(path, images=images, labels=labels)
    return path


def make_run(folder: Path, name: str, model: str = "robust", **settings: Any) -> Path:
    """Store a run of all correctly classified images."""
    shared = {"data": str(data_file(folder)), "images": "all", "budget": BUDGET, "attacks": ("thrift",)}
    runs.run(RunConfig(**{**shared, "model": model, **settings}), folder / name, progress=False)
    return folder / name


def make_evaluation(folder: Path, name: str, models: tuple[str, ...], eps: tuple[str, ...], budget: int = 20) -> Path:
    """Store an evaluation of Thrift alone."""
    run = RunConfig(data=str(data_file(folder)), images="all", selection="any").replace(progress=False)
    config = EvaluationConfig(models=models, eps=eps, budget=(budget,), attacks=("thrift",), run=run)
    runs.evaluate(config, folder / name)
    return folder / name

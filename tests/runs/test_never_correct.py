"""Evaluations with a model that classifies no image correctly, and evaluations that are refused before they begin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parsimon
from command import run
from parsimon import EvaluationGrid, runs
from parsimon.errors import NothingToAttackError, ParsimonError
from parsimon.results.statistics import wilson_interval
from parsimon.runs.evaluation import EvaluationConfig
from sine_models import MODELS

NEVER = """
def never():  # right about no image of the first one
    def model(images):
        scores = build(0)(images)
        return scores - 1000 * (scores == scores.max(axis=1, keepdims=True))

    return model
"""
LAYERS = """
import numpy as np
import torch

class Linear(torch.nn.Module):
    def __init__(self, sign):
        super().__init__()
        weights = np.random.default_rng(0).normal(size=(192, 2))
        self.weights = torch.nn.Parameter(sign * torch.tensor(weights, dtype=torch.float32))

    def forward(self, images):
        return images.flatten(1) @ self.weights

def right():
    return Linear(1)

def never():
    return Linear(-1)
"""


def scores(seed: int, images: NDArray[Any]) -> NDArray[np.float64]:
    weights = np.random.default_rng(seed).normal(size=(3, 192))
    return np.asarray((np.sin(5 * images.reshape(len(images), 1, -1).astype(np.float64)) * weights).sum(axis=-1))


def config(**settings: Any) -> EvaluationConfig:
    """Return the settings of an evaluation of all images, on which the first model is always right."""
    shared = {"data": "data.npz", "images": "all", "eps": ("0.01", "0.03"), "budget": (8, 40), "attacks": ("square",)}
    return EvaluationConfig.of({**shared, "models": ["wrong:first", "wrong:second"], **settings})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "wrong.py").write_text(MODELS + NEVER)
    (tmp_path / "layers.py").write_text(LAYERS)
    images = np.random.default_rng(2).random((11, 3, 8, 8), dtype=np.float32)
    np.savez(tmp_path / "data.npz", images=images, labels=scores(0, images).argmax(axis=1))
    weights = np.random.default_rng(0).normal(size=(192, 2)).astype(np.float32)
    np.savez(tmp_path / "linear.npz", images=images, labels=(images.reshape(11, -1) @ weights).argmax(axis=1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def described(grid: EvaluationGrid) -> dict[str, Any]:
    """Return what is known about each image, by model and radius."""
    return {
        f"{model} {evaluation.eps}": (evaluation.fooled_after.tolist(), evaluation.unfinished, outcomes(evaluation))
        for model, row in grid.evaluations.items()
        for evaluation in row
    }


def outcomes(evaluation: parsimon.Evaluation) -> Mapping[str, Any]:
    return {name: result.outcomes for name, result in evaluation.results.items()}


def test_a_refused_evaluation_leaves_nothing_behind(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(ParsimonError, match="needs gradients"):
        runs.evaluate(config(white_box=True), folder / "stored")
    with pytest.raises(NothingToAttackError, match="classifies none of the 11 images correctly"):
        runs.evaluate(config(models=["wrong:never"]), folder / "stored")
    assert [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts] == before
    assert not runs.evaluate(config(), folder / "stored").unfinished


# --- a model that is right about no image -----------------------------------------------------------------------------


@pytest.mark.parametrize("models", [("first", "never", "second"), ("never", "first")])
def test_a_model_without_a_correct_image_counts_as_0_and_the_others_go_on(
    folder: Path, models: tuple[str, ...]
) -> None:
    names = [f"wrong:{name}" for name in models]
    grid = runs.evaluate(config(models=names), folder / "stored")
    assert not grid.unfinished
    for evaluation in grid.evaluations["wrong:never"]:
        assert (evaluation.clean_accuracy, evaluation.robust_accuracy) == (0, 0)
        assert evaluation.interval == wilson_interval(0, 11)
    assert any("wrong:never classifies none of the 11 images correctly" in each for each in grid.warnings)
    others = [name for name in names if name != "wrong:never"]
    without = described(runs.evaluate(config(models=others), folder / "without"))
    assert {name: value for name, value in described(grid).items() if "never" not in name} == without
    for again in (runs.load_evaluation(folder / "stored"), runs.resume_evaluation(folder / "stored")):
        assert described(again) == described(grid)
        assert str(again) == str(grid)
        assert again.warnings == grid.warnings


def test_in_python_such_a_model_counts_as_0_too(folder: Path) -> None:
    data = np.load(folder / "data.npz")
    images, labels = data["images"], data["labels"]
    models = {"never": lambda x: -(scores(0, x) ** 2) - 1e6 * (scores(0, x) == scores(0, x).max(1, keepdims=True))}
    settings: Any = {"attacks": ["square"], "budget": 5}
    with pytest.raises(NothingToAttackError):
        parsimon.evaluate(models, images, labels, 0.01, **settings)
    both: Any = parsimon.evaluate({**models, "first": lambda x: scores(0, x)}, images, labels, 0.01, **settings)
    assert both["never", 0.01].robust_accuracy == 0
    alone = parsimon.evaluate(lambda x: scores(0, x), images, labels, 0.01, **settings)
    assert outcomes(both["first", 0.01]) == outcomes(alone)


def test_what_pgd_leaves_of_such_a_model_is_0_and_read_back_as_such(folder: Path) -> None:
    pytest.importorskip("torch")
    names = ["layers:never", "layers:right"]
    settings: Any = {"models": names, "data": "linear.npz", "white_box": True, "budget": [5]}
    grid = runs.evaluate(config(**settings), folder / "stored")
    read = runs.load_evaluation(folder / "stored")
    for each in (grid, read):
        verdict = each.evaluations["layers:never"][0].white_box_verdict
        assert verdict is not None
        assert verdict.value == 0
        assert "layers:never 0.0%" in each.headline()
    assert described(read) == described(grid)


def test_every_command_takes_an_evaluation_with_such_a_model(folder: Path) -> None:
    settings = ("--data", "data.npz", "--budget", "5", "--eps", "0.01,0.03", "--quiet")
    ran = run(folder, "evaluate", "wrong:never", "wrong:first", *settings, "--out", "stored")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("wrong:never: robust accuracy 0.0% ")
    assert "warning: wrong:never classifies none of the 11 images correctly" in ran.stdout
    for command in (("show",), ("report",), ("plot",), ("plot", "--against", "queries"), ("export",), ("verify",)):
        again = run(folder, *command, "stored")
        assert again.returncode == 0, (command, again.stderr)
    assert run(folder, "diff", "stored", "stored").returncode == 0
    estimated = run(folder, "evaluate", "wrong:never", "wrong:first", *settings, "--dry-run", "--json")
    assert [each["most_queries"] for each in json.loads(estimated.stdout)["estimates"]] == [0, 2 * 2 * 11 * 5]
    workers = run(folder, "evaluate", "wrong:never", "wrong:first", *settings, "--workers", "2", "--out", "workers")
    assert workers.returncode == 0, workers.stderr
    expected = described(runs.load_evaluation(folder / "stored"))
    assert described(runs.load_evaluation(folder / "workers")) == expected

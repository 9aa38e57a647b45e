"""Evaluations of several models, radii and budgets, held against every attack alone on every image."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parsimon
from command import run
from parsimon import EvaluationGrid, InputError, runs
from parsimon.core.engine import Step
from parsimon.runs.evaluation import EvaluationConfig, cell_folder
from sine_models import MODELS

ATTACKS = ("random", "signhunter", "square")
RADII, BUDGETS = ("0.004", "0.01", "0.03"), (8, 40)


def scores(seed: int, images: NDArray[Any]) -> NDArray[np.float64]:
    weights = np.random.default_rng(seed).normal(size=(3, 192))
    return np.asarray((np.sin(5 * images.reshape(len(images), 1, -1).astype(np.float64)) * weights).sum(axis=-1))


def config(**settings: Any) -> EvaluationConfig:
    given = {"models": ["sines:first", "sines:second"], "eps": RADII, "budget": BUDGETS, "attacks": ATTACKS, **settings}
    return EvaluationConfig.of({"data": "data.npz", "images": "all", **given})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sines.py").write_text(MODELS)
    images = np.random.default_rng(2).random((12, 3, 8, 8), dtype=np.float32)
    labels = scores(0, images).argmax(axis=1)
    labels[3] = (labels[3] + 1) % 3
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def by_brute_force(folder: Path, seed: int, budget: int) -> list[NDArray[np.bool_]]:
    """Whether each image is robust at each radius: every attack alone on every image, nothing skipped.

    All attacks have the largest budget, on which the schedule of Square depends.
    """
    data = np.load(folder / "data.npz")
    images, labels = data["images"], data["labels"]
    fooled = np.zeros(len(images), np.bool_)
    found = []
    for eps in RADII:
        for name in ATTACKS:
            settings: Any = {"attack": name, "budget": BUDGETS[-1]}
            result = parsimon.attack(lambda x: scores(seed, x), images, labels, float(eps), **settings)
            fooled = fooled | (result.success & (result.queries <= budget))
        found.append((scores(seed, images).argmax(axis=1) == labels) & ~fooled)
    return found


def described(grid: EvaluationGrid) -> dict[str, Any]:
    return {
        f"{model} {evaluation.eps}": (evaluation.fooled_after.tolist(), evaluation.unfinished, outcomes(evaluation))
        for model, row in grid.evaluations.items()
        for evaluation in row
    }


def outcomes(evaluation: parsimon.Evaluation) -> Mapping[str, Any]:
    return {name: result.outcomes for name, result in evaluation.results.items()}


def test_every_radius_and_budget_agrees_with_brute_force(folder: Path) -> None:
    grid = runs.evaluate(config(), folder / "stored")
    for seed, model in enumerate(grid.models):
        for budget in BUDGETS:
            expected = by_brute_force(folder, seed, budget)
            for evaluation, robust in zip(grid.evaluations[model], expected, strict=True):
                np.testing.assert_array_equal(evaluation.robust_within(budget), robust)
                assert evaluation.verdict(budget).value == robust.mean()
    smallest, _, largest = grid.evaluations["sines:first"]
    assert 0 < largest.robust_accuracy < smallest.robust_accuracy  # or the test would compare little


def test_an_image_fooled_within_the_smallest_budget_is_not_attacked_again(folder: Path) -> None:
    grid = runs.evaluate(config(), folder / "stored")
    for row in grid.evaluations.values():
        for smaller, evaluation in pairwise(row):
            attacked = np.any([result.attacked for result in evaluation.results.values()], axis=0)
            np.testing.assert_array_equal(attacked, smaller.correct & ~smaller.settled)
    assert grid.evaluations["sines:first"][1].settled.any()


def test_python_and_a_stored_evaluation_agree(folder: Path) -> None:
    data = np.load(folder / "data.npz")
    models = {f"sines:{name}": lambda x, seed=seed: scores(seed, x) for seed, name in enumerate(("first", "second"))}
    radii = [float(eps) for eps in reversed(RADII)]  # in any order
    grid = parsimon.evaluate(models, data["images"], data["labels"], radii, attacks=ATTACKS, budget=[40, 8])
    assert described(grid) == described(runs.evaluate(config(), folder / "stored"))
    assert grid["sines:second", 0.01] is grid.evaluations["sines:second"][1]
    with pytest.raises(InputError, match=r"there is no evaluation of \('sines:third', 0.01\)"):
        grid["sines:third", 0.01]


def test_an_interrupted_evaluation_is_a_bound_and_resumes_to_the_same_end(folder: Path) -> None:
    whole = runs.evaluate(config(), folder / "whole")
    calls = 0

    def interrupt(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 20:
            os.kill(os.getpid(), signal.SIGINT)

    interrupted = runs.evaluate(config(batch_size=4), folder / "cut", watch=interrupt)
    assert interrupted.unfinished
    assert described(runs.load_evaluation(folder / "cut")) == described(interrupted)
    assert "<= " in str(interrupted)
    for evaluation, final in zip(interrupted.evaluations["sines:first"], whole.evaluations["sines:first"], strict=True):
        verdict = evaluation.verdict()
        assert verdict.value >= final.robust_accuracy
        assert (verdict.kind == "at_most") == (evaluation.unfinished > 0) == (verdict.interval is None)
    assert described(runs.resume_evaluation(folder / "cut")) == described(whole)
    assert described(runs.load_evaluation(folder / "cut")) == described(whole)


def test_a_radius_at_which_nothing_is_left_needs_no_run(folder: Path) -> None:
    settings = config(models=["sines:first"], eps=["0.9", "0.95"], budget=[200], attacks=["square"])
    grid = runs.evaluate(settings, folder / "stored")
    first, second = grid.evaluations["sines:first"]
    assert first.robust_accuracy == second.robust_accuracy == 0
    assert second.results == {}
    assert not grid.unfinished
    assert not (folder / "stored" / "sines_first" / "eps-0.95").exists()
    assert described(runs.load_evaluation(folder / "stored")) == described(grid)
    np.testing.assert_array_equal(second.adversarial, first.adversarial)


def test_white_box_accuracy_counts_every_attack(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    data = np.load(folder / "data.npz")
    weights = torch.tensor(np.random.default_rng(0).normal(size=(192, 3)), dtype=torch.float32)

    class Linear(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, images: Any) -> Any:
            return images.flatten(1) @ weights

    images = data["images"]
    labels = (images.reshape(12, -1) @ weights.numpy()).argmax(axis=1)
    grid = parsimon.evaluate(Linear(), images, labels, [0.01, 0.05], attacks=["random"], budget=5, white_box=True)
    for evaluation in grid.evaluations["model"]:
        pgd = parsimon.attack(Linear(), images, labels, evaluation.eps, attack="pgd", budget=5)
        verdict = evaluation.white_box_verdict
        assert verdict is not None
        assert verdict.value <= evaluation.robust_accuracy
        assert verdict.value == (evaluation.robust & ~pgd.success).mean()


def test_images_of_the_data_count_whether_they_are_classified_correctly_or_not(folder: Path) -> None:
    first = runs.evaluate(config(models=["sines:first"], images=5), folder / "first").any_evaluation
    np.testing.assert_array_equal(first.correct, [True, True, True, False, True])
    sampled = runs.evaluate(config(models=["sines:first"], images=5, sample=1), folder / "sampled").any_evaluation
    assert len(sampled.correct) == 5
    data = np.load(folder / "data.npz")["images"]
    rows = [
        next(row for row in range(12) if np.array_equal(data[row], image))
        for image in sampled.any_result.clean_images()
    ]
    assert rows == sorted(set(rows)) != [*range(5)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"attacks": ["square", "pgd"]}, "PGD needs gradients"),
        ({"eps": ["8/255", "8/255"]}, "eps must be different radii"),
        ({"budget": [5, 5]}, "budget must differ"),
        ({"budgt": [5]}, "did you mean budget"),
        ({"targets": "next"}, "an evaluation has no setting 'targets'"),
        ({"models": []}, "models must be a list of at least one name"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        config(**settings)


def test_another_evaluation_in_the_same_folder_is_refused(folder: Path) -> None:
    small = {"models": ["sines:first"], "eps": ["0.004"], "attacks": ["random"], "budget": [3]}
    runs.evaluate(config(**small), folder / "stored")
    with pytest.raises(InputError, match="holds an evaluation with other settings: eps differ"):
        runs.evaluate(config(**{**small, "eps": ["0.01"]}), folder / "stored")


def test_models_whose_names_look_alike_have_folders_of_their_own() -> None:
    settings = config(models=["a/b", "a:b"])
    folders = {cell_folder(Path("x"), settings, cell) for model in settings.models for cell in settings.cells(model)}
    assert len(folders) == 2 * len(RADII)


def test_the_command_prints_the_verdict_first_and_json_for_scripts(folder: Path) -> None:
    settings = (
        "--data",
        "data.npz",
        "--eps",
        "0.004,0.01",
        "--budget",
        "8,40",
        "--attack",
        "square",
        "--images",
        "all",
    )
    ran = run(folder, "evaluate", "sines:first", "sines:second", *settings, "--out", "results", "--quiet")
    assert ran.returncode == 0, ran.stderr
    grid = runs.load_evaluation(folder / "results")
    first = grid.evaluations["sines:first"][-1]
    assert ran.stdout.startswith(f"sines:first: robust accuracy {first.verdict()} at eps 2.55/255")
    for name in ("report.html", "results.csv", "table.md", "table.tex"):
        assert (folder / "results" / name).exists()
    shown = json.loads(run(folder, "show", "results", "--json").stdout)
    assert shown["finished"]
    cell = shown["models"][1]["radii"][0]
    expected = grid.evaluations["sines:second"][0]
    assert cell["robust_accuracy"]["value"] == expected.robust_accuracy
    assert [each["robust_accuracy"]["value"] for each in cell["within"]] == [
        expected.verdict(budget).value for budget in (8, 40)
    ]
    gated = run(folder, "show", "results", "--fail-under", str(first.robust_accuracy + 0.01))
    assert gated.returncode == 3
    assert "sines:first at eps 2.55/255" in gated.stderr


def test_a_file_describes_an_evaluation_and_flags_replace_its_settings(folder: Path) -> None:
    text = 'models = ["sines:first"]\ndata = "data.npz"\neps = ["0.004", 0.01]\nbudget = 30\nattacks = ["square"]\n'
    (folder / "spec.toml").write_text(text)
    ran = run(
        folder, "evaluate", "spec.toml", "--budget", "5", "--images", "4", "--out", "results", "--json", "--quiet"
    )
    assert ran.returncode == 0, ran.stderr
    stored = runs.load_evaluation(folder / "results")
    assert stored.radii == (0.004, 0.01)
    assert stored.any_evaluation.budgets == (5,)
    assert len(stored.any_evaluation.correct) == 4
    shutil.rmtree(folder / "results")


def test_workers_come_to_the_same_evaluation(folder: Path) -> None:
    small = ("sines:first", "--data", "data.npz", "--images", "all", "--eps", "0.004,0.03", "--budget", "8,40")
    alone = run(folder, "evaluate", *small, "--out", "alone", "--quiet")
    together = run(folder, "evaluate", *small, "--out", "together", "--quiet", "--workers", "2")
    assert (alone.returncode, together.returncode) == (0, 0), together.stderr
    expected = described(runs.load_evaluation(folder / "alone"))
    assert described(runs.load_evaluation(folder / "together")) == expected


def test_watching_sees_every_model_and_radius(folder: Path) -> None:
    seen: set[str] = set()

    def watch(attack: str, images: int, step: Step) -> None:  # noqa: ARG001
        seen.add(attack)

    runs.evaluate(config(eps=["0.004"], attacks=["random", "square"]), folder / "stored", watch=watch)
    assert seen == {"RandomCorners", "Square"}

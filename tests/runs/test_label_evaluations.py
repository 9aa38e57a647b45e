"""The attacks of an evaluation depend on what its models return, unless they are named."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parsimon
from parsimon import InputError, ModelError, runs
from parsimon.attacks.registry import attack_rows
from parsimon.runs.evaluation import ENSEMBLE, LABEL_ENSEMBLE, EvaluationConfig
from small_model import IMAGES, LABELS, linear, softmax
from stored_runs import OLD

BY_SCORES, BY_LABELS = ([*attack_rows(names)] for names in (ENSEMBLE, LABEL_ENSEMBLE))


def classes(images: Any) -> Any:
    return linear(images).argmax(axis=1)


def one_hot(images: Any) -> Any:
    return np.eye(10)[classes(images)]


def evaluated(model: Any, **settings: Any) -> Any:
    return parsimon.evaluate(model, IMAGES, LABELS, 0.02, budget=10, progress=False, **settings)


@pytest.mark.parametrize(
    ("model", "attacks"), [(linear, BY_SCORES), (softmax, BY_SCORES), (classes, BY_LABELS), (one_hot, BY_LABELS)]
)
def test_a_model_that_returns_labels_is_evaluated_with_label_only_attacks(model: Any, attacks: list[str]) -> None:
    assert evaluated(model).attacks == tuple(attacks)


def test_declared_labels_are_not_detected_again() -> None:
    assert evaluated(classes, scores="labels").attacks == tuple(BY_LABELS)
    assert evaluated(linear, scores="logits").attacks == tuple(BY_SCORES)


def test_models_that_are_compared_get_attacks_that_all_of_them_can_answer() -> None:
    grid = evaluated({"scores": linear, "labels": classes})
    assert {each.attacks for row in grid.evaluations.values() for each in row} == {tuple(BY_LABELS)}
    by_scores, by_labels = (row[0] for row in grid.evaluations.values())
    assert (by_scores.fooled_after == by_labels.fooled_after).all()


def test_named_attacks_are_kept() -> None:
    assert evaluated(classes, attacks=["signflip"]).attacks == ("SignFlip",)
    with pytest.raises(InputError, match="Square needs scores, and this model returns only labels"):
        evaluated(classes, attacks=["square"])


@pytest.mark.parametrize("scores", [None, "labels"])
def test_pgd_on_labels_is_refused(scores: Any) -> None:
    with pytest.raises(
        (InputError, ModelError), match=r"PGD .*needs gradients, .*this model (returns only labels|does not give)"
    ):
        evaluated(classes, white_box=True, scores=scores)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("data.npz", "sine_model.py"):
        shutil.copy(OLD / name, tmp_path)
    (tmp_path / "sine_labels.py").write_text(
        "from sine_model import build as build_scores\n\ndef build():\n    scores = build_scores()\n"
        "    return lambda images: scores(images).argmax(axis=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("model", "attacks"), [("sine_model:build", ENSEMBLE), ("sine_labels:build", LABEL_ENSEMBLE)])
def test_the_chosen_attacks_are_stored_and_used_again(place: Path, model: str, attacks: tuple[str, ...]) -> None:
    config = EvaluationConfig.of({"models": [model], "data": "data.npz", "eps": "0.02", "budget": 15}, progress=False)
    folder = place / "out"
    grid = runs.evaluate(config, folder)
    assert grid.any_evaluation.attacks == tuple(attack_rows(attacks))
    assert tomllib.loads((folder / "evaluation.toml").read_text())["attacks"] == list(attacks)
    stored = runs.load_evaluation(folder)
    again = runs.evaluate(config, folder)  # without a name for its attacks, it is the same evaluation
    for other in (stored, again, runs.resume_evaluation(folder, progress=False)):
        assert other.any_evaluation.attacks == grid.any_evaluation.attacks
        assert (other.any_evaluation.fooled_after == grid.any_evaluation.fooled_after).all()
    with pytest.raises(InputError, match="attacks differ"):
        runs.evaluate(EvaluationConfig.of({**config.settings(), "attacks": ["signflip"]}), folder)

"""Answers that misled users before: each is now right, refused, or labelled for what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parsimon
from command import run
from parsimon import runs, zoo
from parsimon.core.engine import Step
from parsimon.runs.config import RunConfig
from small_model import IMAGES, LABELS, Pixels, linear

MODELS = """
import numpy as np

WEIGHTS = np.random.default_rng(0).normal(size=(192, 10)).astype(np.float32)

def logits(images):
    return images.reshape(len(images), -1) @ WEIGHTS

def softmax(images):
    powers = np.exp(logits(images) - logits(images).max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)

def scores():
    return logits

def probabilities():
    return softmax

def labels():
    return lambda images: np.eye(10, dtype=np.float32)[logits(images).argmax(axis=1)]

def numbers():
    return lambda images: logits(images).argmax(axis=1)

def constant():
    return lambda images: np.tile(np.arange(10, dtype=np.float32), (len(images), 1))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODELS)
    images = np.random.default_rng(1).random((40, 3, 8, 8), np.float32)
    weights = np.random.default_rng(0).normal(size=(192, 10)).astype(np.float32)
    np.savez(tmp_path / "data.npz", images=images, labels=(images.reshape(40, -1) @ weights).argmax(axis=1))
    np.savez(tmp_path / "nines.npz", images=images, labels=np.full(40, 9))
    return tmp_path


def answer(folder: Path, *arguments: str) -> Any:
    ran = run(folder, *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_verdict_comes_from_the_strongest_attacks_and_one_attack_alone_is_a_bound(
    folder: Path,
) -> None:
    settings = ("--data", "data.npz", "--eps", "0.02", "--budget", "30", "--quiet")
    alone = run(folder, "run", "--model", "mine:scores", *settings, "--out", "alone")
    assert list(runs.load(folder / "alone").results) == ["Thrift"]
    assert "An upper bound: one attack only. For a verdict: parsimon evaluate" in alone.stdout
    verdict = run(folder, "evaluate", "mine:scores", *settings, "--out", "verdict")
    assert verdict.stdout.startswith("mine:scores: robust accuracy ")
    assert runs.load_evaluation(folder / "verdict").any_evaluation.attacks == ("Thrift", "Square")
    assert type(parsimon.attack(linear, IMAGES, LABELS, 0.02, budget=5).attack) is parsimon.Thrift


def test_an_unfinished_run_states_bounds_and_no_rate(tmp_path: Path) -> None:
    def stop(attack: str, images: int, step: Step) -> None:  # noqa: ARG001
        if step.counters.queries >= 400:
            raise KeyboardInterrupt

    config = RunConfig(model="robust", images=20, budget=600, attacks=("parsimonious", "square"))
    with pytest.raises(KeyboardInterrupt):
        runs.run(config, tmp_path / "cut", watch=stop, progress=False)
    shown = answer(tmp_path, "show", "cut")
    assert not shown["finished"]
    accuracy = shown["robust_accuracy"]
    assert (accuracy["value"], accuracy["interval"], accuracy["kind"]) == (None, None, "at_most")
    assert accuracy["at_most"] > 0
    for attack in shown["attacks"]:
        assert attack["success_rate"] is None
        assert attack["success_interval"] is None
    assert run(tmp_path, "show", "cut").stdout.startswith(f"Robust accuracy at most {accuracy['at_most']:.1%} so far")
    assert run(tmp_path, "show", "cut", "--fail-under", "0").returncode == 3


@pytest.mark.parametrize(
    "command", [("run", "--attack", "thrift"), ("compare", "square"), ("evaluate", "--attack", "square")]
)
@pytest.mark.parametrize("model", ["mine:labels", "mine:numbers"])
def test_an_attack_that_needs_scores_is_refused_on_labels(folder: Path, command: Any, model: str) -> None:
    named = (model,) if command[0] == "evaluate" else ("--model", model)
    for declared in ((), ("--scores", "labels")):
        out = f"{command[0]}-{model.partition(':')[2]}-{len(declared)}"  # the default name changes once per second
        ran = run(folder, *command, *named, "--data", "data.npz", "--out", out, *declared)
        assert ran.returncode == 2
        assert "needs scores, and this model returns only labels, one class per image" in ran.stderr
        assert "Choose a label-only attack" in ran.stderr


def test_the_kind_of_scores_is_named_if_another_was_declared(folder: Path) -> None:
    for model, declared, kind in (
        ("mine:labels", "probabilities", "labels"),
        ("mine:numbers", "logits", "labels"),
        ("mine:scores", "labels", "logits"),
        ("mine:probabilities", "labels", "probabilities"),
    ):
        ran = run(folder, "check", "--model", model, "--data", "data.npz", "--scores", declared)
        assert ran.returncode == 2
        assert f"the model returns {kind} (" in ran.stdout + ran.stderr
        assert f"not {declared}: pass --scores {kind}" in ran.stdout + ran.stderr


@pytest.mark.parametrize(("model", "form"), [("labels", "one-hot rows of 10 classes"), ("numbers", "class numbers")])
def test_check_recognises_labels(folder: Path, model: str, form: str) -> None:
    ran = run(folder, "check", "--model", f"mine:{model}", "--data", "data.npz")
    assert ran.returncode == 0
    assert f"labels, as {form}" in ran.stdout
    assert "the same images get the same class" in ran.stdout
    assert "note" not in ran.stdout


def test_constant_scores_are_no_evidence_of_robustness(folder: Path) -> None:
    settings = ("--data", "nines.npz", "--eps", "0.02", "--budget", "20")
    found = answer(folder, "evaluate", "mine:constant", *settings, "--out", "results")
    (warning,) = [each for each in found["models"][0]["radii"][0]["warnings"] if "The loss did not move" in each]
    assert f"warning: {warning}" in " ".join(run(folder, "show", "results").stdout.split())


def test_a_few_of_many_images_give_an_estimate_and_the_gate_may_use_its_lower_end() -> None:
    images, labels = zoo.images()
    settings: Any = {"attacks": ["thrift"], "budget": 30}
    found = parsimon.compare("robust", images, labels, 8 / 255, at_most=20, **settings).verdict
    measured = parsimon.compare("robust", images[:20], labels[:20], 8 / 255, **settings).verdict
    assert (found.kind, measured.kind) == ("estimate", "measured")
    assert str(found).startswith("about ")
    assert found.interval is not None
    low, high = found.interval
    assert found.passes(found.value)
    assert not found.passes(found.value, "lower")
    assert found.passes(low, "lower")
    assert low < found.value < high


def test_bold_marks_no_mean_over_other_images(folder: Path) -> None:
    run(folder, "compare", "random", "thrift", "--model", "mine:scores", "--data", "data.npz", "--out", "results",
        "--eps", "0.02", "--budget", "30")  # fmt: skip
    comparison = runs.load(folder / "results")
    weak, strong = (result.summary for result in comparison.results.values())
    assert weak.successes < strong.successes
    (rows,) = comparison.table().groups
    bold = {header: [row[place].best for row in rows] for place, header in enumerate(comparison.table().headers)}
    assert bold == {
        "attack": [False, False],
        "success": [False, True],
        "mean": [False, False],
        "median": [False, False],
        "mean of all": [False, True],
    }


def test_logits_and_probabilities_are_told_apart_without_being_declared(folder: Path) -> None:
    settings = ("--data", "data.npz", "--eps", "0.02", "--budget", "10")
    for model, kind in (("scores", "logits"), ("probabilities", "probabilities")):
        answer(folder, "run", "--model", f"mine:{model}", *settings, "--out", model)
        assert runs.load(folder / model).first.threat.scores == kind
        checked = answer(folder, "check", "--model", f"mine:{model}", "--data", "data.npz")
        assert any(kind in finding["sentence"] for finding in checked["findings"])

    def softmax(images: Pixels) -> Pixels:
        powers = np.exp(linear(images) - linear(images).max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    for result in (
        parsimon.attack(softmax, IMAGES, LABELS, 0.02, budget=5),
        parsimon.compare(softmax, IMAGES, LABELS, 0.02, ["square"], budget=5).first,
    ):
        assert result.threat.scores == "probabilities"

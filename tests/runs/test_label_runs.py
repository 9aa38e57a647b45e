"""Runs on a model that returns labels: its classes, its checks before a run, and its resumption."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parsimon
from parsimon import InputError, runs
from parsimon.core.engine import Step
from parsimon.errors import ModelError
from parsimon.runs.config import RunConfig
from small_model import IMAGES, LABELS, Pixels, attack, changed, linear

SETTINGS: Any = {"attack": "rays", "eps": 0.05, "budget": 60}

MODEL = """
import numpy as np

WEIGHTS = np.random.default_rng(0).normal(size=(192, 10)).astype(np.float32)
BRIGHTEST = 1  # another model changes the class of images whose first pixel is brighter

def build():
    def classify(images):
        labels = (images.reshape(len(images), -1) @ WEIGHTS).argmax(axis=1)
        return np.where(images[:, 0, 0, 0] > BRIGHTEST, (labels + 1) % 10, labels)
    return classify
"""


def numbers(images: Pixels) -> Any:
    return linear(images).argmax(axis=1)


@pytest.mark.parametrize("bad", [-10, 2**31])
def test_class_numbers_out_of_range_are_refused(bad: int) -> None:
    with pytest.raises(ModelError, match=r"class numbers must lie in 0\.\.2147483647"):
        attack(lambda images: numbers(images) + bad, **SETTINGS)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_one_float_per_image_is_no_class_number(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="must be a class, as an integer; a binary classifier must return two"):
        attack(lambda images: numbers(images).astype(np.float32).reshape(shape), **SETTINGS)


def test_a_label_that_the_model_never_predicts_is_not_refused() -> None:
    labels = np.array(LABELS)
    labels[0] = 400
    result = attack(numbers, labels=labels, **SETTINGS)
    assert result.clean.correct.tolist() == [False] + [True] * 5
    assert result.clean.classes == 401
    with pytest.raises(InputError, match=r"labels must be 0\.\.9"):  # one-hot rows tell the number of classes
        attack(lambda images: np.eye(10)[numbers(images)], labels=labels, **SETTINGS)


def test_the_classes_that_occur_are_the_targets() -> None:
    result = attack(lambda images: numbers(images) * 0, labels=np.zeros(6, np.int64), targets="next", **SETTINGS)
    assert result.clean.classes == 2  # the fewest that a classifier has
    assert not result.success.any()
    assert len(attack(numbers, targets=np.full(6, 5000), **SETTINGS).outcomes) == 6  # a class that nobody saw yet


def test_a_model_of_random_labels_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ModelError, match=r"different classes from call to call: \d of 6 differ"):
        attack(lambda images: rng.integers(0, 10, len(images)), labels="predicted", **SETTINGS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_are_refused_though_a_class_can_be_read_from_them(bad: float) -> None:
    calls = 0

    def spoilt(images: Pixels) -> Any:
        nonlocal calls
        calls += 1  # the checks before the attack make two
        scores = linear(images)
        return changed(scores, 1, bad) if calls > 2 else scores

    with pytest.raises(ModelError, match="infinite or NaN scores for a point near image 1; a classifier must return"):
        attack(spoilt, **SETTINGS)


def test_a_refused_attack_has_asked_nothing_but_the_clean_images() -> None:
    rows: list[int] = []

    def counting(images: Pixels) -> Any:
        rows.append(len(images))
        return numbers(images)

    with pytest.raises(InputError, match=r"Square needs scores.*Choose a label-only attack: .*rays") as raised:
        parsimon.compare(counting, IMAGES, LABELS, 0.05, ["rays", "square"], budget=20)
    assert raised.value.argument == "attack"
    assert rows == [6, 6]  # the second call checks that the model is not random


def test_a_run_on_labels_is_stored_resumed_verified_and_refused_with_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "label_model.py").write_text(MODEL)
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=LABELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = RunConfig(
        model="label_model:build", data="data.npz", attacks=("rays",), eps=0.05, budget=150, images="all", batch_size=4
    )
    whole = runs.run(config, Path("whole"))

    def interrupt(_: str, __: int, step: Step) -> None:
        if step.counters.queries > 100:
            signal.raise_signal(signal.SIGINT)

    assert runs.run(config, Path("cut"), in_flight=2, watch=interrupt).unfinished
    monkeypatch.setattr("label_model.BRIGHTEST", np.median(IMAGES[:, 0, 0, 0]))
    with pytest.raises(InputError, match="was begun with another"):
        runs.resume(Path("cut"))
    monkeypatch.setattr("label_model.BRIGHTEST", 1)
    assert runs.resume(Path("cut")).first.outcomes == whole.first.outcomes
    read = runs.load(Path("whole")).first
    assert read.outcomes == whole.first.outcomes
    assert (read.clean.kind, read.clean.confidence) == ("labels", None)
    (audit,) = runs.verify(Path("whole"))
    assert audit.holds
    assert audit.attacks["RayS"].queried == whole.first.success.sum() > 0

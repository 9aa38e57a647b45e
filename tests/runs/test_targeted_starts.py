"""Targeted label-only attacks start from an image of the target class, from the run's own data."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from parsimon import runs
from parsimon.core.engine import Step
from parsimon.core.model import AnswerLevel
from parsimon.core.types import Ask, Attack, Image, ImageContext, Images, Search
from parsimon.runs.config import RunConfig
from small_model import IMAGES, LABELS, attack
from stored_runs import OLD

SPEC = RunConfig(
    attacks=("haggle", "signflip", "hopskipjump"),
    model="sine_model:build",
    data="data.npz",
    eps="0.05",
    budget=60,
    targets="next",
)


@dataclass(frozen=True)
class Witness(Attack):
    """A label-only attack that asks once, and keeps the examples that it is given, by image."""

    needs: ClassVar[AnswerLevel] = "label"
    seen: ClassVar[dict[int, Image | None]] = {}

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:  # noqa: ARG002
        self.seen[context.index] = context.example
        yield Ask(Images(context.image[None]))


@dataclass(frozen=True)
class SeesLosses(Witness):
    """The same, for an attack that sees losses."""

    needs: ClassVar = "loss"


def examples(witness: Attack, **settings: Any) -> dict[int, Image | None]:
    Witness.seen.clear()
    attack(attack=witness, **settings)
    return dict(Witness.seen)


def test_the_example_is_the_first_image_that_the_model_classifies_as_the_target() -> None:
    seen = LABELS.tolist()  # the labels are the model's own predictions
    present = [each for each in range(10) if each in seen]
    targets = np.array([next(each for each in (*present, 0) if each != label) for label in seen])
    targets[-1] = next(each for each in range(10) if each not in seen)
    found = examples(Witness(), targets=targets)
    assert sorted(found) == list(range(6))
    assert found.pop(5) is None  # no image is of that class
    for index, example in found.items():
        first = seen.index(int(targets[index]))
        assert first != index
        np.testing.assert_array_equal(example, IMAGES[first])


def test_the_prediction_counts_and_not_the_label() -> None:
    """Image 0 is labelled with the target of image 1, but the model sees another class in it."""
    labels = LABELS.copy()
    labels[0] = next(each for each in range(10) if each not in LABELS)
    found = examples(Witness(), labels=labels, targets=np.full(6, labels[0]))
    assert 0 not in found
    assert set(found.values()) == {None}


@pytest.mark.parametrize(("witness", "targets"), [(Witness(), None), (SeesLosses(), "next")])
def test_other_attacks_have_no_example(witness: Attack, targets: str | None) -> None:
    assert set(examples(witness, targets=targets).values()) == {None}


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("data.npz", "sine_model.py"):
        shutil.copy(OLD / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return runs.run(SPEC, Path("whole"), progress=False)


@pytest.mark.parametrize(("name", "calls"), [("Haggle", 5), ("SignFlip", 12), ("HopSkipJump", 12)])
def test_a_resumed_run_has_the_same_examples(whole: Any, name: str, calls: int) -> None:
    def interrupt(attack: str, _: int, step: Step) -> None:
        if attack == name and step.counters.calls >= calls:
            os.kill(os.getpid(), signal.SIGINT)

    assert runs.run(SPEC, Path("cut"), in_flight=3, watch=interrupt, progress=False).unfinished
    resumed = runs.resume(Path("cut"), progress=False)
    for row, result in whole.results.items():
        assert resumed.results[row].outcomes == result.outcomes


def test_workers_get_the_examples(whole: Any) -> None:
    spread = runs.run(SPEC, Path("spread"), workers=2, progress=False)
    for row, result in whole.results.items():
        assert spread.results[row].outcomes == result.outcomes

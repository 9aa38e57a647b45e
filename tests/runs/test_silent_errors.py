"""Models that could make a result silently wrong: each is handled exactly, refused, or caught by the verification."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import parsimon
from parsimon import NES, Bandits, InputError, ModelError, Parsimonious, Square, Threat, runs
from parsimon.report.export import write_results
from parsimon.runs.config import RunConfig
from parsimon.runs.verification import in_ball
from small_model import IMAGES, LABELS, WEIGHTS, Pixels, linear, softmax

Scores = NDArray[Any]

RANDOM = np.random.default_rng(5)
MANY = RANDOM.random((40, 3, 8, 8), dtype=np.float32)
CLASSES = linear(MANY).argmax(axis=1)


class ReusedBuffer:
    """A model that writes the scores of every call into one array and returns a part of it."""

    def __init__(self) -> None:
        self._out = np.zeros((4096, 10), np.float32)

    def __call__(self, images: Pixels) -> Pixels:
        self._out[: len(images)] = linear(images)
        return self._out[: len(images)]


class ReusedTensor(torch.nn.Module):
    """A torch module that does the same with a registered buffer."""

    out: torch.Tensor
    weights: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("out", torch.zeros(4096, 10))
        self.register_buffer("weights", torch.zeros(192, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.out[: len(images)] = images.flatten(1) @ self.weights
        return self.out[: len(images)]


def results(model: Any, attack: parsimon.Attack | None = None, **settings: Any) -> parsimon.Result:
    settings = {"eps": 0.02, "budget": 150, "batch_size": 8, "progress": False, **settings}
    return parsimon.attack(model, MANY, CLASSES, attack=attack or Square(), **settings)


def endings(result: parsimon.Result) -> list[tuple[int, bool, int]]:
    return [(each.index, each.success, each.queries) for each in result.outcomes]


@pytest.mark.parametrize("attack", [Square(), Parsimonious(), NES(samples=10)])
def test_a_model_may_reuse_its_output_buffer(attack: parsimon.Attack) -> None:
    assert endings(results(ReusedBuffer(), attack)) == endings(results(linear, attack))


def test_a_torch_module_may_return_a_slice_of_a_registered_buffer() -> None:
    module = ReusedTensor()
    module.weights.copy_(torch.from_numpy(WEIGHTS))
    fooled = results(module, batch_size=100)  # more than torch computes in one piece
    adversarial = fooled.adversarial[fooled.success]
    assert len(adversarial) > 5
    assert (linear(adversarial).argmax(axis=1) != CLASSES[fooled.success]).all()
    assert fooled.verification is not None
    assert (fooled.verification.queried, fooled.verification.failed) == (len(adversarial), ())


# --- what 8-bit models are shown ------------------------------------------------------------------------------------


class Recorder:
    """A model that records the extreme pixels it has seen."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self.off_grid = 0.0

    def __call__(self, images: Pixels) -> Pixels:
        levels = np.rint(images.astype(np.float64) * 255)
        self.low, self.high = min(self.low, images.min()), max(self.high, images.max())
        self.off_grid = max(self.off_grid, np.abs(images - levels / 255).max())
        return linear(images)


EXTREME = np.where(RANDOM.random((20, 3, 8, 8)) < 0.5, 0, 1).astype(np.float32)  # so that every probe leaves [0, 1]


@pytest.mark.parametrize("attack", [NES(samples=10, sigma=0.01), Bandits(probe=1.0)])
def test_in_8_bit_mode_every_query_lies_on_the_grid(attack: parsimon.Attack) -> None:
    model = Recorder()
    labels = linear(EXTREME).argmax(axis=1)
    result = parsimon.attack(model, EXTREME, labels, 8 / 255, attack=attack, budget=60, eight_bit=True)
    assert (model.low, model.high) == (0, 1)
    assert model.off_grid < 1e-7
    assert sum(each.out_of_range for each in result.outcomes) == 0


@pytest.mark.parametrize("side", [8, 64])  # rendered by two kinds of canvas
@pytest.mark.parametrize("attack", [NES(samples=10, sigma=0.01), Bandits(probe=1.0)])
def test_probes_outside_0_and_1_are_counted_and_mentioned(attack: parsimon.Attack, side: int, tmp_path: Path) -> None:
    images = np.repeat(np.repeat(EXTREME[:4], side // 8, axis=2), side // 8, axis=3)
    seen = {"rows": 0}

    def model(batch: Pixels) -> Pixels:
        seen["rows"] += int(((batch < 0) | (batch > 1)).any(axis=(1, 2, 3)).sum())
        return linear(batch[:, :, :: side // 8, :: side // 8])

    labels = model(images).argmax(axis=1)
    result = parsimon.attack(model, images, labels, 0.001, attack=attack, budget=30)
    assert not result.success.any()  # so every row shown was counted
    counted = sum(each.out_of_range for each in result.outcomes)
    assert counted == seen["rows"] > 0
    name = type(attack).__name__
    assert f"Evaluations with pixels outside [0, 1]: {name} {counted:,}." in result.table().notes
    write_results({name: result}, tmp_path / "results.csv")
    header, first = (line.split(",") for line in (tmp_path / "results.csv").read_text().splitlines()[:2])
    assert int(first[header.index("out_of_range")]) == result.outcomes[0].out_of_range


# --- what a classifier returns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [9, 11])
def test_a_number_of_classes_that_changes_during_the_run_is_refused(classes: int) -> None:
    calls = {"made": 0}

    def model(images: Pixels) -> Pixels:
        calls["made"] += 1
        scores = np.concatenate([linear(images), np.full((len(images), 1), -100, np.float32)], axis=1)
        return scores[:, : classes if calls["made"] > 20 else 10]

    with pytest.raises(ModelError, match=f"it returned 10 before and {classes} now"):
        results(model)


def test_a_number_of_classes_that_changes_among_the_clean_images_is_refused() -> None:
    def model(images: Pixels) -> Pixels:
        return linear(images)[:, : 10 if np.array_equal(images[0], MANY[0]) else 9]

    with pytest.raises(ModelError, match="it returned 10 before and 9 now"):
        results(model)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_noise_is_judged_by_the_spread_of_the_scores(scale: float) -> None:
    def noisy(share: float) -> Any:
        noise = np.random.default_rng(0)

        def model(images: Pixels) -> Scores:
            scores = linear(images).astype(np.float64)
            return np.asarray(scale * (scores + share * scores.std() * noise.normal(size=scores.shape)))

        return model

    assert results(noisy(1e-8)).outcomes
    with pytest.raises(ModelError, match="different scores from call to call"):
        results(noisy(1e-2))


# --- the radius -----------------------------------------------------------------------------------------------------


@given(
    pixel=st.floats(0, 1, width=32),
    eps=st.one_of(st.floats(1e-6, 1), st.sampled_from([1 / 255, 8 / 255, 0.05, 0.3, 1.0])),
)
def test_the_plain_check_of_the_radius_holds_and_no_larger_float_would_pass(pixel: float, eps: float) -> None:
    image = np.full((1, 1, 1), pixel, np.float32)
    for corner, beyond in zip(Threat(eps).bounds(image), (-np.inf, np.inf), strict=True):
        assert np.abs(corner - image).max() <= eps  # as a user checks it, in single precision
        assert np.abs(corner.astype(np.float64) - image).max() <= eps
        assert in_ball(image, corner, Threat(eps))
        further = np.nextafter(corner, np.float32(beyond))
        assert further < 0 or further > 1 or abs(float(further[0, 0, 0]) - float(pixel)) >= eps  # double rounds, too


@pytest.mark.parametrize("eight_bit", [False, True])
def test_adversarial_images_stay_within_the_radius(eight_bit: bool) -> None:
    images = on_grid(MANY) if eight_bit else MANY
    labels = linear(images).argmax(axis=1)
    eps = 8 / 255
    result = parsimon.attack(linear, images, labels, eps, attack=Square(), budget=100, eight_bit=eight_bit)
    assert result.success.sum() > 10
    if eight_bit:
        levels, before = (np.rint(each.astype(np.float64) * 255) for each in (result.adversarial, images))
        assert np.abs(levels - before).max() == 8
    else:
        assert np.abs(result.adversarial - images).max() <= eps


def on_grid(images: Pixels) -> Pixels:
    return (np.rint(images * 255) / 255).astype(np.float32)


def test_the_published_behaviour_rounds_to_nearest_and_the_table_says_so() -> None:
    published = results(linear, Parsimonious("published", block=4))
    paper = results(linear, Parsimonious(block=4))
    assert (published.threat.rounding, paper.threat.rounding) == ("nearest", "inward")
    exceeding = np.abs(published.adversarial - MANY).max()
    assert np.float32(0.02) < exceeding <= 0.02 + 6e-8
    assert any("may exceed eps by up to 6e-8" in note for note in published.table().notes)
    assert not any("exceed" in note for note in paper.table().notes)
    assert published.verification is not None
    assert not published.verification.failed


def test_8_bit_mode_accepts_images_on_the_grid_however_they_were_divided() -> None:
    levels = np.rint(IMAGES * 255).astype(np.float32)
    for images in (levels / np.float32(255), levels * np.float32(1 / 255), (levels / 255.0).astype(np.float32)):
        labels = linear(images).argmax(axis=1)
        assert parsimon.attack(linear, images, labels, 2 / 255, budget=5, eight_bit=True).outcomes
    with pytest.raises(InputError, match="image 0 has others"):
        parsimon.attack(linear, IMAGES * np.float32(1 - 1e-6), LABELS, 2 / 255, eight_bit=True)


# --- verification ---------------------------------------------------------------------------------------------------


class Forgetful:
    """A model that returns another class in some calls of the attack, which no later call confirms."""

    def __init__(self, from_call: int, to_call: int) -> None:
        self._calls, self._from, self._to = 0, from_call, to_call

    def __call__(self, images: Pixels) -> Pixels:
        self._calls += 1
        return -linear(images) if self._from <= self._calls < self._to else linear(images)


def test_a_success_that_does_not_hold_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "parsimon"):
        result = results(Forgetful(10, 12), eps=0.001, budget=40)
    assert result.verification is not None
    false = [each.index for each in result.outcomes if each.success]
    assert len(false) > 5
    assert (result.verification.queried, list(result.verification.failed)) == (len(false), false)
    assert "do not hold when the model is queried again" in caplog.text
    notes = result.table().notes
    assert f"Successes that hold when queried again: Square 0 of {len(false)}." in notes
    assert any(note.startswith("WARNING") for note in notes)


def test_verification_costs_one_uncharged_query_per_success_and_can_be_switched_off() -> None:
    shown = {"rows": 0}

    def model(images: Pixels) -> Pixels:
        shown["rows"] += len(images)
        return linear(images)

    on, with_it = results(model), shown["rows"]
    shown["rows"] = 0
    off, without = results(model, verify=False), shown["rows"]
    assert endings(on) == endings(off)
    assert with_it - without == on.success.sum() > 0
    assert on.verification is not None
    assert on.verification.queried == on.verification.held == on.success.sum()
    assert off.verification is None
    assert "Successes not verified: Square." in off.table().notes


def test_a_failure_of_the_model_during_verification_loses_no_result(caplog: pytest.LogCaptureFixture) -> None:
    calls = {"made": 0, "fail_from": 10**9}

    def model(images: Pixels) -> Pixels:
        calls["made"] += 1
        if calls["made"] >= calls["fail_from"]:
            raise OSError("the cable is out")
        return linear(images)

    expected = endings(results(model, verify=False))
    calls.update(made=0, fail_from=calls["made"] + 1)
    with caplog.at_level(logging.WARNING, "parsimon"):
        result = results(model)
    assert endings(result) == expected
    assert result.verification is None
    assert "could not be verified" in caplog.text
    assert "the cable is out" in caplog.text


# --- a model that changes between two halves of a run ---------------------------------------------------------------

MODEL = """
import numpy as np

def build():
    weights = np.random.default_rng(0).normal(size=(192, 3))
    return lambda images: {scale} * np.tanh(images.reshape(len(images), -1).astype(np.float64) @ weights)
"""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run that was interrupted after its first images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def write_model(folder: Path, name: str, scale: float) -> None:
    (folder / f"{name}.py").write_text(MODEL.format(scale=scale))


def spec_for(name: str) -> RunConfig:
    return RunConfig(attacks=("square",), model=f"{name}:build", data="data.npz", eps="0.02", budget=20, batch_size=8)


@pytest.mark.parametrize(("scale", "accepted"), [(1.0, True), (1.0 + 1e-7, True), (1.1, False)])
def test_a_model_with_the_same_classes_and_other_scores_cannot_resume_a_run(
    begun: Path, monkeypatch: pytest.MonkeyPatch, scale: float, accepted: bool
) -> None:
    name = f"scaled{str(scale).replace('.', '_')}"
    write_model(begun, name, 1.0)
    weights = np.random.default_rng(0).normal(size=(192, 3))
    labels = np.tanh(MANY.reshape(len(MANY), -1).astype(np.float64) @ weights).argmax(axis=1)
    np.savez(begun / "data.npz", images=MANY, labels=labels)
    done = runs.run(spec_for(name), begun / "out", progress=False)
    write_model(begun, name, scale)
    monkeypatch.delitem(sys.modules, name)
    if accepted:
        again = runs.resume(begun / "out", progress=False)
        assert endings(again.results["Square"]) == endings(done.results["Square"])
        return
    with pytest.raises(InputError, match="begun with another model"):
        runs.resume(begun / "out", progress=False)


def test_probabilities_are_verified_too() -> None:
    result = results(softmax, scores="probabilities")
    assert result.verification is not None
    assert result.verification.held == result.success.sum() > 0

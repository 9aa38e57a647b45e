"""The findings of `parsimon check`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import parsimon
from bundled_images import Bundled
from parsimon import InputError, zoo
from parsimon.cli.commands import command
from parsimon.core.threat import Scores, Threat
from parsimon.defences import InputNoise
from parsimon.models import as_model
from parsimon.runs.classify import check_shape
from parsimon.runs.diagnose import Finding, inspect
from small_model import IMAGES, LABELS, Pixels, changed, linear, raising, softmax


def findings(
    model: Any = linear, images: Any = IMAGES, labels: Any = LABELS, scores: Scores = "logits"
) -> dict[str, Finding]:
    found = list(inspect(as_model(model), images, np.asarray(labels), Threat(0.02), 4, declared=scores))
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


def test_the_bundled_network_passes_all_checks(bundled: Bundled) -> None:
    found = findings(zoo.path("robust"), bundled.images, bundled.labels)
    assert {name: each.verdict for name, each in found.items()} == {
        "images": "ok",
        "scores": "ok",
        "determinism": "ok",
        "other images": "ok",
        "size of the batch": "ok",
        "speed": "ok",
        "clean accuracy": "ok",
    }
    assert "80.0%: 8 of 10" in found["clean accuracy"].sentence
    assert "10 classes, logits" in found["scores"].sentence
    assert "10 of shape (3, 32, 32)" in found["images"].sentence


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"images": IMAGES * 255}, "divide by 255"),
        ({"labels": changed(LABELS, 3, 12)}, "got 12 at image 3"),
        ({"model": raising}, "KeyError: 'weights/7'"),
        ({"model": softmax}, "scores='probabilities'"),
    ],
    ids=["images", "labels", "model", "scores"],
)
def test_a_problem_that_would_stop_an_attack_is_an_error(bad: dict[str, Any], words: str) -> None:
    (finding,) = findings(**bad).values()
    assert finding.verdict == "error"
    assert words in finding.sentence


def test_an_accuracy_no_better_than_guessing_is_noted() -> None:
    wrong = np.tile((LABELS + 1) % 10, 2)
    found = findings(images=np.tile(IMAGES, (2, 1, 1, 1)), labels=changed(wrong, 0, LABELS[0]))
    assert found["clean accuracy"].sentence == "8.3%: 1 of 12 images can be attacked"
    assert found["guessing"].verdict == "note"
    assert found["guessing"].sentence.startswith("Clean accuracy is 8.3%, not significantly above the 10.0% of")


def test_channels_last_and_another_size_have_different_messages() -> None:
    for declared, words in (((8, 8, 3), "its channels come last"), ((3, 9, 9), "resize them, channels first")):
        checked: Any = as_model(linear)
        checked.image_shape = declared  # as an ONNX file declares it
        with pytest.raises(InputError, match=words):
            check_shape(checked, (3, 8, 8))


def test_a_model_that_fails_on_a_single_image_is_an_error() -> None:
    def not_alone(images: Pixels) -> Pixels:
        if len(images) == 1:
            raise ValueError("squeezed too far")
        return linear(images)

    *fine, last = findings(not_alone, IMAGES[:4], LABELS[:4]).values()
    assert [each.verdict for each in fine] == ["ok"] * len(fine)
    assert last.verdict == "error"
    assert "squeezed too far" in last.sentence


def test_scores_that_depend_on_the_size_of_the_batch_are_noted() -> None:
    found = findings(lambda images: linear(images) + np.float32(0.01 * len(images)))
    assert found["size of the batch"].verdict == "note"
    assert "0.03 with the size of the batch" in found["size of the batch"].sentence  # between batches of 4 and of 1
    assert [name for name, each in found.items() if each.verdict != "ok"] == ["size of the batch"]


def test_scores_that_depend_a_little_on_the_place_in_the_batch_are_noted() -> None:
    found = findings(lambda images: linear(images) + np.arange(len(images), dtype=np.float32)[:, None] / 100)
    assert found["other images"].verdict == "note"
    assert "0.03 with the other images" in found["other images"].sentence


def test_scores_that_depend_on_the_other_images_are_an_error() -> None:
    *_, last = findings(lambda images: linear(images - images.mean(axis=0))).values()
    assert last.verdict == "error"
    assert last.sentence.startswith("the model's scores depend on the other images in the batch")


def test_scores_that_differ_a_little_from_call_to_call_are_noted() -> None:
    steps: Iterator[int] = iter(range(1000))
    found = findings(lambda images: linear(images) + np.float32(1e-4) * next(steps))
    assert found["determinism"].verdict == "note"
    assert "from call to call" in found["determinism"].sentence


# --- in Python --------------------------------------------------------------------------------------------------------


def test_python_lists_the_findings_of_the_command(bundled: Bundled) -> None:
    found = parsimon.check(zoo.path("robust"), bundled.images, bundled.labels)
    assert found.attackable
    names = [each.name for each in found]
    assert names == list(findings(zoo.path("robust"), bundled.images, bundled.labels))
    assert str(found).splitlines()[0] == "ok   images: 10 of shape (3, 32, 32), float32 in [0, 1]"
    assert repr(found) == "<Findings: ready to attack: 7 checks, 0 notes>"
    assert found.to_frame()["name"].tolist() == names
    assert "<table>" in found._repr_html_()


@pytest.mark.parametrize(
    ("model", "images", "labels", "words"),
    [
        (raising, IMAGES, LABELS, "KeyError: 'weights/7'"),
        (linear, changed(IMAGES, 3, 2), LABELS, "image 3 spans"),
        (linear, IMAGES, LABELS[:-1], "one whole number per image, for 6 images"),
        (linear, IMAGES, None, "labels are missing"),
    ],
)
def test_what_cannot_be_attacked_is_the_last_finding(model: Any, images: Any, labels: Any, words: str) -> None:
    found = parsimon.check(model, images, labels)
    assert not found.attackable
    assert (found[-1].verdict, words in found[-1].sentence) == ("error", True)
    assert repr(found).startswith("<Findings: this cannot be attacked: ")
    assert str(found).splitlines()[-1].startswith("error ")


def test_python_detects_probabilities_unless_told_otherwise() -> None:
    assert "10 classes, probabilities" in str(parsimon.check(softmax, IMAGES, LABELS))
    assert not parsimon.check(softmax, IMAGES, LABELS, scores="logits").attackable


# --- random models and defences ---------------------------------------------------------------------------------------


def noisy(seed: int = 0) -> Any:
    """The linear model with noise on its scores, from a generator of its own."""
    rng = np.random.default_rng(seed)
    return lambda images: linear(images) + rng.normal(0, 2, (len(images), 10)).astype(np.float32)


def test_a_random_model_is_an_error_until_it_is_allowed() -> None:
    """The error names a setting that `check` has."""
    (error,) = parsimon.check(noisy(), IMAGES, LABELS)
    assert error.verdict == "error"
    assert "allow that with stochastic=True." in error.sentence
    found = {each.name: each for each in parsimon.check(noisy(), IMAGES, LABELS, stochastic=True)}
    assert {each.verdict for each in found.values()} == {"ok"}
    assert "determinism" not in found
    assert "in 20 draws per image" in found["randomness"].sentence
    assert "so results vary" in found["randomness"].sentence


def test_a_model_that_is_not_random_is_a_note_if_it_may_be() -> None:
    found = {each.name: each for each in parsimon.check(linear, IMAGES, LABELS, stochastic=True)}
    assert found["randomness"].verdict == "note"
    assert "same scores twice" in found["randomness"].sentence


@pytest.mark.parametrize("defence", ["noise", InputNoise(0.05), ["jpeg", "noise"]])
def test_a_random_defence_is_checked_as_a_random_model(defence: Any) -> None:
    refused = parsimon.check(linear, IMAGES, LABELS, defence=defence)
    assert not refused.attackable
    assert "random by design" in refused[-1].sentence
    found = parsimon.check(linear, IMAGES, LABELS, defence=defence, stochastic=True)
    assert found.attackable
    assert "The defence draws from the seed" in str(found)


def test_scores_behind_a_defence_are_those_that_it_returns() -> None:
    found = {each.name: each for each in parsimon.check(linear, IMAGES, LABELS, defence="round", scores="logits")}
    assert "10 classes, probabilities" in found["scores"].sentence
    (wrong,) = parsimon.check(linear, IMAGES, LABELS, defence="round", scores="probabilities")
    assert "the model returns logits" in wrong.sentence
    (labels,) = parsimon.check(lambda images: linear(images).argmax(axis=1), IMAGES, LABELS, defence="aaa")
    assert "changes scores, and this model returns labels" in labels.sentence
    with pytest.raises(InputError, match="did you mean noise"):
        parsimon.check(linear, IMAGES, LABELS, defence="nose")


def test_the_command_allows_random_models_and_defences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", images=zoo.images()[0][:9], labels=zoo.images()[1][:9])
    for words, code in (
        (["--defence", "noise"], 2),
        (["--defence", "noise", "--random"], 0),
        (["--defence", "aaa"], 0),
    ):
        ran = CliRunner().invoke(command, ["check", "--data", "data.npz", *words])
        assert ran.exit_code == code, ran.output
        assert ("--random" in ran.output) == (code == 2)

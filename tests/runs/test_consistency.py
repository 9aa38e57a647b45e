"""A response must depend on its image alone: models that look at the rest of the batch are told from random ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import parsimon
from parsimon import ModelError
from parsimon.cli.commands import command
from parsimon.cli.output import in_shell
from parsimon.core.model import Model
from parsimon.errors import ParsimonError
from parsimon.runs.consistency import OtherBatch
from small_model import IMAGES, LABELS, Pixels, attack, linear, softmax

MANY = np.random.default_rng(1).random((70, 3, 8, 8), np.float32)
LABELS_OF_MANY = linear(MANY).argmax(axis=1)
DEPENDS = "depend on the other images in the batch"
RANDOM = "from call to call"


def normalised(images: Pixels) -> Pixels:
    """Scores of images less a part of the batch's mean, as batch normalisation in training mode gives."""
    return linear(np.clip(images - np.float32(0.3) * images.mean(axis=0) + np.float32(0.15), 0, 1))


def alone(images: Pixels) -> Pixels:
    """What `normalised` returns for a batch of one image."""
    return linear(np.clip(np.float32(0.7) * images + np.float32(0.15), 0, 1))


def by_place(images: Pixels) -> Pixels:
    """Noise from a generator that every call seeds alike."""
    return linear(images) + np.random.default_rng(0).normal(0, 3, (len(images), 10)).astype(np.float32)


def classes(images: Pixels) -> NDArray[np.intp]:
    return np.asarray(linear(images - images.mean(axis=0)).argmax(axis=1))


def noisy(scale: float) -> Callable[[Pixels], Pixels]:
    rng = np.random.default_rng(0)
    return lambda images: linear(images) + rng.normal(0, scale, (len(images), 10)).astype(np.float32)


class Counting:
    """A model that counts its images and its calls."""

    def __init__(self, model: Callable[[Pixels], Any] = linear) -> None:
        self._model, self.rows = model, list[int]()

    def __call__(self, images: Pixels) -> Any:
        self.rows.append(len(images))
        return self._model(images)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7, 64, 70])
@pytest.mark.parametrize("model", [normalised, classes, by_place])
def test_a_model_that_depends_on_the_rest_of_the_batch_is_refused(model: Any, count: int) -> None:
    with pytest.raises(ModelError, match=DEPENDS) as caught:
        attack(model, MANY[:count], LABELS_OF_MANY[:count], attack="haggle")
    assert "model.eval()" in str(caught.value)
    assert "batch_size=1" in str(caught.value)
    assert caught.value.argument == "batch_size"


CALLS: dict[str, Callable[..., Any]] = {
    "attack": lambda model, **given: parsimon.attack(model, IMAGES, LABELS, 0.02, budget=5, **given),
    "compare": lambda model, **given: parsimon.compare(model, IMAGES, LABELS, 0.02, ["square"], budget=5, **given),
    "evaluate": lambda model, **given: parsimon.evaluate(model, IMAGES, LABELS, [0.01, 0.02], budget=5, **given),
    "assess_defence": lambda model, **given: parsimon.assess_defence(
        model, IMAGES, LABELS, 0.02, budget=5, defence="jpeg", **given
    ),
    "random": lambda model, **given: attack(model, stochastic=True, draws=2, **given),
    "a random defence": lambda model, **given: attack(
        model, stochastic=True, draws=2, defence="noise,sigma=0.001", **given
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_refuses_it_unless_a_batch_has_one_image(call: str) -> None:
    with pytest.raises(ModelError, match=DEPENDS):
        CALLS[call](normalised)
    CALLS[call](normalised, batch_size=1)


def test_batches_of_one_image_give_what_the_model_does_for_single_images() -> None:
    labels = alone(MANY).argmax(axis=1)
    settings = {"eps": 0.03, "budget": 40}
    found = attack(normalised, MANY[:12], labels[:12], batch_size=1, **settings)
    assert found.outcomes == attack(alone, MANY[:12], labels[:12], batch_size=1, **settings).outcomes
    assert found.verification.failed == ()
    assert found.summary.successes > 0


def test_check_calls_it_an_error() -> None:
    (error,) = parsimon.check(normalised, IMAGES, LABELS)
    assert (error.verdict, DEPENDS in error.sentence, error.argument) == ("error", True, "batch_size")
    assert parsimon.check(normalised, IMAGES, alone(IMAGES).argmax(axis=1), batch_size=1).attackable


MINE = """
import numpy as np

def build():
    weights = np.random.default_rng(0).normal(size=(192, 10)).astype(np.float32)
    return lambda images: (images - SHARE * images.mean(axis=0)).reshape(len(images), -1) @ weights
"""


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--budget", "5"],
        ["compare", "square", "--budget", "5"],
        ["evaluate", "mine_in_batches:build", "--budget", "5"],
        ["defend", "jpeg", "--budget", "5"],
        ["run", "--dry-run"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_every_command_names_the_flag(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home(tmp_path, monkeypatch, share=0.5)
    model = [] if words[0] == "evaluate" else ["--model", "mine_in_batches:build"]
    ran = CliRunner().invoke(command, [*words, *model, "--data", "data.npz"])
    assert isinstance(ran.exception, ParsimonError)
    said = in_shell(str(ran.exception), ran.exception.argument, command)
    assert DEPENDS in said
    assert "use --batch-size 1" in said


def at_home(folder: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """Write a model of the user's own and its data into the current folder."""
    (folder / "mine_in_batches.py").write_text(MINE.replace("SHARE", str(share)))
    np.savez(folder / "data.npz", images=MANY, labels=LABELS_OF_MANY)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "mine_in_batches", raising=False)


def test_batch_normalisation_of_torch_is_found_wherever_it_is_hidden() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    network = torch.nn.Sequential(network, torch.nn.Flatten(), torch.nn.Linear(288, 10)).train()

    def function(images: Pixels) -> Any:
        with torch.no_grad():
            return network(torch.from_numpy(images)).numpy()

    with pytest.raises(ModelError, match=DEPENDS):
        attack(function, MANY[:20], "predicted")
    assert attack(network, MANY[:20], "predicted").warnings == (), "modules are run in evaluation mode"
    assert attack(function, MANY[:20], "predicted", batch_size=1).summary.queries > 0
    network[0][1] = torch.nn.BatchNorm2d(8, track_running_stats=False)  # has no other statistics than the batch's
    with pytest.raises(ModelError, match=DEPENDS):
        attack(network, MANY[:20], "predicted")


# --- random models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_a_random_model_is_not_taken_for_one_that_depends_on_the_batch(batch_size: int) -> None:
    both = noisy(0.5)
    for model in (noisy(0.5), lambda images: both(images) + normalised(images)):
        with pytest.raises(ModelError, match=RANDOM):
            attack(model, batch_size=batch_size)


def test_a_model_that_is_seldom_random_is_not_taken_for_one_either() -> None:
    """Only its second call differs from the others: no two calls with the same batch show that but the last ones."""
    calls = iter(range(1000))

    def once(images: Pixels) -> Pixels:
        return linear(images) + (np.float32(1) if next(calls) == 1 else 0)

    with pytest.raises(ModelError, match=RANDOM):
        attack(once, scores="logits")


def test_a_random_model_is_attacked_as_before() -> None:
    assert attack(noisy(0.5), stochastic=True, draws=5).warnings == ()
    assert attack(defence="noise,sigma=0.02", stochastic=True, draws=5).warnings == ()


# --- a little ---------------------------------------------------------------------------------------------------------


def slightly(share: float) -> Callable[[Pixels], Pixels]:
    return lambda images: linear(images - np.float32(share) * images.mean(axis=0))


def quantised(images: Pixels) -> Pixels:
    """A layer whose activations have 8 bits, in the range that the batch has."""
    activations = np.maximum(linear(images), 0)
    step = activations.max() / np.float32(255)
    weights = np.random.default_rng(5).normal(size=(10, 10)).astype(np.float32)
    return np.asarray((activations / step).round() * step @ weights)


@pytest.mark.parametrize("model", [slightly(0.01), quantised], ids=["mean", "8 bits"])
def test_a_little_dependence_is_a_warning(model: Callable[[Pixels], Pixels]) -> None:
    found = parsimon.compare(model, MANY, model(MANY).argmax(axis=1), 0.02, ["square"], budget=5)
    (warning,) = found.warnings
    assert f"{DEPENDS} or on their order a little" in warning
    assert f"WARNING: {warning}" in found.table().notes


def test_the_warning_is_in_the_document_of_a_stored_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home(tmp_path, monkeypatch, share=0.01)
    for words in (["run", "--model", "mine_in_batches:build"], ["evaluate", "mine_in_batches:build"]):
        ran = CliRunner().invoke(
            command, [*words, "--data", "data.npz", "--images", "5", "--budget", "5", "--json", "--out", words[0]]
        )
        assert ran.exit_code == 0, ran.output
        read = CliRunner().invoke(command, ["show", words[0], "--json"])
        assert all(f"{DEPENDS} or on their order a little" in output for output in (ran.stdout, read.stdout))
        json.loads(ran.stdout)


@pytest.mark.parametrize("model", [linear, softmax, slightly(1e-6), noisy(1e-5)])
def test_rounding_is_no_dependence(model: Callable[[Pixels], Pixels]) -> None:
    assert attack(model, MANY, LABELS_OF_MANY).warnings == ()


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_precision_is_no_dependence(precision: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)
    )
    network = network.to(getattr(torch, precision)).eval()

    def function(images: Pixels) -> Any:
        with torch.no_grad():
            return network(torch.from_numpy(images).to(getattr(torch, precision))).float().numpy()

    for model in (function, network):
        assert attack(model, MANY, "predicted", budget=3).warnings == ()


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "batch_size", "rows"),
    [(6, 64, [6, 6]), (6, 4, [4, 4, 2]), (6, 1, [1, 1, 1, 1, 1, 1, 1]), (1, 64, [1, 2])],
)
def test_the_first_batch_is_queried_twice_and_no_more(images: int, batch_size: int, rows: list[int]) -> None:
    model = Counting()
    estimated = attack(model, IMAGES[:images], LABELS[:images], batch_size=batch_size, verify=False, budget=1)
    assert model.rows[: len(rows)] == rows
    assert sum(model.rows[len(rows) :]) == estimated.counters.rows == images


def test_a_filled_batch_is_sent_twice_and_no_more() -> None:
    class Filled(Model):
        fixed_batch = True

        def __init__(self) -> None:
            self.rows: list[int] = []

        def __call__(self, images: Any) -> Any:
            self.rows.append(len(images))
            return linear(images)

    model = Filled()
    attack(model, batch_size=16, verify=False, budget=1)
    assert model.rows == [16, 16, 16]  # clean images, again, and the attack


# --- the other batch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(1, 70))
def test_the_other_batch_has_most_images_and_another_mean(count: int) -> None:
    other = OtherBatch.of(MANY[:count], 64)
    assert np.array_equal(other.pixels[other.rows], MANY[other.numbers])
    assert len(set(other.numbers.tolist())) == len(other.numbers) >= count / 2
    assert len(other.pixels) == max(2, count)
    assert np.abs(other.pixels.mean(axis=0) - MANY[:count].mean(axis=0)).max() > 0.05


def test_levels_of_eight_bits_stay_levels() -> None:
    images = (np.random.default_rng(0).integers(0, 256, (1, 3, 8, 8)) / 255).astype(np.float32)
    shown = OtherBatch.of(images, 64).pixels
    assert np.array_equal((np.rint(shown * 255) / 255).astype(np.float32), shown)


def test_a_random_model_whose_responses_agree_by_chance_is_attacked() -> None:
    """Its first two calls are the same, and the third, with another batch, is not."""
    calls, shift = iter(range(10**6)), np.random.default_rng(0)

    def model(images: Pixels) -> Pixels:
        moved = shift.normal() if next(calls) >= 2 else 0
        return np.asarray(linear(images) + np.float32(moved) * np.eye(10, dtype=np.float32)[0])

    assert attack(model, stochastic=True, draws=5, scores="logits").summary.queries > 0

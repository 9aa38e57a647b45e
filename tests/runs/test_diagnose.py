"""Warnings: scores that hide the truth are named, and ordinary models are left in peace."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parsimon
from parsimon import Comparison, runs, zoo
from parsimon.core.engine import Step
from parsimon.models import as_model
from parsimon.runs.config import RunConfig
from parsimon.runs.diagnose import inspect
from small_model import IMAGES, LABELS, WEIGHTS, Pixels, linear, softmax

MEAN = np.array((0.4914, 0.4822, 0.4465), np.float32).reshape(3, 1, 1)
DEVIATION = np.array((0.2470, 0.2435, 0.2616), np.float32).reshape(3, 1, 1)


def many(count: int = 60) -> tuple[Pixels, Any]:
    """Images of a linear model, and its predictions."""
    images = np.random.default_rng(1).random((count, 3, 8, 8), np.float32)
    return images, linear(images).argmax(axis=1)


def compared(model: Any, images: Any, labels: Any, *attacks: str, **settings: Any) -> Comparison:
    return parsimon.compare(model, images, labels, 0.05, attacks or ["thrift", "square"], budget=40, **settings)


@pytest.mark.parametrize("model", [linear, softmax])
@pytest.mark.parametrize("data", [(IMAGES, LABELS), many()], ids=len)
def test_an_ordinary_model_has_no_warning(model: Callable[[Pixels], Pixels], data: tuple[Pixels, Any]) -> None:
    assert compared(model, *data).warnings == ()


@pytest.mark.parametrize("name", ["robust", "standard"])
def test_the_bundled_networks_have_no_warning_and_gradients_that_show(name: str) -> None:
    images, labels = zoo.images()
    found = parsimon.compare(name, images[:40], labels[:40], 8 / 255, ["thrift", "pgd"], budget=60)
    assert found.warnings == ()
    assert not any(outcome.flat for result in found.results.values() for outcome in result.outcomes)


def test_a_torch_model_has_no_warning() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10)).eval()
    images, _ = many()
    with torch.no_grad():
        labels = model(torch.from_numpy(images)).argmax(dim=1).numpy()
    assert compared(model, images, labels, "thrift", "pgd").warnings == ()


# --- flat losses ------------------------------------------------------------------------------------------------------


def constant(images: Pixels) -> Pixels:
    return np.tile(np.array([2, 1 / 3, 0.7, -1.1], np.float32), (len(images), 1))


@pytest.mark.parametrize("batch_size", [3, 64])
def test_constant_scores_do_not_pass_as_robustness(batch_size: int) -> None:
    images, labels = many()[0], np.zeros(60, np.intp)
    found = compared(constant, images, labels, batch_size=batch_size)
    assert found.robust_accuracy == 1
    (warning,) = found.warnings
    assert "Thrift 60 of 60, Square 60 of 60" in warning
    assert "no evidence of robustness" in warning
    assert found.table().notes[0] == f"WARNING: {warning}"
    evaluated = parsimon.evaluate(constant, images, labels, 0.05, budget=40)
    assert any("did not move" in each for each in evaluated.warnings)


def stuck_on_some(images: Pixels) -> Pixels:
    """A model that does not react on images whose first pixel is bright."""
    scores = linear(images)
    scores[images[:, 0, 0, 0] > 0.5] = np.array([9, *[0.1] * 9], np.float32)
    return scores


@pytest.mark.parametrize("batch_size", [5, 64])
def test_a_loss_is_flat_exactly_where_it_never_moved(batch_size: int) -> None:
    images = np.array(many(30)[0])
    images[:10, 0, 0, 0], images[10:, 0, 0, 0] = 0.9, 0.1
    labels = stuck_on_some(images).argmax(axis=1)
    (result,) = compared(stuck_on_some, images, labels, "random", batch_size=batch_size).results.values()
    assert [outcome.flat for outcome in result.outcomes] == [index < 10 for index in range(30)]


def test_one_query_is_not_flat() -> None:
    found = parsimon.compare(constant, many()[0], np.zeros(60, np.intp), 0.05, ["random"], budget=1)
    assert not any(outcome.flat for outcome in found.first.outcomes)


# --- masked gradients -------------------------------------------------------------------------------------------------


def test_a_model_whose_gradients_are_masked_is_named() -> None:
    torch = pytest.importorskip("torch")

    class Quantised(torch.nn.Module):  # type: ignore[misc, name-defined]
        """A linear model of rounded pixels: its gradients are zero everywhere."""

        def forward(self, images: Any) -> Any:
            coarse = torch.round(images * 24) / 24
            return coarse.flatten(1) @ torch.from_numpy(WEIGHTS)

    images, _ = many()
    with torch.no_grad():
        labels = Quantised()(torch.from_numpy(images)).argmax(dim=1).numpy()
    found = compared(Quantised(), images, labels, "thrift", "pgd")
    thrift, pgd = (result.summary.successes for result in found.results.values())
    assert thrift > pgd
    (warning,) = [each for each in found.warnings if "masked" in each]
    assert f"Thrift fooled {thrift} of 60 images without gradients, and PGD {pgd} with them" in warning


# --- clean images -----------------------------------------------------------------------------------------------------


def cooled(images: Pixels) -> Pixels:
    """Probabilities that are not saturated."""
    powers = np.exp(linear(images) / 8)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("decimals", [1, 2, 3])
def test_rounded_probabilities_are_named(decimals: int) -> None:
    images, labels = many()
    found = compared(lambda images: cooled(images).round(decimals), images, labels, "random")
    assert re.match(rf"The model.s scores are rounded to {decimals} decimals?\.", found.warnings[0])
    assert compared(lambda images: cooled(images).round(5), images, labels, "random").warnings == ()


@cache
def bundled_logits(name: str) -> NDArray[np.float64]:
    return as_model(name)(zoo.images()[0][:64].copy()).astype(np.float64)


def precision_of(scores: NDArray[Any]) -> str:
    """What `check` says about the precision of these scores, one row per image; nothing if it has no doubt."""
    images = np.zeros((len(scores), 1, 2, 2), np.float32)
    images[:, 0, 0, 0] = np.arange(len(scores)) / 255
    found = parsimon.check(lambda shown: scores[np.rint(255 * shown[:, 0, 0, 0]).astype(int)], images, "predicted")
    return " ".join(each.sentence for each in found if each.name == "precision")


SHARPER = [1, 2, 3, 5, 8, 10, 15, 20]


@pytest.mark.parametrize("precision", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", ["robust", "standard"])
def test_saturated_scores_are_not_taken_for_rounded_ones(name: str, precision: Any) -> None:
    for sharper in SHARPER:
        logits = (sharper * bundled_logits(name)).astype(precision)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        for scores in (logits, powers / powers.sum(axis=1, keepdims=True)):
            assert scores.dtype == precision
            assert "rounded" not in precision_of(scores), sharper


@pytest.mark.parametrize("precision", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", ["robust", "standard"])
@pytest.mark.parametrize("decimals", [0, 1, 2, 3])
def test_rounded_scores_are_named_however_saturated_they_are(name: str, precision: Any, decimals: int) -> None:
    """Where half precision is coarser than the decimals, nothing was rounded; and a saturated softmax leaves few."""
    named = 0
    for sharper in SHARPER:
        logits = sharper * bundled_logits(name)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        for exact in (logits, powers / powers.sum(axis=1, keepdims=True)):
            scores = exact.round(decimals).astype(precision)
            inner = scores[(scores != 0) & (scores != 1)]
            fine = np.spacing(np.abs(inner)) < 10.0**-decimals / 64
            if fine.sum() >= 20 and not (decimals and (inner == inner.round(decimals - 1)).all()):
                assert f"rounded to {decimals} decimal" in precision_of(scores), sharper
                named += 1
    assert named >= (1 if precision is np.float16 else len(SHARPER))


def test_scores_of_few_values_are_named() -> None:
    images, labels = many(200)
    stepped = lambda images: (linear(images) / 0.7321).round() * np.float32(0.7321)  # noqa: E731
    assert "different values" in compared(stepped, images, labels, "random").warnings[0]


def test_an_accuracy_near_chance_is_named() -> None:
    images, labels = many()
    mixed = np.where(np.arange(60) < 6, labels, (labels + 1) % 10)
    (warning,) = compared(linear, images, mixed, "random").warnings
    assert warning.startswith("Clean accuracy is 10.0%, not significantly above the 10.0% of guessing.")


def expects_normalised(images: Pixels) -> Pixels:
    return np.asarray(as_model("standard")((images * DEVIATION + MEAN).astype(np.float32)))


def test_a_missing_normalisation_is_named_with_both_accuracies() -> None:
    every, classes = zoo.images()
    images, labels = every[:64], classes[:64].astype(np.intp)
    found = compared(expects_normalised, images, labels, "random")
    there = as_model("standard")(images).argmax(axis=1) == labels
    (warning,) = found.warnings
    assert f"accuracy is {found.first.clean.accuracy:.1%}, but {there.mean():.1%} if" in warning
    assert "CIFAR-10's mean" in warning
    threat = parsimon.Threat(0.05)
    noted = {each.name: each for each in inspect(as_model(expects_normalised), images, labels, threat, 64)}
    assert (noted["normalisation"].verdict, noted["normalisation"].sentence) == ("note", warning)


def test_a_model_that_refuses_pixels_outside_0_and_1_is_not_a_problem() -> None:
    def strict(images: Pixels) -> Pixels:
        if images.min() < 0 or images.max() > 1:
            raise ValueError("pixels must lie in [0, 1]")
        return linear(images)

    images, labels = many()
    half = np.where(np.arange(60) < 30, labels, (labels + 1) % 10)
    assert compared(strict, images, half, "random").warnings == ()


# --- stored -----------------------------------------------------------------------------------------------------------


def test_warnings_and_flat_losses_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = many(20)[0], np.arange(20) % 4
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    scores = "np.tile(np.float32([2, 1 / 3, 0.7, -1.1]), (len(images), 1))"
    (tmp_path / "unmoved.py").write_text(f"import numpy as np\ndef build():\n    return lambda images: {scores}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = RunConfig(model="unmoved:build", data="data.npz", attacks=("random",), budget=10, images="all")
    ran = runs.run(config, Path("run"))
    assert len(ran.warnings) == 2  # it guesses, and it does not move
    assert runs.load(Path("run")).warnings == runs.resume(Path("run")).warnings == ran.warnings
    assert all(outcome.flat for outcome in runs.load(Path("run")).first.outcomes)


def test_flat_losses_are_the_same_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = many(12)[0], np.zeros(12, np.intp)
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    # The loss moves on the images whose first pixel is dark.
    moving = "np.where(images[:, 0, 0, 0] > 0.5, 0, images.mean((1, 2, 3)) / 9)"
    scores = f"np.stack([{moving} * 0 + 2, {moving}, {moving} * 0 + 1 / 3], 1)"
    (tmp_path / "partly.py").write_text(f"import numpy as np\ndef build():\n    return lambda images: {scores}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = RunConfig(
        model="partly:build", data="data.npz", attacks=("random",), budget=30, images="all", batch_size=4
    )
    whole = runs.run(config, Path("whole")).first.outcomes

    def interrupt(_: str, __: int, step: Step) -> None:
        if step.counters.queries > 60:
            signal.raise_signal(signal.SIGINT)

    cut = runs.run(config, Path("cut"), in_flight=4, watch=interrupt)
    assert cut.unfinished
    assert runs.load(Path("cut")).first.outcomes == cut.first.outcomes
    assert runs.resume(Path("cut")).first.outcomes == whole
    assert 0 < sum(outcome.flat for outcome in whole) < 12

"""What a model returns is decided once: from all clean images, for every batch, worker and attacker.

Rows that are exactly one-hot may be labels, and may be those of a saturated softmax.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parsimon
from parsimon import InputError, runs
from parsimon.core.threat import Threat
from parsimon.defences import AAA, defended
from parsimon.models import as_model
from parsimon.runs.config import RunConfig
from parsimon.runs.preflight import prepare
from parsimon.runs.score_kind import kind_of
from parsimon.runs.store import Store
from small_model import linear, softmax

Pixels = NDArray[np.float32]

SATURATED, ALL = 70, 90  # more than the batches of 8 and 64 in which kinds are detected

# A softmax that is exactly one-hot on bright images, and on none of the dark ones.
USERS_MODULE = """
import numpy as np

WEIGHTS = np.random.default_rng(0).normal(size=(192, 10)).astype(np.float32)

def build():
    return saturated

def one_hot_rows():
    return lambda images: np.eye(10, dtype=np.float32)[(images.reshape(len(images), -1) @ WEIGHTS).argmax(axis=1)]

def saturated(images):
    flat = images.reshape(len(images), 1, -1)
    logits = (flat @ WEIGHTS)[:, 0].astype(np.float64)
    logits *= np.where(flat.mean(axis=(1, 2)) > 0.3, 1e6, 0.5)[:, None]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
"""


def model_of(name: str) -> Any:
    space: dict[str, Any] = {}
    exec(USERS_MODULE, space)
    return space[name]()


def images_of(count: int = ALL, bright: int = SATURATED) -> Pixels:
    """Bright images, which the softmax is sure about, and then dark ones."""
    images = np.random.default_rng(1).random((count, 3, 8, 8), dtype=np.float32)
    images[bright:] *= 0.2
    return images


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the models of a user, which workers can open by their names."""
    (tmp_path / "saturating.py").write_text(USERS_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    images = images_of()
    np.savez("images.npz", images=images, labels=model_of("build")(images).argmax(axis=1))
    return tmp_path


def test_the_first_images_are_one_hot_and_the_last_are_not() -> None:
    scores = model_of("build")(images_of())
    assert ((scores == 0) | (scores == 1))[:SATURATED].all()
    assert not ((scores == 0) | (scores == 1)).all(axis=1)[SATURATED:].any()


@pytest.mark.parametrize("batch_size", [1, 7, 64, 200])
def test_one_hot_rows_stay_open_until_other_rows_come(batch_size: int) -> None:
    model, images = as_model(model_of("build")), images_of()
    assert kind_of(model, images, Threat(0.1)) == "probabilities"
    clean = prepare(model, images, None, Threat(0.1), batch_size)
    assert clean.kind == "probabilities"
    assert clean.confidence is not None
    np.testing.assert_allclose(clean.confidence, model(images).max(axis=1), atol=1e-6)
    assert (clean.confidence[:SATURATED] == 1).all()


@pytest.mark.parametrize("batch_size", [1, 200])
def test_rows_that_are_all_one_hot_are_labels(batch_size: int) -> None:
    model, images = as_model(model_of("one_hot_rows")), images_of()
    assert kind_of(model, images, Threat(0.1)) == "labels"
    clean = prepare(model, images, None, Threat(0.1), batch_size)
    assert (clean.kind, clean.confidence) == ("labels", None)
    with pytest.raises(
        InputError, match=r"the model returns labels \(each row is one 1 and zeros\), not probabilities"
    ):
        prepare(model, images, None, Threat(0.1), batch_size, declared="probabilities")
    with pytest.raises(InputError, match="the model returns labels"):
        kind_of(model, images, Threat(0.1), "probabilities")


@pytest.mark.parametrize("declared", [None, "probabilities"])
def test_probabilities_that_begin_saturated_are_attacked_by_their_loss(declared: Any) -> None:
    images = images_of(12, 8)
    model = model_of("build")
    found = parsimon.attack(model, images, "predicted", 0.05, budget=30, scores=declared, batch_size=4)
    assert found.threat.scores == "probabilities"
    assert parsimon.evaluate(model, images, "predicted", 0.05, budget=5, scores=declared).attacks == (
        "Thrift",
        "Square",
    )


def test_a_kind_is_read_from_no_more_images_than_needed() -> None:
    rows: list[int] = []

    def counting(images: Pixels) -> Pixels:
        rows.append(len(images))
        return softmax(images)

    assert kind_of(as_model(counting), images_of(), Threat(0.1)) == "probabilities"
    assert rows == [8]
    rows.clear()
    known = as_model(counting)
    known.returns = "probabilities"
    assert kind_of(known, images_of(), Threat(0.1)) == "probabilities"
    assert rows == []


# --- behind a defence that changes scores -----------------------------------------------------------------------------


@pytest.mark.parametrize("defence", ["aaa", "round", "noise,round"])
@pytest.mark.parametrize("declared", [None, "probabilities"])
def test_a_score_defence_gets_the_kind_of_all_clean_images(defence: str, declared: Any) -> None:
    """Its first batch alone would tell it that it receives labels, from which it computes other scores."""
    images, model = images_of(12, 8), model_of("build")
    names = defence.split(",")
    settings: Any = {
        "defence": names,
        "stochastic": "noise" in names,
        "scores": declared,
        "budget": 20,
        "batch_size": 4,
    }
    found = parsimon.attack(model, images, "predicted", 0.05, attack="square", **settings)
    expected = defended(as_model(model), names, "probabilities")
    if "noise" not in names:
        assert found.clean.scores is not None
        np.testing.assert_allclose(found.clean.scores, expected(images), rtol=1e-6)
    assert found.threat.scores == expected.returns


@pytest.mark.parametrize("defence", ["aaa", "round"])
@pytest.mark.parametrize("declared", [None, "labels", "probabilities"])
def test_one_hot_rows_are_refused_behind_a_score_defence(defence: str, declared: Any) -> None:
    with pytest.raises(InputError, match=r"returns (only )?labels"):
        parsimon.attack(
            model_of("one_hot_rows"), images_of(9), "predicted", 0.05, defence=defence, budget=5, scores=declared
        )


@pytest.mark.parametrize(
    ("defence", "model", "scores"), [("round", linear, "logits"), ("aaa", softmax, "probabilities")]
)
def test_the_declared_kind_is_that_of_the_model_without_its_defences(defence: str, model: Any, scores: Any) -> None:
    images = images_of(9)
    declared = parsimon.attack(model, images, "predicted", 0.05, defence=defence, budget=20, scores=scores)
    found = parsimon.attack(model, images, "predicted", 0.05, defence=defence, budget=20)
    assert declared.outcomes == found.outcomes
    other: Any = "probabilities" if scores == "logits" else "logits"
    with pytest.raises(InputError, match=f"the model returns {scores} .* not {other}: pass scores='{scores}'"):
        parsimon.attack(model, images, "predicted", 0.05, defence=defence, budget=20, scores=other)


def test_a_model_that_its_owner_has_wrapped_gets_the_kind_too() -> None:
    images, model = images_of(12, 8), model_of("build")
    wrapped = AAA().protect(as_model(model))
    found = parsimon.attack(wrapped, images, "predicted", 0.05, budget=20, batch_size=4)
    named = parsimon.attack(model, images, "predicted", 0.05, budget=20, batch_size=4, defence="aaa")
    assert found.outcomes == named.outcomes


def test_workers_and_batches_change_nothing(folder: Path) -> None:
    data = np.load(folder / "images.npz")
    chosen = np.r_[np.arange(6), np.arange(SATURATED, SATURATED + 6)][[0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11]]
    images, labels = data["images"][chosen], data["labels"][chosen]
    settings: Any = {"eps": 0.05, "defence": "round", "budget": 40, "attack": "square"}
    alone = parsimon.attack("saturating:build", images, labels, **settings)
    assert {outcome.success for outcome in alone.outcomes} == {True, False}
    executions: list[Any] = [{"workers": 2}, {"batch_size": 3}, {"workers": 3, "batch_size": 1, "in_flight": 3}]
    for execution in executions:
        assert parsimon.attack("saturating:build", images, labels, **settings, **execution).outcomes == alone.outcomes


def test_a_stored_run_keeps_the_kind_and_reads_back_the_threat(folder: Path) -> None:
    config = RunConfig(
        model="saturating:build",
        data="images.npz",
        images=5,
        eps=0.05,
        budget=10,
        defence=("round",),
        scores="probabilities",
    )
    found = runs.run(config, folder / "out")
    again = runs.run(config, folder / "out")
    read = runs.load(folder / "out")
    assert read.first.threat == found.first.threat == again.first.threat
    with Store(folder / "out", np.load("images.npz")["images"]) as store:
        assert store.get_fact("kind without defences") == "probabilities"
    assert all(not audit.failed for each in runs.verify(folder / "out") for audit in each.attacks.values())
    with Store(folder / "out", np.load("images.npz")["images"], write=True) as store:
        store.set_fact("kind without defences", "logits")
    with pytest.raises(InputError, match="another kind without defences"):
        runs.run(config, folder / "out")

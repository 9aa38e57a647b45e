"""Runs of random models: refused without consent, and judged by many draws."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from scipy.stats import binomtest
from torch import nn

import parsimon
from command import refused, run
from parsimon import InputError, ModelError, ParsimonError
from parsimon.attacks.registry import parse_attack
from parsimon.cli.commands import command
from parsimon.cli.output import in_shell
from parsimon.core.engine import Engine
from parsimon.core.model import Keys, Model
from parsimon.core.threat import Sampling, Threat
from parsimon.core.types import Task
from parsimon.models import as_model
from parsimon.report import charts, figures
from parsimon.runs import preparation
from scripted import results
from small_model import IMAGES, LABELS, attack, linear

Pixels = NDArray[np.float32]


def noisy(scale: float = 2.0, seed: int = 0) -> Any:
    """The linear model with noise on its scores, from a generator of its own."""
    rng = np.random.default_rng(seed)
    return lambda images: linear(images) + rng.normal(0, scale, (len(images), 10)).astype(np.float32)


class Dropout(nn.Module):
    """Drops units in every call, also in evaluation mode."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(values, 0.3, training=True)


def network(between: nn.Module) -> nn.Module:
    """Two layers with a part between them."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), between, nn.Linear(64, 10)).eval()


def classes_of(module: nn.Module) -> NDArray[np.intp]:
    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(IMAGES)).argmax(dim=1).numpy())


# --- models that are not random ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["thrift", "square", "nes,samples=10"])
def test_a_model_that_is_not_random_has_the_outcomes_of_a_plain_engine(name: str) -> None:
    found = attack(attack=name, budget=200, loss="margin", verify=False)
    engine = Engine(parse_attack(name), as_model(linear), Threat(0.02, loss="margin"), budget=200)
    tasks = [Task(index, image, int(LABELS[index])) for index, image in enumerate(IMAGES)]
    plain = results(engine.run(tasks))
    assert {outcome.index: outcome for outcome in found.outcomes} == plain
    assert any(outcome.success for outcome in found.outcomes)
    for outcome in found.outcomes:
        assert (outcome.draws, outcome.errors, outcome.error_rate, outcome.flagged) == (0, 0, None, None)


def test_results_on_a_model_that_is_not_random_say_nothing_of_draws() -> None:
    found = attack()
    assert not {"draws", "errors", "error_rate", "error_low", "error_high"} & set(found.to_frame())
    assert "draw" not in str(found)
    assert found.clean.errors is None
    assert found.clean.draws == 0


# --- consent ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["function", "dropout"])
def test_a_model_that_draws_by_itself_is_refused_without_consent(kind: str) -> None:
    model = noisy() if kind == "function" else network(Dropout())
    labels = LABELS if kind == "function" else classes_of(network(nn.Identity()))
    with pytest.raises(ModelError, match="different scores from call to call") as caught:
        attack(model, labels=labels)
    assert "allow that with stochastic=True" in str(caught.value)
    found = attack(model, labels=labels, stochastic=True, draws=10)
    assert all(outcome.draws == 10 for outcome in found.outcomes)
    assert all(outcome.queries <= 20 for outcome in found.outcomes)


def test_a_defence_that_is_random_by_design_is_refused_without_consent() -> None:
    with pytest.raises(ModelError, match="random by design") as caught:
        attack(defence="noise,sigma=0.02")
    assert "allow that with stochastic=True" in str(caught.value)
    found = attack(defence="noise,sigma=0.02", stochastic=True, draws=10)
    assert sum(outcome.draws for outcome in found.outcomes) == 10 * len(found.outcomes) > 0


@pytest.mark.parametrize("name", ["rays", "hopskipjump", "signflip", "haggle", "adba"])
def test_a_label_only_attack_is_refused_on_a_random_model(name: str) -> None:
    with pytest.raises(InputError, match="label-only attacks cannot be run on a random model"):
        attack(noisy(), stochastic=True, attack=name)


def test_another_loss_than_the_margin_is_refused_on_a_random_model() -> None:
    sentence = "attacked by the margin loss, .* choose loss='margin'; got 'cross-entropy'"
    with pytest.raises(InputError, match=sentence):
        attack(noisy(), stochastic=True, loss="cross-entropy")
    with pytest.raises(InputError, match=sentence):  # one rule
        Threat(0.1, sampling=Sampling())
    attack(noisy(), stochastic=True, loss="margin", draws=2)


@pytest.mark.parametrize("setting", [{"draws": 5}, {"repeats": 2}, {"error_rate": 0.1}])
def test_settings_of_random_models_need_consent(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"{next(iter(setting))} is for random models.*stochastic=True$"):
        attack(**setting)


@pytest.mark.parametrize(
    "setting", [{"draws": 0}, {"repeats": 0}, {"error_rate": 0}, {"error_rate": 1e-6}, {"error_rate": 1.5}]
)
def test_settings_that_mean_nothing_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        attack(stochastic=True, **setting)


def test_more_repeats_than_queries_are_refused() -> None:
    """No point could be queried, and every image would count as robust."""
    with pytest.raises(InputError, match=r"repeats must be at most the budget.* got 4 and 3"):
        attack(noisy(), stochastic=True, repeats=4, budget=3)
    found = attack(noisy(), stochastic=True, repeats=3, budget=3, draws=2)
    assert [outcome.queries for outcome in found.outcomes] == [3] * len(found.outcomes)


def test_gradients_are_refused_behind_a_defence() -> None:
    with pytest.raises(ModelError, match="needs gradients, which no model gives behind a defence"):
        attack(network(nn.Identity()), defence="jpeg", attack="pgd")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--random", "--attack", "rays"], "label-only attacks cannot be run on a random model"),
        (["--random", "--loss", "cross-entropy"], "attacked by the margin loss"),
        (["--draws", "20"], "is for random models: it needs"),
        (["--defence", "noise"], "random by design"),
        (["--defence", "noise", "--draws", "20"], "random by design"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(command, ["run", "--images", "2", "--budget", "5", *options])
    assert isinstance(ran.exception, ParsimonError)
    (said,) = in_shell(str(ran.exception), ran.exception.argument, command).splitlines()
    assert sentence in said
    assert "stochastic" not in said
    if "--random" not in options:
        assert "--random" in said
    assert not list(tmp_path.iterdir())


# --- definitions ------------------------------------------------------------------------------------------------------


class Biased:
    """Errs at an image, and everywhere near it, with a probability that the first pixel of the clean image tells."""

    def __init__(self, probabilities: list[float]) -> None:
        self.probabilities = np.array(probabilities)
        self.images = np.full((len(probabilities), 1, 4, 4), 0.5, np.float32)
        self.images[:, 0, 0, 0] = self._codes = np.linspace(0.1, 0.9, len(probabilities))
        self.labels = np.zeros(len(probabilities), np.intp)
        self._rng = np.random.default_rng(5)

    def __call__(self, images: Pixels) -> NDArray[np.float64]:
        which = np.abs(images[:, 0, 0, 0, None] - self._codes).argmin(axis=1)
        errs = self._rng.random(len(images)) < self.probabilities[which]
        wrong = 1 + self._rng.integers(2, size=len(images))
        scores = np.zeros((len(images), 3))
        scores[np.arange(len(images)), np.where(errs, wrong, 0)] = self._rng.exponential(size=len(images)) + 0.1
        return scores


def test_an_image_is_correct_if_it_errs_in_at_most_half_of_the_draws() -> None:
    """The probabilities are so far from 1/2 that 200 draws show on which side of it they are."""
    model = Biased([0.0, 0.1, 0.25, 0.75, 0.9, 1.0])
    found = parsimon.attack(
        model, model.images, model.labels, 0.02, attack="square", budget=60, stochastic=True, draws=200
    )
    assert found.clean.correct.tolist() == [True, True, True, False, False, False]
    assert found.clean.errors is not None
    for errors, probability in zip(found.clean.errors.tolist(), model.probabilities, strict=True):
        assert binomtest(errors, 200, probability).pvalue > 1e-6
    # No attack can change how often this model errs, so its fresh draws tell the same probability.
    assert [outcome.index for outcome in found.outcomes] == [0, 1, 2]
    for outcome in found.outcomes:
        assert not outcome.success
        assert binomtest(outcome.errors, outcome.draws, model.probabilities[outcome.index]).pvalue > 1e-6
    evaluation = parsimon.evaluate(model, model.images, model.labels, 0.02, budget=30, stochastic=True, draws=200)
    assert evaluation.correct.tolist() == evaluation.robust.tolist() == [True, True, True, False, False, False]


@dataclass(frozen=True)
class Alternating(Model):
    """Errs in the first draws of each image, as many as its first pixel says; fresh draws err as clean ones do."""

    drawn: list[int] = field(default_factory=list, compare=False)

    random = True

    def __call__(self, images: Any) -> NDArray[Any]:
        return self.draw(images, np.zeros((len(images), 1), np.int64))

    def draw(self, images: Any, keys: Keys) -> NDArray[Any]:
        errors = np.rint(images[:, 0, 0, 0] * 20)
        self.drawn.append(len(images))
        scores = np.zeros((len(images), 2))
        scores[:, 1] = np.where(keys[:, -1] < errors, 2.0, -2.0)
        return scores


def test_an_image_that_errs_in_exactly_half_of_the_draws_is_correct_and_not_fooled() -> None:
    images = np.full((3, 1, 4, 4), 0.5, np.float32)
    images[:, 0, 0, 0] = np.array([4, 5, 6]) / 20
    found = parsimon.attack(
        Alternating(), images, np.zeros(3, int), 0.001, attack="random", budget=30, stochastic=True, draws=10
    )
    assert found.clean.errors is not None
    assert found.clean.errors.tolist() == [4, 5, 6]
    assert found.clean.correct.tolist() == [True, True, False]
    assert [(outcome.errors, outcome.success) for outcome in found.outcomes] == [(4, False), (5, False)]


# --- what is reported -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def random_result() -> parsimon.Result:
    found: parsimon.Result = attack(noisy(4.0), eps=0.05, budget=150, stochastic=True, draws=30, error_rate=0.1)
    return found


def test_rows_hold_the_fresh_draws_and_the_wilson_interval_of_their_error_rate(random_result: parsimon.Result) -> None:
    frame = random_result.to_frame()
    outcomes = {outcome.index: outcome for outcome in random_result.outcomes}
    assert len(frame) == len(IMAGES)
    assert len({outcome.errors for outcome in outcomes.values()}) > 1
    for row in frame.to_dict("records"):
        outcome = outcomes.get(row["image"])
        if outcome is None:
            assert row["draws"] == 0
            continue
        assert (row["draws"], row["errors"]) == (30, outcome.errors)
        interval = binomtest(outcome.errors, 30).proportion_ci(method="wilson")
        assert row["error_rate"] == outcome.errors / 30
        assert (row["error_low"], row["error_high"]) == pytest.approx((interval.low, interval.high))
        assert row["success"] == (outcome.errors > 15)


def test_the_table_states_draws_error_rate_and_what_is_not_promised(random_result: parsimon.Result) -> None:
    table = " ".join(str(random_result).split())
    attacked, rates = len(random_result.outcomes), [outcome.error_rate or 0 for outcome in random_result.outcomes]
    assert re.search(r"Random model\. Fooled: it errs in more than half of .*fresh draws", table)
    assert re.search(r"\b30\b[^.]* (draws|uncharged)", table)
    assert f"Fresh draws: Thrift {30 * attacked:,}." in table
    assert f"Mean error rate in fresh draws, over all attacked images: Thrift {np.mean(rates):.1%} (" in table
    assert "tests with an error rate of 0.1." in table
    assert "another run, another batch size or a resumed run sees other draws, so results vary" in table
    assert "hold when queried again" not in table
    assert random_result.verification is None


def test_a_keyed_defence_promises_the_same_results_and_keeps_the_promise() -> None:
    settings: dict[str, Any] = {"defence": "noise,sigma=0.05", "stochastic": True, "draws": 10, "budget": 60}
    first, again = attack(**settings), attack(batch_size=3, in_flight=2, **settings)
    assert "The defence draws from the seed" in str(first)
    assert first.outcomes == again.outcomes
    assert first.clean.errors is not None
    assert again.clean.errors is not None
    assert first.clean.errors.tolist() == again.clean.errors.tolist()
    assert attack(seed=1, **settings).outcomes != first.outcomes


def test_an_evaluation_of_a_random_model_runs_end_to_end() -> None:
    evaluation = parsimon.evaluate(noisy(4.0), IMAGES, LABELS, 0.05, budget=100, stochastic=True, draws=20)
    table = " ".join(str(evaluation).split())
    assert re.search(r"Random model\. Fooled: it errs in more than half of .*fresh draws", table)
    assert re.search(r"\b20\b[^.]* (draws|uncharged)", table)
    assert "sees other draws, so results vary" in table
    fooled = {outcome.index for each in evaluation.black_box.values() for outcome in each.outcomes if outcome.success}
    expected = [bool(right) and index not in fooled for index, right in enumerate(evaluation.correct)]
    assert evaluation.robust.tolist() == expected


def test_dropout_is_averaged_as_a_loop_of_calls_would() -> None:
    """The clean accuracy is that of many independent calls of the module."""
    labels = classes_of(network(nn.Identity()))
    module = network(Dropout())
    found = parsimon.evaluate(module, IMAGES, labels, 0.01, budget=10, stochastic=True, draws=100)
    wrong = np.mean([classes_of(module) != labels for _ in range(400)], axis=0)
    clear = np.abs(wrong - 0.5) > 0.2
    assert clear.sum() >= 3
    assert found.correct[clear].tolist() == (wrong < 0.5)[clear].tolist()


def test_a_module_in_training_mode_is_run_in_evaluation_mode_and_the_table_says_so() -> None:
    """Its dropout layers do nothing, so all draws agree, and the results are those without consent."""
    module, labels = network(nn.Dropout(0.3)).train(), classes_of(network(nn.Identity()))
    found = attack(module, labels=labels, stochastic=True, draws=50)
    assert found.clean.errors is not None
    assert found.clean.errors.tolist() == [0] * len(IMAGES)
    assert "evaluation mode" in " ".join(str(found).split())
    assert module.training


def test_many_draws_of_clean_images_are_announced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "_MANY_DRAWS", len(IMAGES) * 20)
    settings: dict[str, Any] = {"budget": 5, "stochastic": True, "progress": False, "defence": "noise,sigma=0.01"}
    parsimon.attack(linear, IMAGES, LABELS, 0.01, draws=19, **settings)
    assert "is drawn" not in caplog.text
    parsimon.attack(linear, IMAGES, LABELS, 0.01, draws=20, **settings)
    assert f"each of the {len(IMAGES)} clean images is drawn 20 times first" in caplog.text


# --- budgets and curves -----------------------------------------------------------------------------------------------


def test_several_budgets_are_refused_before_the_first_query(tmp_path: Path) -> None:
    """A success counts where its attack ended, and earlier points were not judged: smaller budgets are unknown."""

    def never(_: Any) -> Any:
        raise AssertionError("the model was queried")

    for settings in ({"stochastic": True}, {"stochastic": True, "defence": "noise,sigma=0.02"}):
        with pytest.raises(InputError, match="a random model needs one run per budget"):
            parsimon.evaluate(never, IMAGES, LABELS, 0.05, budget=[10, 20], **settings)
    said = refused(run(tmp_path, "evaluate", "--random", "--budget", "10,20", "--images", "2"))
    assert "a random model needs one run per budget" in said
    parsimon.evaluate(linear, IMAGES, LABELS, 0.05, budget=[10, 20], defence="bit-depth,bits=5")


def test_a_smaller_budget_is_refused_afterwards() -> None:
    evaluation = parsimon.evaluate(noisy(4.0), IMAGES, LABELS, 0.05, budget=30, stochastic=True, draws=20)
    assert evaluation.robust_within(30).tolist() == evaluation.robust.tolist()
    for find in (evaluation.robust_within, evaluation.verdict):
        with pytest.raises(InputError, match=r"one run per budget.*30 queries"):
            find(29)
    exact = parsimon.evaluate(linear, IMAGES, LABELS, 0.05, budget=30)
    assert exact.robust_within(0).all()


def test_no_curve_of_a_random_model_is_drawn(random_result: parsimon.Result) -> None:
    exact = parsimon.Comparison({"Thrift": attack()})
    random = parsimon.Comparison({"Thrift": random_result})
    only = charts.success_chart({"random": random})
    assert only["lines"] == []
    assert only["hint"].startswith("A random model has no curve")
    both = charts.success_chart({"exact": exact, "random": random})
    assert [line["name"] for line in both["lines"]] == ["Thrift, exact"]
    assert both["hint"].startswith("A random model has no curve")
    assert "no curve" not in charts.success_chart({"exact": exact})["hint"]
    with pytest.raises(InputError, match="no success curve: a random model needs one run per budget"):
        figures.comparison_curves({"random": random})
    settings: Any = {"budget": 20, "stochastic": True, "draws": 10}
    grid = parsimon.evaluate({"one": noisy(4.0)}, IMAGES, LABELS, [0.02, 0.05], **settings)
    (chart,) = charts.accuracy_charts(grid)
    assert (chart["lines"], chart["hint"][:27]) == ([], "A random model has no curve")
    with pytest.raises(InputError, match="no figure against queries: a random model"):
        figures.accuracy_against_queries(grid)
    figures.accuracy_against_radius(grid)


def random_classes(scale: float = 8.0) -> Any:
    model = noisy(scale)
    return lambda images: model(images).argmax(axis=1)


@pytest.mark.parametrize("name", ["thrift", "square", "haggle", "rays"])
@pytest.mark.parametrize("scores", [None, "labels"])
def test_advice_on_a_random_model_that_returns_labels_leads_nowhere_else(name: str, scores: Any) -> None:
    """No attack fits it, so no message may send its user to another attack without a condition."""
    with pytest.raises(InputError, match=r"(?i)no attack fits a random model: let the model") as caught:
        attack(random_classes(), stochastic=True, attack=name, scores=scores)
    assert "Choose" not in str(caught.value)
    assert "label-only attack:" not in str(caught.value)

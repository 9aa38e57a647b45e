"""`runs.verify` and `parsimon verify` find out what does not hold, by a definition of their own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import binom, fisher_exact

from bundled_runs import make_evaluation, make_run
from command import refused
from command import run as command_line
from parsimon import runs, zoo
from parsimon.cli.commands import command
from parsimon.core.types import Images
from parsimon.errors import InputError, StoreError
from parsimon.models import as_model
from parsimon.results.statistics import fisher
from parsimon.runs.audit import SIGNIFICANCE, RunAudit, audit_attack
from parsimon.runs.config import RunConfig


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return make_run(folder, "run", attacks=("thrift", "square"))


def test_every_success_of_a_good_run_holds(run: Path) -> None:
    (audit,) = runs.verify(run)
    results = runs.load(run).results
    assert audit.holds
    assert {name: each.held for name, each in audit.attacks.items()} == {
        name: int(result.success.sum()) for name, result in results.items()
    }
    assert audit.attacks["Thrift"].queried > 0


def test_successes_on_another_model_fail_as_its_own_predictions_say(run: Path) -> None:
    (audit,) = runs.verify(run, "standard")
    result = runs.load(run).results["Thrift"]
    fooled = np.flatnonzero(result.success)
    predicted = as_model("standard")(result.adversarial[fooled]).argmax(axis=1)
    expected = fooled[predicted == result.labels[fooled]].tolist()
    assert expected
    assert list(audit.attacks["Thrift"].not_fooled) == expected
    assert not audit.holds


def test_a_targeted_success_must_reach_its_target(folder: Path) -> None:
    run = make_run(folder, "targeted", eps="32/255", targets="next")
    (audit,) = runs.verify(run)
    assert audit.attacks["Thrift"].queried > 0
    assert audit.holds
    (other,) = runs.verify(run, "standard")
    result = runs.load(run).results["Thrift"]
    fooled = np.flatnonzero(result.success)
    predicted = as_model("standard")(result.adversarial[fooled]).argmax(axis=1)
    assert list(other.attacks["Thrift"].not_fooled) == fooled[predicted != (result.labels[fooled] + 1) % 10].tolist()


@pytest.mark.parametrize("change", [0.001, 2.0], ids=["outside the ball", "outside the range"])
def test_an_image_outside_is_found(run: Path, change: float) -> None:
    result = runs.load(run).results["Thrift"]
    moved = next(outcome for outcome in result.outcomes if outcome.success)
    pixels = result.draw(moved).copy()
    original = np.asarray(result.images[moved.index])
    pixels[0, 0, 0] = original[0, 0, 0] + result.threat.eps + change
    spoilt = replace(moved, point=Images(pixels[None]).point(0))
    outcomes = tuple(spoilt if outcome is moved else outcome for outcome in result.outcomes)
    audit = audit_attack(as_model("robust"), replace(result, outcomes=outcomes), result.labels, 64)
    assert audit.outside == (moved.index,)
    assert audit.held == audit.queried - len({*audit.outside, *audit.not_fooled})


def test_all_runs_of_an_evaluation_are_verified(folder: Path) -> None:
    evaluation = make_evaluation(folder, "evaluation", ("robust", "standard"), ("2/255", "8/255"))
    audits = runs.verify(evaluation)
    cells = [(audit.model, round(audit.eps * 255)) for audit in audits]
    assert cells[:2] == [("robust", 2), ("robust", 8)]
    assert ("standard", 2) in cells
    assert all(audit.holds for audit in audits)
    with pytest.raises(InputError, match="several models"):
        runs.verify(evaluation, str(zoo.path("robust")))


def test_the_command_exits_with_3_if_any_success_fails(run: Path) -> None:
    good = CliRunner().invoke(command, ["verify", str(run), "--json"])
    assert good.exit_code == 0
    document = json.loads(good.stdout)
    assert document["holds"]
    assert [each["name"] for each in document["runs"][0]["attacks"]] == ["Thrift", "Square"]
    bad = CliRunner().invoke(command, ["verify", str(run), "--model", "standard", "--json"])
    assert bad.exit_code == 3
    assert not json.loads(bad.stdout)["holds"]
    assert "do not hold" in bad.stderr


# --- what is missing --------------------------------------------------------------------------------------------------


@pytest.fixture
def evaluation(folder: Path, tmp_path: Path) -> Path:
    """A copy of an evaluation of two models at two radii; the second one is fooled on all images at the first."""
    made = folder / "whole"
    if not made.exists():
        make_evaluation(folder, "whole", ("robust", "standard"), ("8/255", "16/255"))
    shutil.copytree(made, tmp_path / "whole")
    return tmp_path / "whole"


def missing_of(audits: list[RunAudit]) -> list[tuple[str, int]]:
    return [(audit.model, round(255 * audit.eps)) for audit in audits if audit.missing]


def test_a_radius_at_which_nothing_was_left_to_attack_lacks_no_run(evaluation: Path) -> None:
    assert not (evaluation / "standard" / "eps-16_255").exists()
    audits = runs.verify(evaluation)
    assert missing_of(audits) == []
    assert len(audits) == 3
    assert all(audit.holds for audit in audits)


@pytest.mark.parametrize(
    ("model", "eps", "lacking"),
    [
        ("robust", 16, [("robust", 16)]),
        ("robust", 8, [("robust", 8)]),
        ("standard", 8, [("standard", 8), ("standard", 16)]),  # without the first, the second may have been needed
    ],
)
def test_a_deleted_run_is_named_and_does_not_hold(evaluation: Path, model: str, eps: int, lacking: object) -> None:
    shutil.rmtree(evaluation / model / f"eps-{eps}_255")
    audits = runs.verify(evaluation)
    assert missing_of(audits) == lacking
    assert [audit.holds for audit in audits] == [not audit.missing for audit in audits]
    ran = CliRunner().invoke(command, ["verify", str(evaluation)])
    assert ran.exit_code == 3
    assert f"{model}, {eps}/255" in " ".join(ran.stdout.split()).partition("Not verified, since")[2]
    assert f"{model} at eps {eps}/255 is not verified: there is no run in {evaluation / model}" in ran.stderr
    document = json.loads(CliRunner().invoke(command, ["verify", str(evaluation), "--json"]).stdout)
    assert not document["holds"]
    assert sum(each["missing"] for each in document["runs"]) == len(missing_of(audits))


def test_an_export_names_the_missing_runs(evaluation: Path, tmp_path: Path) -> None:
    gone = evaluation / "robust" / "eps-16_255"
    shutil.rmtree(gone)
    options = ["export", str(evaluation), "--format", "npz", "--out", str(tmp_path / "out"), "--json"]
    ran = CliRunner().invoke(command, options)
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["missing"] == [str(gone)]
    assert f"there is no run in {gone}" in ran.stderr


@pytest.mark.parametrize("name", ["verify", "export"])
def test_an_evaluation_without_a_run_is_refused(evaluation: Path, name: str) -> None:
    for model in ("robust", "standard"):
        shutil.rmtree(evaluation / model)
    with pytest.raises(StoreError, match="the evaluation has not begun, or its runs were deleted"):
        CliRunner().invoke(command, [name, str(evaluation)], catch_exceptions=False)


def test_a_run_without_a_success_has_nothing_to_verify(folder: Path) -> None:
    made = make_run(folder, "withstood", eps="0.0001", budget=2)
    assert not runs.load(made).first.success.any()
    with pytest.raises(InputError, match=r"there is nothing to verify in .*: no attack has fooled the model"):
        runs.verify(made)
    assert "nothing to verify" in refused(command_line(folder, "verify", "withstood"))


# --- random models ----------------------------------------------------------------------------------------------------

COINS = """
import numpy as np

def toss(probability):
    def build():
        rng = np.random.default_rng(7)
        def model(images):
            errs = rng.random(len(images)) < probability
            return np.stack([0.5 - errs, errs - 0.5], axis=1) + rng.random((len(images), 1))
        return model
    return build

half, never = toss(0.5), toss(0)
"""


@pytest.fixture(scope="module")
def tossed(folder: Path) -> Path:
    """A run of a model that errs in half of all draws, whatever it sees: each success of it is chance."""
    (folder / "coins.py").write_text(COINS)
    np.savez(folder / "coins.npz", images=np.full((60, 1, 2, 2), 0.5, np.float32), labels=np.zeros(60, np.int64))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        config = RunConfig(
            model="coins:half",
            data=str(folder / "coins.npz"),
            images="all",
            attacks=("square",),
            budget=3,
            stochastic=True,
            draws=40,
        )
        runs.run(config, folder / "tossed", progress=False)
    return folder / "tossed"


def test_an_honest_run_of_a_random_model_is_not_refuted(
    tossed: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About half of its successes err in at most half of fresh draws. That was counted as a forgery."""
    monkeypatch.syspath_prepend(folder)
    ran = CliRunner().invoke(command, ["verify", str(tossed), "--json"])
    assert ran.exit_code == 0, ran.output
    (attack,) = json.loads(ran.stdout)["runs"][0]["attacks"]
    assert attack["draws"] == 40
    assert attack["not_fooled"] == []
    assert attack["successes"] == runs.load(tossed).first.success.sum() > 5
    assert attack["held"] + len(attack["undecided"]) == attack["successes"]
    assert attack["undecided"]
    text = " ".join(CliRunner().invoke(command, ["verify", str(tossed)]).stdout.split())
    assert text.startswith("Successes, each made again and drawn 40 times")
    assert "queried once" not in text
    assert "Undecided: it errs in at most half" in text


def test_a_success_that_is_none_is_refuted(tossed: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    ran = CliRunner().invoke(command, ["verify", str(tossed), "--model", "coins:never", "--json"])
    assert ran.exit_code == 3
    (attack,) = json.loads(ran.stdout)["runs"][0]["attacks"]
    assert len(attack["not_fooled"]) == attack["successes"]
    assert (attack["held"], attack["undecided"]) == (0, [])


def test_claims_that_contradict_themselves_are_refuted(
    tossed: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    result = runs.load(tossed).first
    for errors, draws in ((20, 40), (1, 1), (0, 0)):
        outcomes = tuple(
            replace(each, errors=errors, draws=draws) if each.success else each for each in result.outcomes
        )
        audit = audit_attack(as_model("coins:half"), replace(result, outcomes=outcomes), result.labels, 64)
        assert audit.undecided == ()
        assert len(audit.not_fooled) + audit.held == audit.queried
        assert audit.not_fooled


def test_the_test_is_fishers_and_honest_runs_are_refuted_as_rarely_as_stated() -> None:
    for first, second in ((51, 29), (100, 60), (60, 61)):
        table = [[first, 100 - first], [second, 100 - second]]
        assert fisher((first, second), (100, 100)) == pytest.approx(fisher_exact(table, alternative="greater").pvalue)
    images, draws = 50, 40
    tail = np.array(
        [
            [fisher((first, second), (draws, draws)) < SIGNIFICANCE / images for second in range(draws // 2 + 1)]
            for first in range(draws // 2 + 1, draws + 1)
        ]
    )
    assert tail.any()
    for probability in np.linspace(0.01, 0.99, 50):
        before, after = (binom.pmf(range(draws + 1), draws, probability) for _ in range(2))
        refuted = before[draws // 2 + 1 :] @ tail @ after[: draws // 2 + 1]
        assert images * refuted <= SIGNIFICANCE

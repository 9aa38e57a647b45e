"""`runs.verify` and `parsimon verify` find out what does not hold, by a definition of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bundled_runs import make_evaluation, make_run
from parsimon import runs, zoo
from parsimon.cli.commands import command
from parsimon.core.types import Images
from parsimon.errors import InputError
from parsimon.models import as_model
from parsimon.runs.audit import audit_attack


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

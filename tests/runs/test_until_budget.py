"""Runs of label-only attacks: stopped, killed and resumed, with workers, and until the budget is spent."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import parsimon
from parsimon import InputError, runs
from parsimon.core.engine import Step
from parsimon.results.result import Comparison
from parsimon.runs.config import RunConfig
from small_model import IMAGES, LABELS, linear
from stored_runs import OLD, described

SPEC = RunConfig(
    attacks=("rays", "signflip", "square"), model="sine_model:build", data="data.npz", eps="0.05", budget=60
)
UNTIL = SPEC.replace(until_budget=True)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("data.npz", "sine_model.py"):
        shutil.copy(OLD / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def interrupted(spec: RunConfig, folder: Path, attack: str, calls: int) -> Comparison:
    """Start a run, and stop it after some model calls of an attack."""

    def interrupt(name: str, images: int, step: Step) -> None:  # noqa: ARG001
        if name == attack and step.counters.calls >= calls:
            os.kill(os.getpid(), signal.SIGINT)

    return runs.run(spec, folder, in_flight=3, watch=interrupt, progress=False)


@pytest.mark.parametrize("spec", [SPEC, UNTIL], ids=["first success", "until budget"])
@pytest.mark.parametrize(("attack", "calls"), [("RayS", 9), ("SignFlip", 30)])
def test_an_interrupted_run_is_resumed_to_the_same_radii(spec: RunConfig, attack: str, calls: int) -> None:
    whole = runs.run(spec, Path("whole"), progress=False)
    cut = interrupted(spec, Path("cut"), attack, calls)
    assert cut.unfinished
    read = runs.load(Path("cut"))
    assert {name: each.outcomes for name, each in read.results.items()} == {
        name: each.outcomes for name, each in cut.results.items()
    }
    assert any(each.radii for each in cut.results[attack].outcomes if each.ended == "interrupted")
    resumed = runs.resume(Path("cut"), progress=False)
    for name, result in whole.results.items():
        assert resumed.results[name].outcomes == result.outcomes
        assert resumed.results[name].counters.queries == result.counters.queries
    assert described(runs.load(Path("cut"))) == described(resumed)


def test_until_budget_changes_neither_who_is_fooled_nor_when() -> None:
    first, until = (runs.run(spec, Path(name), progress=False) for name, spec in (("a", SPEC), ("b", UNTIL)))
    for name, result in first.results.items():
        longer = until.results[name]
        assert (longer.success == result.success).all()
        assert (longer.queries == result.queries).all()
        assert (longer.radius <= result.radius).all()
        assert longer.summary.queries == sum(each.queries + each.extra for each in longer.outcomes)
        assert longer.counters.queries == longer.summary.queries
        assert longer.threat.until_budget == (name != "Square")
    assert until.results["Square"].outcomes == first.results["Square"].outcomes
    rays = until.results["RayS"]
    assert all(each.charged == 60 for each in rays.outcomes)
    assert any(each.extra for each in rays.outcomes)
    assert rays.verification is not None
    assert rays.verification.held == rays.summary.successes > 0


@pytest.mark.parametrize("until_budget", [False, True])
def test_workers_have_the_same_outcomes(until_budget: bool) -> None:
    spec = SPEC.replace(attacks=("rays",), until_budget=until_budget, budget=40)
    here, there = runs.run(spec, Path("a"), progress=False), runs.run(spec, Path("b"), workers=2, progress=False)
    assert there.results["RayS"].outcomes == here.results["RayS"].outcomes


def test_until_budget_without_a_label_only_attack_is_refused_by_names() -> None:
    with pytest.raises(
        InputError, match=r"none of Square, Thrift is one\. .*choose a label-only attack: .*rays"
    ) as said:
        parsimon.compare(linear, IMAGES, LABELS, 0.05, ["square", "thrift"], until_budget=True)
    assert said.value.argument == "until_budget"


def test_an_evaluation_counts_the_queries_after_a_success() -> None:
    settings: dict[str, Any] = {"attacks": ["rays"], "budget": 30, "progress": False}
    short, long = (
        parsimon.evaluate(linear, IMAGES, LABELS, 0.05, until_budget=until_budget, **settings)
        for until_budget in (False, True)
    )
    assert (long.fooled_after == short.fooled_after).all()
    assert long.queries.tolist() == [30] * len(IMAGES)
    assert (short.queries < 30).any()

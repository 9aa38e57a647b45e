"""Stored runs and evaluations are compared on the same images, or refused."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from bundled_runs import BUDGET, data_file, make_evaluation, make_run
from parsimon import runs
from parsimon.cli.commands import command
from parsimon.errors import InputError
from parsimon.runs.config import RunConfig
from parsimon.runs.difference import check_baseline


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("diff")


@pytest.fixture(scope="module")
def robust(folder: Path) -> Path:
    return make_run(folder, "robust")


@pytest.fixture(scope="module")
def standard(folder: Path) -> Path:
    return make_run(folder, "standard", "standard")


def robust_images(run: Path) -> Any:
    """Return which images are classified correctly and never fooled."""
    comparison = runs.load(run)
    return comparison.first.clean.correct & ~comparison.first.success


def test_two_models_are_compared_image_by_image(robust: Path, standard: Path) -> None:
    (row,) = runs.diff(robust, standard).rows
    found = row.difference
    assert found is not None
    old, new = robust_images(robust), robust_images(standard)
    assert (found.images, found.old, found.new) == (len(old), old.sum(), new.sum())
    assert list(found.worse) == np.flatnonzero(old & ~new).tolist()
    assert list(found.better) == np.flatnonzero(new & ~old).tolist()
    assert found.worse


def test_only_the_images_that_both_runs_have_reached_count(folder: Path, robust: Path) -> None:
    few = make_run(folder, "few", images=5)
    (row,) = runs.diff(robust, few).rows
    reached = np.flatnonzero(runs.load(few).first.clean.correct)[5]  # the first correct image that was not attacked
    assert row.difference is not None
    assert row.difference.images == reached
    assert row.difference.value == 0


def test_the_gate_fails_with_3_for_a_worse_model_and_passes_the_same(robust: Path, standard: Path) -> None:
    worse = CliRunner().invoke(command, ["diff", str(robust), str(standard), "--no-worse-than", "0.02", "--json"])
    assert worse.exit_code == 3
    assert "gate not passed" in worse.stderr
    document = json.loads(worse.stdout)
    assert document["gate"]["passed"] is False
    assert document["differences"][0]["difference"] < -0.02
    same = CliRunner().invoke(command, ["diff", str(robust), str(robust), "--no-worse-than", "0"])
    assert same.exit_code == 0
    strict = ["diff", str(robust), str(robust), "--no-worse-than", "0", "--gate", "lower"]
    assert CliRunner().invoke(command, strict).exit_code == 3
    assert CliRunner().invoke(command, ["diff", str(robust), str(standard)]).exit_code == 0


@pytest.mark.parametrize(
    "settings",
    [{"budget": BUDGET - 1}, {"attacks": ("square",)}, {"sample": 3}, {"targets": "next"}],
    ids=lambda settings: next(iter(settings)),
)
def test_models_that_were_attacked_otherwise_are_refused(folder: Path, robust: Path, settings: dict[str, Any]) -> None:
    (name,) = settings
    other = make_run(folder, f"other {name}", **settings)
    with pytest.raises(InputError, match=f"attacked alike.* {name} is"):
        runs.diff(robust, other)


def test_random_runs_must_agree_in_all_that_decides(folder: Path, robust: Path) -> None:
    """The defence may differ: the title names it. A default equals the same number as typed."""
    shared: dict[str, Any] = {"stochastic": True, "budget": 10, "defence": ("noise,sigma=0.02",)}
    drawn = make_run(folder, "drawn", draws=100, **shared)
    with pytest.raises(InputError, match=r"attacked alike.* stochastic is False.*stochastic=True"):
        runs.diff(make_run(folder, "short", budget=10), drawn)
    for setting in ({"draws": 11}, {"repeats": 2}, {"error_rate": 1.0}):
        (name,) = setting
        other = make_run(folder, f"drawn with other {name}", **{**shared, **setting})
        with pytest.raises(InputError, match=f"attacked alike.* {name} is"):
            runs.diff(drawn, other)
        with pytest.raises(InputError, match=f"attacked alike.* {name} is"):
            check_baseline(drawn, [runs.config_of(other)])
    other = make_run(folder, "more noise", **{**shared, "defence": ("noise,sigma=0.03",)})
    found = runs.diff(drawn, other)
    assert found.random
    assert found.title.endswith(" behind noise,sigma=0.03")
    assert not runs.diff(robust, robust).random


def test_other_images_are_refused(folder: Path, robust: Path) -> None:
    other = make_run(folder, "other images", data=str(data_file(folder, "others.npz", start=30)))
    with pytest.raises(InputError, match="same images"):
        runs.diff(robust, other)


def test_another_radius_has_nothing_in_common(folder: Path, robust: Path) -> None:
    with pytest.raises(InputError, match="no model and radius in common"):
        runs.diff(robust, make_run(folder, "smaller", eps="4/255"))


def test_evaluations_are_paired_by_radius_and_model(folder: Path) -> None:
    old = make_evaluation(folder, "old", ("robust", "standard"), ("4/255", "8/255"), budget=4)
    new = make_evaluation(folder, "new", ("standard", "robust"), ("8/255",), budget=4)
    found = runs.diff(old, new)
    assert [(row.old_model, row.new_model) for row in found.rows] == [("standard", "standard"), ("robust", "robust")]
    assert {round(row.eps * 255) for row in found.rows} == {8}


def test_the_single_models_of_two_evaluations_are_paired(folder: Path) -> None:
    old = make_evaluation(folder, "single old", ("robust",), ("8/255",), budget=4)
    new = make_evaluation(folder, "single new", ("standard",), ("8/255",), budget=4)
    (row,) = runs.diff(old, new).rows
    evaluations = [runs.load_evaluation(each).any_evaluation for each in (old, new)]
    assert (row.old_model, row.new_model) == ("robust", "standard")
    assert row.difference is not None
    assert [row.difference.old, row.difference.new] == [int(each.robust.sum()) for each in evaluations]


def test_an_unfinished_run_never_passes(folder: Path, robust: Path) -> None:
    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    data = str(data_file(folder))
    config = RunConfig(data=data, images="all", budget=BUDGET)
    runs.run(config, folder / "unfinished", watch=interrupt, progress=False)
    assert runs.load(folder / "unfinished").unfinished
    ran = CliRunner().invoke(command, ["diff", str(robust), str(folder / "unfinished"), "--no-worse-than", "1"])
    assert ran.exit_code == 3
    assert "unfinished" in ran.stderr


def test_run_compares_with_a_baseline(folder: Path, robust: Path, tmp_path: Path) -> None:
    words = ["run", "--data", str(data_file(folder)), "--images", "all", "--budget", str(BUDGET), "--json"]
    gate = ["--baseline", str(robust), "--no-worse-than", "0.02"]
    worse = CliRunner().invoke(command, [*words, *gate, "--model", "standard", "--out", str(tmp_path / "worse")])
    assert worse.exit_code == 3, worse.output
    assert json.loads(worse.stdout)["baseline"]["gate"]["passed"] is False
    same = CliRunner().invoke(command, [*words, *gate, "--out", str(tmp_path / "same")])
    assert same.exit_code == 0, same.output


def test_a_baseline_that_is_none_is_refused_before_the_run(tmp_path: Path) -> None:
    for words in (["--baseline", str(tmp_path)], ["--no-worse-than", "0.1"]):
        ran = CliRunner().invoke(command, ["run", "--out", str(tmp_path / "out"), *words])
        assert isinstance(ran.exception, InputError)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("change", [["--budget", "7"], ["--eps", "4/255"], ["--sample", "1"]], ids=" ".join)
def test_a_baseline_that_cannot_be_compared_is_refused_before_the_run(
    change: list[str], folder: Path, robust: Path, tmp_path: Path
) -> None:
    words = ["run", "--data", str(data_file(folder)), "--images", "all", "--budget", str(BUDGET), *change]
    ran = CliRunner().invoke(command, [*words, "--baseline", str(robust), "--out", str(tmp_path / "out")])
    assert isinstance(ran.exception, InputError)
    assert not (tmp_path / "out").exists()

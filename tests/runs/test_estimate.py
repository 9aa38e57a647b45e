"""An estimate is the maximum that a run can take, and costs no attack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import parsimon
from bundled_runs import IMAGES, data_file
from parsimon import runs
from parsimon.attacks import ATTACKS
from parsimon.attacks.registry import attack_rows, parse_attack
from parsimon.cli.commands import command
from parsimon.core.engine import Engine
from parsimon.core.threat import Threat
from parsimon.runs import estimate
from parsimon.runs.config import RunConfig
from parsimon.runs.dry_run import estimate_evaluation, estimate_run
from parsimon.runs.estimate import Estimate
from parsimon.runs.evaluation import EvaluationConfig
from parsimon.testing.model import Network, tasks_for
from small_model import IMAGES as SMALL_IMAGES
from small_model import LABELS, Pixels, changed, linear

TINY = 1e-6  # a radius at which no image is fooled


@pytest.mark.parametrize("name", [*ATTACKS, "bandits,strict=true", "nes,samples=4", "pgd,restarts=3"])
def test_no_attack_makes_more_evaluations_than_it_says(name: str) -> None:
    attack, threat, budget = parse_attack(name), Threat(TINY), 130
    tasks = tasks_for((3, 8, 8), threat)
    outcomes = [
        *Engine(attack, Network((3, 8, 8)), threat, budget=budget, seed=0, batch_size=8, in_flight=8).run(tasks)
    ]
    made = max(outcome.queries + outcome.uncharged for outcome in outcomes)
    assert made <= attack.most_evaluations(budget)
    assert made >= 0.9 * attack.most_evaluations(budget) or all(each.ended == "exhausted" for each in outcomes)


def test_queries_are_images_times_budget_and_white_box_attacks_have_their_own_bound() -> None:
    config = RunConfig(budget=1000).replace(verify=False)
    attacks = attack_rows(["thrift", "pgd", "bandits"])
    found = Estimate.of(config, attacks, 50, 200, 0.01)
    assert found.queries == {"Thrift": 50_000, "PGD": 50 * 21, "Bandits": 75_000}
    assert found.uncharged == 200
    assert found.seconds == pytest.approx((50_000 + 3 * 50 * 21 + 75_000 + 200) * 0.01)
    assert found.cost(2.0) == pytest.approx((50_000 + 50 * 21 + 75_000 + 200) * 2 / 1000)
    assert Estimate.of(config.replace(workers=4), attacks, 50, 200, 0.01).seconds == found.seconds / 4


@pytest.mark.parametrize("batch_size", [2, 64])
def test_uncharged_queries_of_a_random_model_are_those_of_a_real_run(batch_size: int) -> None:
    """All rows that the model is shown are counted, but not the first batch, which is shown once more as a check."""
    rows, rng, draws, wrong = 0, np.random.default_rng(0), 7, changed(LABELS, 1, (LABELS[1] + 1) % 10)

    def noisy(images: Pixels) -> Pixels:
        nonlocal rows
        rows += len(images)
        return linear(images) + rng.normal(0, 0.01, (len(images), 10)).astype(np.float32)

    config = RunConfig(eps=TINY, budget=20, scores="logits", batch_size=batch_size, stochastic=True, draws=draws)
    given: Any = {name: getattr(config, name) for name in ("budget", "scores", "batch_size", "stochastic", "draws")}
    run = parsimon.compare(noisy, SMALL_IMAGES, wrong, TINY, ["square", "random"], **given)
    attacked = len(run.first.outcomes)
    assert attacked == len(SMALL_IMAGES) - 1
    in_searches = sum(each.queries + each.uncharged for result in run.results.values() for each in result.outcomes)
    attacks = attack_rows(["square", "random"])
    found = Estimate.of(config, attacks, attacked, len(SMALL_IMAGES), 0.01)
    assert found.uncharged == rows - in_searches - min(batch_size, len(SMALL_IMAGES))
    assert Estimate.of(config.replace(verify=False), attacks, attacked, len(SMALL_IMAGES), 0.01) == found
    assert in_searches <= found.total


def test_a_dry_run_counts_the_images_that_a_run_attacks_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = str(data_file(tmp_path))
    words = ["run", "--data", data, "--images", "all", "--budget", "7", "--out", "out"]
    dry = CliRunner().invoke(command, [*words, "--dry-run", "--price-per-1000", "10", "--json"])
    assert dry.exit_code == 0, dry.output
    (found,) = json.loads(dry.stdout)["estimates"]
    assert not Path("out").exists()
    assert CliRunner().invoke(command, words).exit_code == 0
    attacked = len(runs.load(Path("out")).first.outcomes)
    assert (found["images"], found["most_queries"]) == (attacked, 7 * attacked)
    assert found["cost"] == pytest.approx((7 * attacked + attacked + IMAGES) / 100)
    assert found["seconds"] > 0


def test_a_cost_says_what_it_leaves_out(tmp_path: Path) -> None:
    words = ["run", "--data", str(data_file(tmp_path)), "--dry-run"]
    shown = CliRunner().invoke(command, [*words, "--price-per-1000", "10"]).stdout
    assert "Cost of all these queries: " in shown
    assert "Not included: retries, checks of the model, and images that fill batches." in shown
    assert "Not included" not in CliRunner().invoke(command, words).stdout


def test_an_evaluation_is_estimated_for_each_model_at_all_radii(tmp_path: Path) -> None:
    run = RunConfig(data=str(data_file(tmp_path)), images="all", selection="any")
    config = EvaluationConfig(models=("robust", "standard"), eps=("2/255", "8/255"), budget=(5, 10), run=run)
    first, second = estimate_evaluation(config)
    assert (first.model, second.model) == ("robust", "standard")
    assert first.total == 2 * 2 * 10 * first.images  # two radii, two attacks
    assert estimate_run(next(config.cells("robust"))).images == first.images


def test_a_long_run_says_so_before_it_starts_unless_it_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["run", "--data", str(data_file(tmp_path)), "--images", "2", "--budget", "3"]
    short = CliRunner().invoke(command, [*words, "--out", str(tmp_path / "short")])
    assert "at most" not in short.stderr
    monkeypatch.setattr(estimate, "LONG_SECONDS", 0)
    long = CliRunner().invoke(command, [*words, "--out", str(tmp_path / "long")])
    assert "note: 2 images, at most 6 queries" in long.stderr
    again = CliRunner().invoke(command, ["resume", str(tmp_path / "long")])
    assert "at most" not in again.stderr
    quiet = CliRunner().invoke(command, [*words, "--quiet", "--out", str(tmp_path / "quiet")])
    assert quiet.stderr == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 second"), (59, "59 s"), (109, "1 min 49 s"), (7260, "2 h 1 min")]
)
def test_a_time_is_written_in_its_two_largest_units(seconds: float, text: str) -> None:
    found = replace(Estimate.of(RunConfig(), {}, 1, 1, 0.001), seconds=seconds)
    assert f"about {text} at 1 ms per query" in str(found)

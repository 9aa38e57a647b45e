"""Reports on defences: the verdict behind one, what chance leaves open, warnings, and interrupted assessments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import binomtest

import parsimon
from parsimon import Comparison, Result, runs, zoo
from parsimon.cli.commands import command
from parsimon.results.chance import SEVERAL_CHANCES
from parsimon.results.defence import ALL_ATTACKERS, DefenceReport
from parsimon.results.statistics import wilson_interval
from parsimon.runs import execute
from parsimon.runs.defences import attackers
from parsimon.runs.verification import verify_successes
from small_model import IMAGES, LABELS, Pixels, linear
from ticking import CLOCK

# --- interrupted ------------------------------------------------------------------------------------------------------

WORDS = ("--model", "ticking:build", "--eps", "0.15", "--budget", "6", "--data", "data.npz", "--images", "all")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=LABELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assessed(out: Path, *, at: int = 0) -> Any:
    CLOCK.set(at)
    return CliRunner().invoke(command, ["defend", "round", *WORDS, "--out", str(out), "--json", "--quiet"])


def robust_in(folder: Path) -> set[int]:
    """Return the images of a stored run that no attack has fooled so far, of those classified correctly."""
    run = runs.load(folder)
    fooled = {each.index for result in run.results.values() for each in result.outcomes if each.success}
    return set(np.flatnonzero(linear(IMAGES).argmax(axis=1) == LABELS).tolist()) - fooled


def test_after_each_attacker_an_interruption_leaves_a_bound_that_holds(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a run behind the defence nothing is known of it: the undefended accuracy is no bound."""
    ended = []

    def verify(*arguments: Any) -> Any:
        ended.append(CLOCK.calls)
        return verify_successes(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(execute, "verify_successes", verify)
        final = json.loads(assessed(place / "whole").stdout)["robust_accuracy"]["value"]
    every = list(attackers(("round",)))
    last = np.cumsum([len(each.attacks) for each in every]) - 1
    for number, attacker in enumerate(every):
        out = place / attacker.slug
        ran = assessed(out, at=ended[last[number]])
        assert ran.exit_code == 130
        document = json.loads(ran.stdout)
        begun = {row["attacker"]["text"] for row in document["rows"]} - {ALL_ATTACKERS}
        assert begun == {each.name for each in every[: number + 1]}
        found = document["robust_accuracy"]
        left = [robust_in(out / each.slug) for each in every[1 : number + 1]]
        at_most = len(set.intersection(*left)) / len(IMAGES) if left else 1.0
        assert found == {"value": None, "at_most": at_most, "interval": None, "kind": "at_most"}
        assert at_most >= final
        text = " ".join((out / "table.md").read_text().split())
        assert ("Behind it, nothing is known yet." in text) == (number == 0)
        assert (f"Behind it: at most {at_most:.1%} so far." in text) == (number > 0)
        assert "after all attackers" not in text


def test_a_headline_says_when_nothing_is_known_behind_the_defence() -> None:
    plain = parsimon.compare(linear, IMAGES, LABELS, 0.15, ["square", "random"], budget=6)
    stopped = Comparison({name: replace(result, stopped=True) for name, result in plain.results.items()})
    first = DefenceReport("round", {"no defence": stopped}, 1)
    assert str(plain.verdict) in first.headline()
    assert first.headline().endswith("without it; nothing is known behind it yet")
    assert first.verdict.value == 1
    second = DefenceReport("round", {"no defence": plain, "unaware of it": stopped}, 1)
    assert second.headline().endswith(f"at most {plain.verdict.value:.1%} so far behind it")
    whole = DefenceReport("round", {"no defence": plain, "unaware of it": plain}, 1)
    assert whole.headline().endswith(f"{plain.verdict} behind it after all attackers")


# --- models with a randomness of their own ----------------------------------------------------------------------------


def test_an_image_is_robust_if_each_run_finds_it_correct_and_no_attacker_fools_it() -> None:
    """Each run draws the clean images anew, so they may differ about which of them are correct."""
    images = np.random.default_rng(1).random((30, 3, 8, 8), dtype=np.float32)
    labels, differing = linear(images).argmax(axis=1), 0
    for seed in range(6):
        rng = np.random.default_rng(seed)

        def noisy(pixels: Pixels, rng: np.random.Generator = rng) -> Pixels:
            return linear(pixels) + rng.normal(0, 4, (len(pixels), 10)).astype(np.float32)

        settings: Any = {"defence": "jpeg", "stochastic": True, "budget": 8, "draws": 5}
        report = parsimon.assess_defence(noisy, images, labels, 0.01, **settings)
        behind = [row for row in report.rows() if row["attacker"] != "no defence"]
        robust = 0
        for index in range(len(images)):
            rows = [row for row in behind if row["image"] == index]
            assert len(rows) == 6
            robust += all(row["attacked"] and not row["success"] for row in rows)
        clean = {tuple(run.first.clean.correct) for run in report.defended.values()}
        differing += len(clean) > 1
        verdict = report.verdict
        assert (verdict.value, verdict.kind) == (robust / len(images), "measured")
        assert verdict.interval == wilson_interval(robust, len(images))
        assert verdict.attacked == sum(all(each) for each in zip(*clean, strict=True))
    assert differing >= 2  # or the test would compare little


# --- chance -----------------------------------------------------------------------------------------------------------


def test_undecided_images_are_counted_over_all_attackers(tmp_path: Path) -> None:
    images, labels = (array[:14] for array in zoo.images())
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    words = [
        "defend",
        "noise,sigma=0.03",
        "--model",
        "standard",
        "--data",
        str(tmp_path / "data.npz"),
        "--eps",
        "2/255",
    ]
    ran = CliRunner().invoke(
        command, [*words, "--budget", "16", "--draws", "15", "--out", str(tmp_path / "out"), "--json", "--quiet"]
    )
    assert ran.exit_code == 0, ran.output
    worst: dict[int, int] = {}
    for attacker in list(attackers(("noise,sigma=0.03",)))[1:]:
        for result in runs.load(tmp_path / "out" / attacker.slug).results.values():
            for each in result.outcomes:
                assert each.draws == 15
                worst[each.index] = max(worst.get(each.index, 0), each.errors)
    intervals = [binomtest(errors, 15).proportion_ci(method="wilson") for errors in worst.values()]
    undecided = sum(bool(each.low <= 0.5 <= each.high) for each in intervals)
    assert 1 < undecided < len(worst)
    assert json.loads(ran.stdout)["undecided"] == undecided
    text = " ".join((tmp_path / "out" / "table.md").read_text().split())
    assert f"Undecided: {undecided} images, whose 95% interval of the error rate contains 50%." in text
    assert SEVERAL_CHANCES in text


def test_nothing_is_undecided_without_draws(place: Path) -> None:
    assert json.loads(assessed(place / "out").stdout)["undecided"] is None
    assert "ndecided" not in (place / "out" / "table.md").read_text()


# --- warnings ---------------------------------------------------------------------------------------------------------


def test_warnings_of_every_attacker_are_named_once() -> None:
    plain = parsimon.attack(linear, IMAGES, LABELS, 0.15, budget=6)

    def run(*warnings: str) -> Comparison:
        result: Result = replace(plain, clean=replace(plain.clean, warnings=warnings))
        return Comparison({"Thrift": result})

    assert Comparison({"Thrift": plain}).warnings == ()
    report = DefenceReport(
        "round", {"no defence": run("All.", "Plain."), "one": run("All.", "Some."), "two": run("Some.", "All.")}, 1
    )
    assert report.warnings == ("All.", "no defence: Plain.", "one, two: Some.")
    notes = report.table().notes
    assert [note for note in notes if note.startswith("WARNING")] == [f"WARNING: {each}" for each in report.warnings]
    assert DefenceReport("round", {"no defence": run("Plain.")}, 1).warnings == ("Plain.",)


def test_a_defence_whose_scores_do_not_move_is_warned_of(place: Path) -> None:  # noqa: ARG001
    """Rounded scores often do not react, which the undefended run cannot show."""
    report = parsimon.assess_defence(linear, IMAGES, LABELS, 0.001, defence="round,decimals=1", budget=20)
    assert report.undefended.warnings == ()
    assert any(each.startswith("unaware of it: The loss did not move") for each in report.warnings)

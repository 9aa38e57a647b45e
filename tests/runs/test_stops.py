"""Ctrl-C in any model call ends everything, also where it leaves no image of a run unfinished."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner, Result

import parsimon
from parsimon.cli.commands import command
from parsimon.errors import ModelError
from parsimon.runs import execute
from parsimon.runs.verification import verify_successes
from small_model import IMAGES, LABELS, Pixels
from ticking import CLOCK, model

RADII, BUDGET, ATTACKS = (0.05, 0.15), 6, ("square", "random")

# --- in Python --------------------------------------------------------------------------------------------------------


def evaluated() -> parsimon.EvaluationGrid:
    models = {"first": model, "second": model}
    return parsimon.evaluate(models, IMAGES, LABELS, RADII, attacks=ATTACKS, budget=BUDGET)


def compared() -> parsimon.Comparison:
    return parsimon.compare(model, IMAGES, LABELS, RADII[1], ATTACKS, budget=BUDGET)


def assessed() -> Any:
    return parsimon.assess_defence(model, IMAGES, LABELS, RADII[1], defence="round", budget=BUDGET)


@pytest.mark.parametrize("work", [evaluated, compared, assessed])
def test_no_call_follows_the_one_that_was_interrupted(work: Callable[[], Any]) -> None:
    CLOCK.set(0)
    assert work().finished
    calls, returned, nothing_left = CLOCK.calls, 0, 0
    for at in range(1, calls + 1):
        CLOCK.set(at)
        try:
            found = work()
        except KeyboardInterrupt:  # while clean images are classified there is no result
            pass
        else:
            assert found.stopped
            assert not found.finished
            returned += 1
            nothing_left += not found.unfinished
        assert CLOCK.calls == at
    assert returned > calls // 2
    assert nothing_left  # or the test would compare only what unfinished images tell as well


def test_an_attack_tells_that_it_was_stopped_after_its_last_image() -> None:
    """So a script that attacks batch by batch can end."""
    CLOCK.set(0)
    whole = parsimon.attack(model, IMAGES, LABELS, RADII[1], budget=BUDGET)
    assert not whole.stopped
    CLOCK.set(CLOCK.calls)  # the verification
    found = parsimon.attack(model, IMAGES, LABELS, RADII[1], budget=BUDGET)
    assert found.stopped
    assert found.outcomes == whole.outcomes


def test_a_failure_of_the_model_does_not_hide_ctrl_c() -> None:
    def failing(images: Pixels) -> Pixels:
        scores = model(images)
        if CLOCK.calls == CLOCK.at:
            raise ModelError("the model has gone")
        return scores

    CLOCK.set(0)
    parsimon.attack(model, IMAGES, LABELS, RADII[1], budget=BUDGET, attack=ATTACKS[0])
    last = CLOCK.calls
    CLOCK.set(last)
    found = parsimon.compare(failing, IMAGES, LABELS, RADII[1], ATTACKS, budget=BUDGET)
    assert found.stopped
    assert CLOCK.calls == last
    assert [each.summary.unfinished for each in found.results.values()] == [0, len(found.first.outcomes)]


# --- the command ------------------------------------------------------------------------------------------------------


class Verified(NamedTuple):
    """The call that ended the last image of an attack, and the last one of the verification after it."""

    ended: int
    last: int


EVALUATE = (
    "evaluate",
    "ticking:build",
    "ticking:again",
    "--eps",
    "0.05,0.15",
    "--attack",
    "square",
    "--attack",
    "random",
)
COMPARE = ("compare", "square", "random", "--model", "ticking:build", "--eps", "0.15")
DEFEND = ("defend", "round", "--model", "ticking:build", "--eps", "0.15")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=LABELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoked(words: tuple[str, ...], out: Path) -> Result:
    return CliRunner().invoke(command, [*words, "--out", str(out), "--json", "--quiet"])


def started(words: tuple[str, ...], out: Path, at: int = 0) -> Result:
    CLOCK.set(at)
    return invoked((*words, "--data", "data.npz", "--images", "all", "--budget", str(BUDGET)), out)


def undisturbed(words: tuple[str, ...], out: Path) -> tuple[dict[str, Any], list[Verified]]:
    """Return the document of an undisturbed command, and the calls around the verification of each attack."""
    seen = []

    def verify(*arguments: Any) -> Any:
        ended = CLOCK.calls
        found = verify_successes(*arguments)
        seen.append(Verified(ended, CLOCK.calls))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "verify_successes", verify)
        ran = started(words, out)
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout), seen


def verdicts(document: Any) -> Iterator[Any]:
    """Yield each robust accuracy of a document, at any depth."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from [value] if key.endswith("robust_accuracy") else verdicts(value)
    elif isinstance(document, list):
        for each in document:
            yield from verdicts(each)


@pytest.mark.parametrize("words", [EVALUATE, COMPARE, DEFEND], ids=lambda words: words[0])
def test_the_command_stops_between_runs_and_says_how_to_resume(place: Path, words: tuple[str, ...]) -> None:
    whole, seen = undisturbed(words, place / "whole")
    moments = {call for each in seen for call in each}
    assert any(each.last > each.ended for each in seen[:-1])  # something is verified before the end
    for at in sorted(moments):
        out = place / f"stopped-{at}"
        ran = started(words, out, at)
        assert ran.exit_code == 130, ran.output
        assert CLOCK.calls == at
        assert json.loads(ran.stdout)["finished"] is False
        hint = f"run the same command with --out {out}" if words[0] == "defend" else f"parsimon resume {out}"
        assert f"Unfinished: {hint}" in ran.stderr
        again = (
            started(words, out) if words[0] == "defend" else CliRunner().invoke(command, ["resume", str(out), "--json"])
        )
        assert again.exit_code == 0, again.output
        assert json.loads(again.stdout)["finished"] is True
        assert [*verdicts(json.loads(again.stdout))] == [*verdicts(whole)]

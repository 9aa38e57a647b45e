"""Models that break: the message names the place in the user's code, and how a stored run is continued."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command import coloured_images, refused, run

MODELS = """
import numpy as np
from parsimon.models import HttpModel, Request, RequestPolicy

def scores(images):
    return 10 * images.mean(axis=(2, 3))

def after(calls, then):
    done = []
    def count(images):
        done.append(1)
        return scores(images) if len(done) <= calls else then(images)
    return count

def boom(images):
    raise RuntimeError("boom")

def raises():
    return after(8, boom)

def turns_nan():
    return after(8, lambda images: scores(images) * np.nan)

def raises_at_once():
    return boom

def raises_as_it_is_built():
    boom(None)

def goes_out():
    def classify(images):
        yield Request("http://127.0.0.1:1/", b"")
    lost = HttpModel(classify, RequestPolicy(patience=0.1))
    return after(8, lost)

def nobody():
    def classify(images):
        yield Request("http://127.0.0.1:1/", b"")
    return HttpModel(classify, RequestPolicy(patience=0.1))
"""
SETTINGS = ("--data", "data.npz", "--eps", "0.001", "--budget", "60", "--quiet")
PLACE = "RuntimeError: boom (in breaks.py, line 16, in boom)"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    images, labels = coloured_images()
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    (tmp_path / "breaks.py").write_text(MODELS)
    return tmp_path


def test_a_failure_names_the_place_and_how_to_continue(place: Path) -> None:
    sentence = refused(run(place, "run", "--model", "breaks:raises", *SETTINGS, "--out", "out"))
    assert sentence.endswith(f"{PLACE}. The run is stored. Continue with: parsimon resume out")
    (place / "breaks.py").write_text(MODELS.replace('raise RuntimeError("boom")', "return scores(images)"))
    assert run(place, "resume", "out", "--quiet").returncode == 0


def test_a_failure_in_a_worker_names_the_place_too(place: Path) -> None:
    words = ("--model", "breaks:raises", *SETTINGS, "--workers", "1", "--out", "out")
    ran = run(place, "run", *words)
    assert ran.returncode == 2
    assert f"{PLACE}. The run is stored. Continue with: parsimon resume out" in ran.stderr


def test_scores_that_become_nan_leave_a_stored_run(place: Path) -> None:
    sentence = refused(run(place, "run", "--model", "breaks:turns_nan", *SETTINGS, "--out", "out"))
    assert "infinite or NaN scores" in sentence
    assert sentence.endswith(". The run is stored. Continue with: parsimon resume out")


@pytest.mark.parametrize("model", ["raises_at_once", "raises_as_it_is_built"])
def test_a_failure_before_the_run_names_the_place_alone(place: Path, model: str) -> None:
    sentence = refused(run(place, "run", "--model", f"breaks:{model}", *SETTINGS, "--out", "out"))
    assert sentence.endswith(PLACE)


@pytest.mark.parametrize(("model", "code"), [("raises", 2), ("goes_out", 75)])
def test_an_evaluation_is_continued_as_a_whole(place: Path, model: str, code: int) -> None:
    ran = run(place, "evaluate", f"breaks:{model}", *SETTINGS, "--out", "out")
    assert ran.returncode == code
    assert ran.stderr.endswith("Continue with: parsimon resume out\n")


def test_an_assessment_of_a_defence_is_continued_as_a_whole(place: Path) -> None:
    ran = run(place, "defend", "round,decimals=1", "--model", "breaks:goes_out", *SETTINGS, "--out", "out")
    assert ran.returncode == 75
    assert ran.stderr.endswith("Continue with: the same command, with --out out\n")


def test_check_of_a_model_that_does_not_answer_says_try_later(place: Path) -> None:
    ran = run(place, "check", "--model", "breaks:nobody", "--data", "data.npz")
    assert ran.returncode == 75
    assert "has not answered in 0.1 seconds" in ran.stderr

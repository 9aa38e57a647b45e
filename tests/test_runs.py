"""Stored runs: killed at any moment, resumed in the middle of an image, and never two at once."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsimon import InputError, runs
from parsimon.errors import StoreError
from parsimon.spec import Spec
from parsimon.store import Store

# A model that writes down what it is shown, so that a question that is asked again can be seen.
MODEL = """
import hashlib, os, time
import numpy as np

def build():
    weights = np.random.default_rng(0).normal(size=(3, 192))

    def model(images):
        time.sleep(0.002)
        with open("shown.txt", "a") as shown:
            shown.writelines(hashlib.sha1(image.tobytes()).hexdigest() + "\\n" for image in images)
        rows = images.reshape(len(images), 1, -1).astype(np.float64)
        return (np.sin(5 * rows) * weights).sum(axis=-1)

    return model
"""
CLEAN = 12 + 8  # images that each start classifies: all, and a batch once more to see that answers repeat
ATTACKS = ("parsimonious", "bandits", "nes,samples=10", "square")


def spec(**settings: Any) -> Spec:
    return Spec(**{"attacks": ATTACKS, "model": "mine:build", "data": "data.npz", "budget": 90, **settings})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODEL)
    images = np.random.default_rng(1).random((12, 3, 8, 8), dtype=np.float32)
    weights = np.random.default_rng(0).normal(size=(3, 192))
    labels = (np.sin(5 * images.reshape(12, 1, -1).astype(np.float64)) * weights).sum(axis=-1).argmax(axis=1)
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    (tmp_path / "spec.toml").write_text(spec(batch_size=8, eps="0.02").toml())
    return tmp_path


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "parsimon", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def stored(path: Path) -> list[Any]:
    with sqlite3.connect(path / "run.sqlite") as database:
        rows = database.execute("SELECT * FROM outcomes ORDER BY attack, image").fetchall()
        assert database.execute("SELECT COUNT(*) FROM journal").fetchone() == (0,)
    return rows


def test_a_run_killed_at_random_moments_ends_as_an_undisturbed_one_and_asks_nothing_twice(folder: Path) -> None:
    whole = finish(start(folder, "run", "spec.toml", "--in-flight", "5", "--out", "whole"))
    undisturbed = lines(folder / "shown.txt")
    (folder / "shown.txt").unlink()
    moments = random.Random(3)
    kills = 0
    arguments = ["run", "spec.toml", "--in-flight", "5", "--out", "killed"]
    while True:
        before = lines(folder / "shown.txt")
        process = start(folder, *arguments)
        # Importing is not what is to be killed, nor is classifying the clean images.
        while process.poll() is None and lines(folder / "shown.txt") <= before + CLEAN:
            time.sleep(0.005)
        arguments = ["resume", "killed", "--in-flight", "5"]
        try:
            process.wait(moments.random() * 0.15)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            continue
        resumed = finish(process)
        break
    assert kills >= 3  # usually a dozen
    assert resumed.replace("killed", "whole") == whole
    assert stored(folder / "killed") == stored(folder / "whole")
    for name in ("results.csv", "table.md", "table.tex", "examples.png"):
        assert (folder / "killed" / name).read_bytes() == (folder / "whole" / name).read_bytes()
    again = lines(folder / "shown.txt") - undisturbed
    assert again <= kills * (CLEAN + 8)  # a kill loses at most the batch in work


def test_an_interrupted_run_can_be_resumed(folder: Path) -> None:
    process = start(folder, "run", "spec.toml", "--out", "out")
    while not (folder / "out" / "run.sqlite").exists():
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "parsimon resume out" in out
    finish(start(folder, "resume", "out"))
    finish(start(folder, "run", "spec.toml", "--out", "whole"))
    assert stored(folder / "out") == stored(folder / "whole")


def test_two_processes_on_one_run_are_refused(folder: Path) -> None:
    (folder / "spec.toml").write_text(spec(batch_size=8, eps="0.0001", budget=100_000).toml())  # it would take hours
    first = start(folder, "run", "spec.toml", "--out", "out")
    while not (folder / "out" / "spec.toml").exists():
        time.sleep(0.01)
    second = start(folder, "resume", "out")
    _, err = second.communicate(timeout=60)
    assert second.returncode == 2
    assert "another process is working on the run in out" in " ".join(err.split())
    first.kill()
    first.communicate()


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run in this process, where `mine` can be imported anew."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("mine", None)
    yield folder
    sys.modules.pop("mine", None)


def test_a_run_is_read_without_its_model(here: Path) -> None:
    ran = runs.run(spec(eps="0.02"), here / "out")
    (here / "mine.py").unlink()
    sys.modules.pop("mine", None)
    read = runs.load(here / "out")
    assert str(read) == str(ran)
    for name, result in ran.results.items():
        assert read.results[name].outcomes == result.outcomes
        assert np.array_equal(read.results[name].adversarial, result.adversarial)


def test_a_run_in_work_can_be_read_meanwhile(here: Path) -> None:
    with Store(_copy_of_a_run(here), write=True):
        assert runs.load(here / "copy").results["Square"].summary.attacked == 12


def _copy_of_a_run(here: Path) -> Path:
    runs.run(spec(attacks=("square",)), here / "out")
    shutil.copytree(here / "out", here / "copy")
    return here / "copy"


def test_another_spec_is_refused_with_the_difference(here: Path) -> None:
    runs.run(spec(attacks=("square",)), here / "out")
    with pytest.raises(InputError, match="holds a run of another spec"):
        runs.run(spec(attacks=("square",), budget=91), here / "out")
    with pytest.raises(InputError, match=re.escape("budget: 90, not 91")):
        runs.run(spec(attacks=("square",), budget=91), here / "out")


def test_a_changed_model_is_refused(here: Path) -> None:
    runs.run(spec(attacks=("square",)), here / "out")
    (here / "mine.py").write_text(MODEL.replace("default_rng(0)", "default_rng(2)"))
    sys.modules.pop("mine", None)
    with pytest.raises(InputError, match="its model or its data have changed since"):
        runs.resume(here / "out")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda path: path.write_bytes(b"not a database at all, but long enough to look like a file" * 100), "damaged"),
        (lambda path: sqlite3.connect(path).execute("PRAGMA user_version = 99").connection.commit(), "later parsimon"),
        (lambda path: sqlite3.connect(path).execute("PRAGMA application_id = 1").connection.commit(), "not of a run"),
        (lambda path: path.unlink(), "no run.sqlite"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_sentence(here: Path, spoil: Any, sentence: str) -> None:
    runs.run(spec(attacks=("square",)), here / "out")
    spoil(here / "out" / "run.sqlite")
    with pytest.raises(StoreError, match=sentence):
        runs.load(here / "out")


def test_a_full_disk_is_a_sentence_and_loses_nothing(here: Path) -> None:
    with Store(_copy_of_a_run(here), write=True) as store:
        database: sqlite3.Connection = store._database
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="make room on the disk, then resume"):
            store.know("large", "x" * 10_000_000)
    assert str(runs.load(here / "copy")) == str(runs.load(here / "out"))


def test_the_environment_is_written_down(here: Path) -> None:
    runs.run(spec(attacks=("square",)), here / "out")
    environment = json.loads((here / "out" / "environment.json").read_text())
    assert environment["packages"]["numpy"] == np.__version__
    assert {"python", "platform", "cores", "begun", "commit", "command"} <= set(environment)


def test_a_run_stays_small(here: Path) -> None:
    runs.run(spec(attacks=("square", "nes"), budget=300), here / "out")
    assert (here / "out" / "run.sqlite").stat().st_size < 200_000


def test_a_page_is_written_about_runs(here: Path) -> None:
    runs.run(spec(attacks=("square",)), here / "out")
    page = finish(start(here, "report", "out")).strip()
    assert page == "out/report.html"
    text = (here / page).read_text()
    assert "Square" in text
    assert "data.npz" in text
    with_two = finish(start(here, "report", "out", "out", "--out", "both.html"))
    assert with_two.strip() == "both.html"

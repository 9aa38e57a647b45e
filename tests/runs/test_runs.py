"""A stored run has one writer, one configuration and one model; a file that cannot be used is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parsimon
from parsimon import InputError, runs
from parsimon.core.engine import Step
from parsimon.errors import StoreError
from parsimon.results.result import Comparison
from parsimon.runs.config import RunConfig
from parsimon.runs.store import Store

MODEL = """
import numpy as np

def build():
    weights = np.random.default_rng(0).normal(size=(3, 192))

    def model(images):
        rows = images.reshape(len(images), 1, -1).astype(np.float64)
        return (np.sin(5 * rows) * weights).sum(axis=-1)

    return model
"""
ATTACKS = ("parsimonious", "bandits", "nes,samples=10", "square")


def spec(**settings: Any) -> RunConfig:
    return RunConfig(**{"attacks": ATTACKS, "model": "mine:build", "data": "data.npz", "budget": 90, **settings})


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


def test_ctrl_c_between_two_attacks_leaves_the_second_unfinished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # of another test

    def interrupt(attack: str, images: int, step: Step) -> None:
        if attack == "Parsimonious" and step.counters.ended == images:
            os.kill(os.getpid(), signal.SIGINT)

    cut = runs.run(spec(attacks=ATTACKS[:2], eps="0.02"), folder / "out", watch=interrupt)
    assert {name: result.summary.unfinished for name, result in cut.results.items()} == {
        "Parsimonious": 0,
        "Bandits": 12,
    }
    assert runs.load(folder / "out").unfinished == cut.unfinished == 12
    assert runs.resume(folder / "out").unfinished == 0


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
    """Return the folder as working folder, where `mine` is imported afresh."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("mine", None)
    yield folder
    sys.modules.pop("mine", None)


def test_the_queries_of_unfinished_images_are_read_back(here: Path) -> None:
    """Include images that wait when the run is interrupted again, and attacks with uncharged queries."""

    def run(calls: int, **options: Any) -> Comparison:
        def interrupt(attack: str, images: int, step: Step) -> None:  # noqa: ARG001
            nonlocal calls
            calls -= 1
            if calls == 0:
                os.kill(os.getpid(), signal.SIGINT)

        return runs.run(
            spec(attacks=("bandits",), eps="0.0001", batch_size=4), here / "out", watch=interrupt, **options
        )

    def charged(comparison: Comparison) -> list[tuple[int, int, int]]:
        return [(each.index, each.queries, each.uncharged) for each in comparison.results["Bandits"].outcomes]

    cut = run(40)
    assert cut.unfinished == 12
    assert cut.results["Bandits"].summary.interval is None
    assert re.search(r"Robust accuracy so far: at most [\d.]+%\.", str(cut))
    assert all(queries > 0 and uncharged > 0 for _, queries, uncharged in charged(cut))
    assert charged(runs.load(here / "out")) == charged(cut)
    again = run(1, in_flight=2)
    assert charged(runs.load(here / "out")) == charged(again)
    assert all(now >= before for now, before in zip(charged(again), charged(cut), strict=True))
    with Store(here / "out", ()) as store:
        assert store.queries("Bandits") == sum(queries for _, queries, _ in charged(again))


def test_a_run_is_read_without_its_model(here: Path) -> None:
    ran = runs.run(spec(eps="0.02"), here / "out")
    (here / "mine.py").unlink()
    sys.modules.pop("mine", None)
    read = runs.load(here / "out")
    assert str(read) == str(ran)
    for name, result in ran.results.items():
        assert read.results[name].outcomes == result.outcomes
        confidences = [outcome.confidence for outcome in result.outcomes]
        assert [outcome.confidence for outcome in read.results[name].outcomes] == confidences
        assert [confidence is not None for confidence in confidences] == result.success.tolist()
        clean, before = read.results[name].clean, result.clean
        assert clean.confidence is not None
        assert before.confidence is not None
        assert np.array_equal(clean.confidence, before.confidence)
        assert np.array_equal(read.results[name].adversarial, result.adversarial)


def test_a_run_can_be_read_while_it_is_written(here: Path) -> None:
    with Store(_copy_of_a_run(here), (), write=True):
        assert runs.load(here / "copy").results["Square"].summary.attacked == 12


def _copy_of_a_run(here: Path) -> Path:
    runs.run(spec(attacks=("square",)), here / "out")
    shutil.copytree(here / "out", here / "copy")
    return here / "copy"


def test_another_spec_is_refused_with_the_difference(here: Path) -> None:
    runs.run(spec(attacks=("square",)), here / "out")
    with pytest.raises(InputError, match="holds a run with other settings"):
        runs.run(spec(attacks=("square",), budget=91), here / "out")
    with pytest.raises(InputError, match=re.escape("budget: 90, not 91")):
        runs.run(spec(attacks=("square",), budget=91), here / "out")


@pytest.mark.parametrize(
    ("written", "edited", "difference"),
    [
        ('"4/255"', '"8/255"', "eps: '4/255', not '8/255'"),
        ("budget = 90", "budget = 900", "budget: 90, not 900"),
        ('"square"', '"thrift"', "attacks: ('square',), not ('thrift',)"),
    ],
)
def test_a_run_with_an_edited_spec_is_neither_resumed_nor_read(
    here: Path, written: str, edited: str, difference: str
) -> None:
    runs.run(spec(attacks=("square",), eps="4/255"), here / "out")
    file = here / "out" / "spec.toml"
    file.write_text(file.read_text().replace(written, edited))
    for use in (runs.resume, runs.load):
        with pytest.raises(InputError, match=re.escape(difference)):
            use(here / "out")
    file.write_text(file.read_text().replace(edited, written))
    assert runs.resume(here / "out").unfinished == 0


def test_a_changed_model_is_refused(here: Path) -> None:
    runs.run(spec(attacks=("square",)), here / "out")
    (here / "mine.py").write_text(MODEL.replace("default_rng(0)", "default_rng(2)"))
    sys.modules.pop("mine", None)
    with pytest.raises(InputError, match="its model or its data have changed since"):
        runs.resume(here / "out")


def executing(statement: str) -> Callable[[Path], None]:
    """Return a function that spoils a file with an SQL statement."""

    def spoil(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(statement)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda path: path.write_bytes(b"not a database at all, but long enough to look like a file" * 100), "damaged"),
        (lambda path: os.truncate(path, path.stat().st_size // 2), "damaged"),
        (executing("UPDATE outcomes SET point = x'00' WHERE success"), "damaged"),
        (executing("PRAGMA user_version = 99"), "later parsimon"),
        (executing("PRAGMA user_version = 1"), "earlier parsimon"),
        (executing("PRAGMA application_id = 1"), "not of a run"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_not_changed(
    here: Path, spoil: Callable[[Path], None], sentence: str
) -> None:
    path = _copy_of_a_run(here) / "run.sqlite"
    spoil(path)
    before = path.read_bytes()
    for use in (runs.load, runs.resume):
        with pytest.raises(StoreError, match=sentence):
            use(here / "copy")
    assert path.read_bytes() == before


def test_a_missing_file_is_refused(here: Path) -> None:
    (_copy_of_a_run(here) / "run.sqlite").unlink()
    with pytest.raises(StoreError, match=r"no run\.sqlite"):
        runs.load(here / "copy")


def test_a_full_disk_is_reported_and_loses_nothing(here: Path) -> None:
    with Store(_copy_of_a_run(here), (), write=True) as store:
        database: sqlite3.Connection = store._database
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="make room on the disk, then resume"):
            store.set_fact("large", "x" * 10_000_000)
    assert str(runs.load(here / "copy")) == str(runs.load(here / "out"))


def interrupted(here: Path) -> Path:
    """Return a run that Ctrl-C interrupted after some images."""

    def interrupt(attack: str, images: int, step: Step) -> None:  # noqa: ARG001
        if step.counters.ended >= 3:
            os.kill(os.getpid(), signal.SIGINT)

    runs.run(spec(attacks=("square",), eps="0.02", batch_size=4), here / "cut", in_flight=4, watch=interrupt)
    return here / "cut"


def test_only_the_same_version_continues_an_unfinished_run(here: Path) -> None:
    """Refuse another version, which may query differently and would misread the journal."""
    for folder in (_copy_of_a_run(here), interrupted(here)):
        with Store(folder, (), write=True) as store:
            store.set_fact("parsimon", "0.0.9")
    assert str(runs.resume(here / "copy")) == str(runs.load(here / "out"))  # no image is unfinished
    with pytest.raises(
        InputError, match=rf"begun with parsimon 0\.0\.9, .* continue with parsimon {parsimon.__version__}, which"
    ):
        runs.resume(here / "cut")


def test_the_environment_is_recorded(here: Path) -> None:
    runs.run(spec(attacks=("square",)), here / "out")
    environment = json.loads((here / "out" / "environment.json").read_text())
    assert environment["packages"]["numpy"] == np.__version__
    assert {"python", "platform", "cores", "begun", "commit", "command"} <= set(environment)


def test_a_run_stays_small(here: Path) -> None:
    runs.run(spec(attacks=("square", "nes"), budget=300), here / "out")
    assert (here / "out" / "run.sqlite").stat().st_size < 200_000


def test_the_report_command_writes_a_page_on_one_run_or_several(here: Path) -> None:
    runs.run(spec(attacks=("square",)), here / "out")
    page = finish(start(here, "report", "out")).strip()
    assert page == "out/report.html"
    text = (here / page).read_text()
    assert "Square" in text
    assert "data.npz" in text
    with_two = finish(start(here, "report", "out", "out", "--out", "both.html"))
    assert with_two.strip() == "both.html"


def test_the_plot_command_draws_the_curves_of_runs(here: Path) -> None:
    for name in ("one", "two", "two/one"):
        runs.run(spec(attacks=("square",)), here / name)
    assert finish(start(here, "plot", "one")).strip() == "one/curves.pdf"
    assert (here / "one" / "curves.pdf").read_bytes().startswith(b"%PDF")
    for names in (("one", "two"), ("one", "two/one")):
        process = start(here, "plot", *names, "--log", "--width", "page", "--out", "both.svg")
        assert finish(process).strip() == "both.svg"
        assert 'width="486pt"' in (here / "both.svg").read_text()
    process = start(here, "plot", "one", "--out", "curves.bmp")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "a figure is saved as .pdf, .svg, .png; got 'curves.bmp'" in err


def test_curves_of_an_unfinished_run_are_drawn_with_a_note(here: Path) -> None:
    unfinished = runs.load(interrupted(here)).unfinished
    assert 0 < unfinished < 12
    process = start(here, "plot", "cut")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out.strip()) == (0, "cut/curves.pdf")
    assert err == f"note: cut has {unfinished} unfinished images: curves end where one stopped\n"


def test_a_run_of_an_unknown_earlier_format_is_not_changed_and_says_what_to_do(here: Path) -> None:
    path = _copy_of_a_run(here) / "run.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 1")
    before = path.read_bytes()
    for use in (runs.load, runs.resume):
        with pytest.raises(
            StoreError, match=r"format 1; this one knows 3 and 4.*parsimon run .*spec\.toml --out ANOTHER"
        ):
            use(here / "copy")
    assert path.read_bytes() == before


def test_a_run_is_resumed_without_the_images_that_it_left_out(here: Path) -> None:
    """None at all is an answer, too."""
    for name, excluded in (("none", ()), ("some", (0, 3))):
        begun = runs.run(spec(attacks=("square",)), here / name, excluded=excluded)
        resumed = runs.run(spec(attacks=("square",)), here / name, excluded=(1,))
        assert begun.fooled_before == resumed.fooled_before == len(excluded)
        assert resumed.first.outcomes == begun.first.outcomes
        assert not {each.index for each in resumed.first.outcomes} & set(excluded)


def test_folders_may_be_texts(here: Path) -> None:
    made = runs.run(spec(attacks=("square",)), "texts")
    for again in (runs.load("texts"), runs.resume("texts")):
        assert again.first.outcomes == made.first.outcomes
    assert runs.StoredRun("texts").config == runs.config_of("texts")
    assert runs.is_run("texts")
    assert not runs.is_evaluation("texts")
    assert runs.config_of("texts") == runs.config_of(here / "texts")
    assert runs.facts_of("texts") == runs.facts_of(here / "texts")
    assert runs.identity("texts") == runs.identity(here / "texts")
    assert runs.classes_of("texts") == runs.classes_of(here / "texts")
    settings = {"models": [spec().model], "data": "data.npz", "attacks": ["square"], "budget": 5}
    grid = runs.evaluate(runs.EvaluationConfig.of(settings), "grid")
    for other in (runs.load_evaluation("grid"), runs.resume_evaluation("grid")):
        assert str(other) == str(grid)

"""Folders for results: a new one for every command, and none for a command that is refused."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from command import USERS_MODULE, coloured_images, refused, run
from parsimon import runs
from parsimon.cli.commands import command
from parsimon.cli.run import results_folder

SETTINGS = ("--data", "data.npz", "--budget", "3", "--quiet")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    images, labels = coloured_images()
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    (tmp_path / "mine.py").write_text(USERS_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda _: "2026-01-02-030405")


@pytest.mark.usefixtures("stopped_clock")
def test_commands_of_the_same_second_have_folders_of_their_own(folder: Path) -> None:
    for _ in range(3):
        ran = CliRunner().invoke(command, ["run", "--model", "mine:function", *SETTINGS])
        assert ran.exit_code == 0, ran.output
    names = sorted(path.name for path in (folder / "parsimon-results").iterdir())
    assert names == ["2026-01-02-030405", "2026-01-02-030405-2", "2026-01-02-030405-3"]
    for name in names:
        assert runs.load(folder / "parsimon-results" / name).unfinished == 0


@pytest.mark.usefixtures("stopped_clock")
def test_commands_of_the_same_moment_have_folders_of_their_own(folder: Path) -> None:
    """All ask for a folder before one of them has written to its own."""
    commands = 8
    together = threading.Barrier(commands)

    def start(_: int) -> Path:
        with click.Context(click.Command("run")):
            together.wait()
            found = results_folder(None)
            together.wait()
            assert list(found.iterdir()) == []
            (found / "spec.toml").write_text("")
            return found

    with ThreadPoolExecutor(commands) as pool:
        assert len(set(pool.map(start, range(commands)))) == commands
    assert len(list((folder / "parsimon-results").iterdir())) == commands


@pytest.mark.parametrize("name", ["run", "evaluate", "defend"])
def test_a_refused_command_leaves_no_folder(folder: Path, name: str) -> None:
    model = ("mine:nothing",) if name == "evaluate" else ("--model", "mine:nothing")
    arguments = [name, *model, *SETTINGS, *(["round"] if name == "defend" else [])]
    before = sorted(folder.rglob("*"))
    assert "the model must be a torch module" in refused(run(folder, *arguments))
    assert [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts] == before


def test_a_dry_run_leaves_no_folder(folder: Path) -> None:
    assert run(folder, "run", "--model", "mine:function", *SETTINGS, "--dry-run").returncode == 0
    assert not (folder / "parsimon-results").exists()


@pytest.mark.parametrize("wrong", [["--white-box"], ["--scores", "probabilities"], ["--attack", "nes,samples=3"]])
def test_after_a_refusal_the_same_folder_can_be_used(folder: Path, wrong: list[str]) -> None:
    """A function has no gradients, this one returns logits, and NES needs an even number of samples."""
    settings = ["evaluate", "mine:function", *SETTINGS, "--out", "out"]
    refused(run(folder, *settings, *wrong))
    assert not (folder / "out").exists()
    ran = run(folder, *settings)
    assert ran.returncode == 0, ran.stderr
    assert not runs.load_evaluation(folder / "out").unfinished


def test_a_folder_that_was_there_is_kept_when_a_command_is_refused(folder: Path) -> None:
    (folder / "out").mkdir()
    assert run(folder, "evaluate", "mine:nothing", *SETTINGS, "--out", "out").returncode == 2
    assert list((folder / "out").iterdir()) == []

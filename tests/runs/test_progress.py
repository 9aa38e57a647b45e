"""The progress of a run: a bar on a real terminal, and lines elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parsimon.core.engine import Counters, Step
from parsimon.runs.progress import Stage, progress_context, show_progress


def on_a_terminal(folder: Path, *arguments: str) -> str:
    """What the command shows on a terminal of 80 columns, without colours."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-m", "parsimon", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())


def test_a_terminal_shows_images_success_queries_and_time_left(tmp_path: Path) -> None:
    text = on_a_terminal(tmp_path, "run", "--images", "5", "--budget", "40", "--out", "out")
    assert re.search(r"Thrift ━+ 5/5 \d+\.\d% fooled, [\d,]+ queries at most 0:00:00", text)
    assert "attack 1" not in text


def test_several_attacks_are_numbered(tmp_path: Path) -> None:
    text = on_a_terminal(tmp_path, "compare", "square", "nes", "--images", "3", "--budget", "20", "--out", "out")
    assert re.search(r"attack 1 of 2\r\n(?s:.*)Square ━+ 3/3(?s:.*)attack 2 of 2\r\n(?s:.*)NES ━+ 3/3", text)


def test_quiet_shows_the_table_alone(tmp_path: Path) -> None:
    text = on_a_terminal(tmp_path, "run", "--images", "5", "--budget", "40", "--out", "out", "--quiet")
    assert "━" not in text
    assert "at most 0:" not in text
    assert "out/results.csv" in text


def step(queries: int, ended: int = 0, ended_queries: int = 0, successes: int = 0) -> Step:
    counters = Counters(queries, queries, 0, 1, ended, successes, None, ended_queries)
    return Step(counters, [])


def test_an_image_counts_with_its_queries_and_when_it_ends_with_its_budget() -> None:
    stage = Stage("Square", 1, 1, images=4, budget=100)
    assert stage.total == 400
    assert stage.done(step(30).counters) == 30
    # One image ended after 20 queries, and the others have had 10 in all: 290 may still come.
    assert stage.done(step(30, ended=1, ended_queries=20).counters) == 110
    assert stage.done(step(250, ended=4, ended_queries=250, successes=2).counters) == 400


def test_elsewhere_there_is_a_line_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1000.0
    monkeypatch.setattr("parsimon.runs.progress.time.monotonic", lambda: now)
    with progress_context("model 1 of 2, eps 4/255"), show_progress(Stage("NES", 2, 3, 4, 100), show=None) as update:
        assert update is not None
        for now in (1001.0, 1029.0, 1031.0, 1040.0, 1062.0):  # read by the clock
            update(step(int(now - 1000), ended=1, ended_queries=1, successes=1))
    lines = capsys.readouterr().err.splitlines()
    # After 31 queries in 31 seconds, one image has ended after 1: 4 * 100 - 100 - 30 may come, one per second.
    head = "model 1 of 2, eps 4/255, attack 2 of 3: NES: 1 of 4 images, 25.0% fooled"
    assert lines == [
        f"{head}, 31 queries, 1 per second, at most 0:04:30 left",
        f"{head}, 62 queries, 1 per second, at most 0:03:59 left",
    ]


def test_queries_of_a_resumed_run_do_not_count_for_its_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("parsimon.runs.progress.time.monotonic", lambda: now)
    with show_progress(Stage("NES", 1, 1, 4, 1000), show=None) as update:
        assert update is not None
        for now, rows in ((1.0, 10), (40.0, 400)):  # noqa: B007
            update(Step(Counters(2000 + rows, rows, ended=2, ended_queries=2000), []))
    assert "2,400 queries, 10 per second, at most 0:02:40 left" in capsys.readouterr().err


def test_nothing_is_shown_where_it_is_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(Stage("NES", 1, 2, 4, 100), show=False) as update:
        assert update is None
    assert capsys.readouterr() == ("", "")

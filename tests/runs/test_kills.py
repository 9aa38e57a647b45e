"""A run whose process ends at any moment is resumed to the same result, and repeats no query that was answered."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import watched_network
from parsimon.runs.config import RunConfig
from run_folder import RunFolder
from watched_network import SHAPE, Network

BATCH = 8
IMAGES = 12
# They include uncharged evaluations, probes outside the ball, gradients and queries after a success: everything that a
# journal must replay.
ATTACKS = ("pgd,step=0.0005,steps=60", "parsimonious", "bandits", "nes,samples=10", "square", "rays")


class Kill(NamedTuple):
    """When to kill a process: at the next moment of this name, or a little later."""

    moment: str
    rows: int = 1  # of its searches that the model must have seen before; 0: the process is still starting
    delay: float | None = None  # seconds after the moment, then another process kills it; None: it kills itself


# An attack ends by deleting its journal. A process starts with the checks, then opens the run file and reads the
# journal. Later it is in a model call, between calls, or in one of the steps of a write.
CLOSING = ("DELETE", "VACUUM")
BEGINNING = ("built", "shown", "SELECT call,")
WORKING = ("shown", "answered", "BEGIN", "INSERT INTO outcomes", "INSERT INTO journal", "COMMIT")
LATER = 0.005
KINDS = (
    *(Kill(moment) for moment in CLOSING),
    *(Kill(moment, 0, delay) for delay in (None, LATER) for moment in BEGINNING),
    *(Kill(moment, 1, delay) for delay in (None, LATER) for moment in WORKING),
)


class Life(NamedTuple):
    """All moments of one process."""

    moments: list[str]
    cut_off: bool  # it was killed

    @property
    def calls(self) -> list[list[str]]:
        """The rows of each model call for a search. All of them come after the run file was locked."""
        first = self.moments.index("BEGIN EXCLUSIVE") if "BEGIN EXCLUSIVE" in self.moments else len(self.moments)
        return [moment.split()[1:] for moment in self.moments[first:] if moment.startswith("shown")]

    @property
    def unsaved(self) -> list[str]:
        """The rows of the last two calls, minus one call per write that was completed after them.

        Two, because a response may be written only after the next call.
        """
        if not self.calls or not self.cut_off:
            return []
        last = max(number for number, moment in enumerate(self.moments) if moment.startswith("shown"))
        written = self.moments[last:-1].count("COMMIT")
        return list(chain(*self.calls[-2:][written:]))

    @property
    def ends(self) -> list[int]:
        """The number of rows shown when each attack ended."""
        deletions = [number for number, moment in enumerate(self.moments) if moment.startswith("DELETE")]
        return [sum(map(len, Life(self.moments[:number], self.cut_off).calls)) for number in deletions]

    @property
    def ended_while(self) -> str:
        last = self.moments[-1]
        if not self.calls:
            return "beginning"
        if last.startswith("shown"):
            return "calling the model"
        if last == "answered":
            return "between calls"
        return "closing" if last.startswith(CLOSING) else "writing"


class Run(RunFolder):
    """A run in a folder, and the processes that worked on it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.lives: list[Life] = []
        self._log = folder / f"{name}.log"

    def live(self) -> str:
        """Start or resume the run, wait for its end, and return what it prints."""
        process = self._start()
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        self._read_log(cut_off=False)
        return out

    def die(self, kill: Kill) -> None:
        """Start or resume the run, and kill it."""
        at_once = kill.delay is None
        process = self._start(WATCH_FOR=f"{kill.rows}/{kill.moment}/{'now' if at_once else 'later'}")
        if kill.delay is not None:
            wait_for_the_moment(process)
            time.sleep(kill.delay)
            process.kill()
        _, err = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, err
        self._read_log()

    def stop(self, kill: Kill) -> str:
        """Start or resume the run, stop it with Ctrl-C, and return what it prints."""
        process = self._start(WATCH_FOR=f"{kill.rows}/{kill.moment}/later")
        wait_for_the_moment(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        self._read_log(cut_off=False)
        return out

    def run_out_of_room(self, room: int) -> str:
        """Start or resume the run until a file exceeds `room` bytes, and return the error."""
        process = self._start(WATCH_ROOM=str(room))
        _, err = process.communicate(timeout=120)
        assert process.returncode == 2, err
        self._read_log()
        return " ".join(err.split())

    def _start(self, **watch: str) -> subprocess.Popen[str]:
        begun = (self.folder / "spec.toml").exists()
        arguments = ["resume", self.folder.name] if begun else ["run", "spec.toml", "--out", self.folder.name]
        paths = [str(Path(watched_network.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        watch |= {"WATCH_LOG": str(self._log), "PYTHONPATH": os.pathsep.join(paths)}
        return subprocess.Popen(
            [sys.executable, "-m", "parsimon", *arguments, "--in-flight", "5", "--no-verify"],
            cwd=self.folder.parent,
            env={**os.environ, **watch},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _read_log(self, *, cut_off: bool = True) -> None:
        moments = self._log.read_text().splitlines()
        self.lives.append(Life(moments[sum(len(life.moments) for life in self.lives) :], cut_off))

    @property
    def shown(self) -> Counter[str]:
        return Counter(row for life in self.lives for call in life.calls for row in call)

    @property
    def unsaved(self) -> Counter[str]:
        """Rows under way when a process was killed, which may have been queried again."""
        return Counter(row for life in self.lives for row in life.unsaved)

    @property
    def evaluations(self) -> int:
        ((counted,),) = self._rows("SELECT SUM(queries + extra + uncharged) FROM outcomes")
        return int(counted)

    def calls_in_the_journal(self) -> int:
        """Count the journal rows in a copy, since SQLite repairs a file that it opens."""
        if not (self.folder / "spec.toml").exists():
            return 0
        copy = self.folder.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder, copy)
        return len(Run(copy.parent, copy.name).journal)


def wait_for_the_moment(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line == "now\n", line + process.communicate()[1]


@pytest.fixture
def whole(tmp_path: Path) -> Run:
    """Return an undisturbed run."""
    images = np.random.default_rng(1).random((IMAGES, *SHAPE), dtype=np.float32)
    np.savez(tmp_path / "data.npz", images=images, labels=Network()(images).argmax(axis=1))
    spec = RunConfig(
        attacks=ATTACKS,
        model="watched_network:build",
        data="data.npz",
        eps="0.03",
        budget=90,
        batch_size=BATCH,
        until_budget=True,
    )
    (tmp_path / "spec.toml").write_text(spec.toml())
    return Run(tmp_path, "whole")


@pytest.fixture
def other(whole: Run) -> Run:
    """Return a run of the same configuration, to be disturbed."""
    return Run(whole.folder.parent, "resumed")


def kills(ends: list[int], seed: int) -> Iterator[Kill]:
    """Yield one kill of each kind, spread over a run whose attacks end after these numbers of rows."""
    moments = random.Random(seed)
    for number, (first, last) in enumerate(pairwise([0, *ends])):
        kinds = KINDS[number :: len(ends)]
        whens = sorted(moments.sample(range(first + 1, int(0.2 * first + 0.8 * last)), len(kinds)))
        shuffled = moments.sample(kinds, len(kinds))
        for when, kind in zip(whens, sorted(shuffled, key=lambda kind: kind.moment in CLOSING), strict=True):
            delay = None if kind.delay is None else moments.uniform(0, kind.delay)
            yield Kill(kind.moment, kind.rows * when, delay)


def assert_no_query_was_repeated(whole: Run, other: Run, most_again: int) -> None:
    """Compare the queries of two runs, except those under way when a process was killed.

    Parsimonious asks for several points at once. The points after a success are not counted. Whether they are shown
    depends on the batches, but they too are shown at most once.
    """
    more = other.shown - other.unsaved - whole.shown
    assert [row for row, times in more.items() if times > 1 or row in whole.shown] == []
    behind = sum(row[0] == "Parsimonious" and row[2] for row in whole.outcomes) * (BATCH - 1)
    assert whole.evaluations <= whole.shown.total() <= whole.evaluations + behind
    assert other.unsaved.total() <= most_again
    assert whole.evaluations <= other.shown.total() <= whole.evaluations + behind + most_again


def test_a_run_killed_at_twenty_random_moments_ends_like_an_undisturbed_one_and_repeats_no_query(
    whole: Run, other: Run
) -> None:
    printed = whole.live()
    journals = []
    for kill in kills(whole.lives[0].ends, seed=3):
        saved = other.shown.total() - other.unsaved.total()
        other.die(kill._replace(rows=kill.rows and max(1, kill.rows - saved)))
        journals.append(other.calls_in_the_journal())
    assert other.live().replace("resumed", "whole") == printed

    assert other.outcomes == whole.outcomes
    assert other.journal == whole.journal == []
    assert other.files == whole.files
    assert_no_query_was_repeated(whole, other, 20 * 2 * BATCH)

    assert len(other.lives) == 20 + 1
    everywhere = {"beginning", "calling the model", "between calls", "writing", "closing"}
    assert {life.ended_while for life in other.lives[:20]} == everywhere
    assert sum(calls > 0 for calls in journals) >= 10  # images were unfinished


def test_a_run_killed_while_its_file_is_created_can_be_started_again(whole: Run) -> None:
    whole.live()
    for number, moment in enumerate(("PRAGMA user_version =", "CREATE TABLE journal", "COMMIT;")):
        other = Run(whole.folder.parent, f"resumed{number}")
        other.die(Kill(moment, rows=0))
        other.live()
        assert other.outcomes == whole.outcomes


def test_a_run_interrupted_by_ctrl_c_is_resumed_without_repeating_a_query(whole: Run, other: Run) -> None:
    printed = whole.live()
    assert "parsimon resume resumed" in other.stop(Kill("shown", rows=1500))
    assert other.calls_in_the_journal() > 0
    assert other.live().replace("resumed", "whole") == printed
    assert other.outcomes == whole.outcomes
    assert other.files == whole.files
    assert_no_query_was_repeated(whole, other, most_again=0)


def test_a_full_disk_is_reported_and_loses_at_most_the_calls_under_way(whole: Run, other: Run) -> None:
    whole.live()
    said = other.run_out_of_room(500_000)
    assert "resumed/run.sqlite cannot be written" in said
    assert "make room on the disk, then resume the run" in said
    assert 0 < other.shown.total() < whole.shown.total()
    assert other.calls_in_the_journal() > 0
    other.live()
    assert other.outcomes == whole.outcomes
    assert other.files == whole.files
    assert_no_query_was_repeated(whole, other, most_again=2 * BATCH)

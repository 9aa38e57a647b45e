"""Whatever ends a run's process, the run goes on as if nothing had happened, and asks no answered question again."""

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
# Uncharged evaluations, probes outside the ball and gradients among them: all that a journal must be able to retell.
ATTACKS = ("pgd,step=0.0005,steps=60", "parsimonious", "bandits", "nes,samples=10", "square")


class Kill(NamedTuple):
    """The moment at which a process is killed: the next one that is called so, there and then or a little later."""

    moment: str
    rows: int = 1  # of its searches, that must have been shown by then; 0: none, the process is only beginning
    delay: float | None = None  # seconds after the moment, by another process; None: it kills itself


# When an attack is over, its books are closed. A process begins with the checks, then opens the run's file and reads
# the journal. At work, it is in a model call, between calls, or in one of the parts of a write.
CLOSING = ("DELETE", "VACUUM")
BEGINNING = ("built", "shown", "SELECT told")
WORKING = ("shown", "answered", "BEGIN", "INSERT INTO outcomes", "INSERT INTO journal", "COMMIT")
LATER = 0.005
KINDS = (
    *(Kill(moment) for moment in CLOSING),
    *(Kill(moment, 0, delay) for delay in (None, LATER) for moment in BEGINNING),
    *(Kill(moment, 1, delay) for delay in (None, LATER) for moment in WORKING),
)


class Life(NamedTuple):
    """All that a process did, moment by moment, until it ended."""

    moments: list[str]
    cut_off: bool  # before it could end by itself

    @property
    def calls(self) -> list[list[str]]:
        """The rows of each model call on behalf of a search, all of which come after the run's file was locked."""
        first = self.moments.index("BEGIN EXCLUSIVE") if "BEGIN EXCLUSIVE" in self.moments else len(self.moments)
        return [moment.split()[1:] for moment in self.moments[first:] if moment.startswith("shown")]

    @property
    def unsaved(self) -> list[str]:
        """The rows of the last two calls, less one for each write after them that was over: something came after it.

        Two, because an answer may be written only when the next call is over.
        """
        if not self.calls or not self.cut_off:
            return []
        last = max(number for number, moment in enumerate(self.moments) if moment.startswith("shown"))
        written = self.moments[last:-1].count("COMMIT")
        return list(chain(*self.calls[-2:][written:]))

    @property
    def ends(self) -> list[int]:
        """How many rows were shown when each attack was over."""
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
        """Begin the run or go on with it, to its end; what is printed."""
        process = self._start()
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        self._read_log(cut_off=False)
        return out

    def die(self, kill: Kill) -> None:
        """Begin the run or go on with it, until it is killed."""
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
        """Begin the run or go on with it, until Ctrl-C; what is printed."""
        process = self._start(WATCH_FOR=f"{kill.rows}/{kill.moment}/later")
        wait_for_the_moment(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        self._read_log(cut_off=False)
        return out

    def run_out_of_room(self, room: int) -> str:
        """Begin the run or go on with it, until a file is larger than that; the error."""
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
        """What was in work whenever a process ended before the run did, and so may have been asked again."""
        return Counter(row for life in self.lives for row in life.unsaved)

    @property
    def evaluations(self) -> int:
        ((counted,),) = self._rows("SELECT SUM(queries + uncharged) FROM outcomes")
        return int(counted)

    def calls_in_the_journal(self) -> int:
        """Read in a copy, since SQLite mends a file that it opens."""
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
    """A run that nothing disturbs."""
    images = np.random.default_rng(1).random((IMAGES, *SHAPE), dtype=np.float32)
    np.savez(tmp_path / "data.npz", images=images, labels=Network()(images).argmax(axis=1))
    spec = RunConfig(
        attacks=ATTACKS, model="watched_network:build", data="data.npz", eps="0.03", budget=90, batch_size=BATCH
    )
    (tmp_path / "spec.toml").write_text(spec.toml())
    return Run(tmp_path, "whole")


@pytest.fixture
def other(whole: Run) -> Run:
    """A run of the same spec that is going to be disturbed."""
    return Run(whole.folder.parent, "resumed")


def kills(ends: list[int], seed: int) -> Iterator[Kill]:
    """One of each kind, all over a run in which the attacks are over after so many rows."""
    moments = random.Random(seed)
    for number, (first, last) in enumerate(pairwise([0, *ends])):
        kinds = KINDS[number :: len(ends)]
        whens = sorted(moments.sample(range(first + 1, int(0.2 * first + 0.8 * last)), len(kinds)))
        shuffled = moments.sample(kinds, len(kinds))
        for when, kind in zip(whens, sorted(shuffled, key=lambda kind: kind.moment in CLOSING), strict=True):
            delay = None if kind.delay is None else moments.uniform(0, kind.delay)
            yield Kill(kind.moment, kind.rows * when, delay)


def assert_nothing_was_asked_twice(whole: Run, other: Run, most_again: int) -> None:
    """But for what was in work when a process ended.

    Parsimonious asks for several points at once. Those behind a success may be shown or not, as batches fall, and are
    not counted; they too are asked no more than once.
    """
    more = other.shown - other.unsaved - whole.shown
    assert [row for row, times in more.items() if times > 1 or row in whole.shown] == []
    behind = sum(row[0] == "Parsimonious" and row[2] for row in whole.outcomes) * (BATCH - 1)
    assert whole.evaluations <= whole.shown.total() <= whole.evaluations + behind
    assert other.unsaved.total() <= most_again
    assert whole.evaluations <= other.shown.total() <= whole.evaluations + behind + most_again


def test_a_run_killed_at_twenty_random_moments_ends_as_an_undisturbed_one_and_asks_nothing_twice(
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
    assert_nothing_was_asked_twice(whole, other, 20 * 2 * BATCH)

    assert len(other.lives) == 20 + 1
    everywhere = {"beginning", "calling the model", "between calls", "writing", "closing"}
    assert {life.ended_while for life in other.lives[:20]} == everywhere
    assert sum(calls > 0 for calls in journals) >= 10  # images were left in the middle


def test_a_run_killed_while_its_file_is_made_can_be_begun_again(whole: Run) -> None:
    whole.live()
    for number, moment in enumerate(("PRAGMA user_version =", "CREATE TABLE journal", "COMMIT;")):
        other = Run(whole.folder.parent, f"resumed{number}")
        other.die(Kill(moment, rows=0))
        other.live()
        assert other.outcomes == whole.outcomes


def test_a_run_interrupted_by_ctrl_c_is_resumed_without_asking_anything_again(whole: Run, other: Run) -> None:
    printed = whole.live()
    assert "parsimon resume resumed" in other.stop(Kill("shown", rows=1500))
    assert other.calls_in_the_journal() > 0
    assert other.live().replace("resumed", "whole") == printed
    assert other.outcomes == whole.outcomes
    assert other.files == whole.files
    assert_nothing_was_asked_twice(whole, other, most_again=0)


def test_a_disk_that_runs_full_is_a_sentence_and_loses_what_is_in_work_at_most(whole: Run, other: Run) -> None:
    whole.live()
    said = other.run_out_of_room(500_000)
    assert "resumed/run.sqlite cannot be written" in said
    assert "make room on the disk, then resume the run" in said
    assert 0 < other.shown.total() < whole.shown.total()
    assert other.calls_in_the_journal() > 0
    other.live()
    assert other.outcomes == whole.outcomes
    assert other.files == whole.files
    assert_nothing_was_asked_twice(whole, other, most_again=2 * BATCH)

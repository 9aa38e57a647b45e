"""Runs of `counted_network` by the command, in their own processes, and the rows that these were shown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np

import counted_network
from counted_network import CHECKS, SHAPE
from parsimon.runs.config import RunConfig
from parsimon.testing import Network
from run_folder import RunFolder

# They include uncharged evaluations, probes outside the ball and gradients: everything that workers must send.
ATTACKS = ("pgd,step=0.0005,steps=60", "parsimonious", "bandits", "nes,samples=10", "square")


def undisturbed(folder: Path) -> Run:
    """Return an undisturbed run of one process, in a folder for other runs of the same configuration."""
    # Workers on other nodes do not know the folder of the tests, but they work in the folder of the run.
    shutil.copy(counted_network.__file__, folder)
    images = np.random.default_rng(1).random((12, *SHAPE), dtype=np.float32)
    np.savez(folder / "data.npz", images=images, labels=Network(SHAPE)(images).argmax(axis=1))
    spec = RunConfig(
        attacks=ATTACKS, model="counted_network:build", data="data.npz", eps="0.02", budget=70, batch_size=8
    )
    (folder / "spec.toml").write_text(spec.toml())
    run = Run(folder, "whole")
    run.go()
    return run


class Run(RunFolder):
    """A run in a folder, and the rows that its processes were shown."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.environment = dict(os.environ)
        self._log, self._come = folder / f"{name}.log", folder / f"{name}.come"
        self._read = 0
        self.calls: list[tuple[int, list[str]]] = []  # the process, and the rows of one call for a search

    def go(self, *options: str, moment: str = "//0", code: int = 0) -> str:
        """Start or resume the run, wait for its process, and return its standard error."""
        process = self.start(*options, moment=moment)
        return self.end(process, code)

    def start(self, *options: str, moment: str = "//0") -> subprocess.Popen[str]:
        begun = (self.folder / "spec.toml").exists()
        arguments = ["resume", self.folder.name] if begun else ["run", "spec.toml", "--out", self.folder.name]
        watch = {"log": str(self._log), "moment": moment, "test": os.getpid(), "come": str(self._come)}
        (self.folder.parent / "counted_network.json").write_text(json.dumps(watch))
        self._come.unlink(missing_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "parsimon", *arguments, "--in-flight", "10", "--no-verify", *options],
            cwd=self.folder.parent,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that Ctrl-C can be sent to all its processes, as a terminal does
        )

    def moment(self, process: subprocess.Popen[str]) -> int:
        """Wait for the moment, and return the process in which it came."""
        while not (self._come.exists() and self._come.read_text()):
            assert process.poll() is None, process.communicate()
            time.sleep(0.001)
        return int(self._come.read_text())

    def end(self, process: subprocess.Popen[str], code: int = 0) -> str:
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, out + err
        assert "Traceback" not in err
        wait_until_gone(process.pid)
        lines = [line.split() for line in self._log.read_text().splitlines()][self._read :]
        self._read += len(lines)
        alone = {int(line[0]) for line in lines} == {process.pid}
        mine = [line for line in lines if int(line[0]) == process.pid]
        others = [line for line in lines if int(line[0]) != process.pid]
        assert len(mine) >= CHECKS["shown"]
        assert alone or len(mine) == CHECKS["shown"]
        self.calls += [(int(line[0]), line[1:]) for line in (mine[CHECKS["shown"] :] if alone else others)]
        return err

    @property
    def shown(self) -> Counter[str]:
        return Counter(row for _, rows in self.calls for row in rows)

    def last_calls(self, ahead: int = 1) -> Counter[str]:
        """Return the rows of the last calls of each process, which may be queried again if it was killed.

        Those are the requests sent ahead, and one more: losses are reported after the next call.
        """
        of_each = defaultdict(list)
        for process, rows in self.calls:
            of_each[process].append(rows)
        return Counter(row for calls in of_each.values() for rows in calls[-ahead - 1 :] for row in rows)

    def assert_same(self, whole: Run, again: Counter[str]) -> None:
        """Compare the results with another run's, and check that only rows in `again` were queried twice.

        Parsimonious asks for several points at once. The points after a success are not counted. Whether they are
        shown depends on the batches, but they too are shown at most once.
        """
        assert self.outcomes == whole.outcomes
        assert self.files == whole.files
        assert self.journal == []
        more = self.shown - again - whole.shown
        assert [row for row, times in more.items() if times > 1 or row in whole.shown] == []
        ((counted,),) = self._rows("SELECT SUM(queries + uncharged) FROM outcomes")
        assert counted <= self.shown.total()


def wait_until_gone(group: int) -> None:
    """Check that no process of a run outlives it for long."""
    for _ in range(600):
        if not members_of(group):
            return
        time.sleep(0.05)
    raise AssertionError(f"processes of the run are still alive: {members_of(group)}")


def members_of(group: int) -> list[str]:
    """Return the living processes of a group, without zombies."""
    members = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just ended
            name, _, rest = path.read_text().rpartition(")")
            state, _, its_group = rest.split()[:3]
            if int(its_group) == group and state != "Z":
                members.append(name)
    return members

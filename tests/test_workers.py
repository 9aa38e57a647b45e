"""A run by several processes is the run of one, whatever becomes of them, and asks no answered question again."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parsimon
from counted_network import CHECKS, SHAPE
from parsimon import InputError
from parsimon.spec import Spec
from parsimon.testing import Network
from parsimon.workers.driver import _AHEAD
from small_model import IMAGES, LABELS, linear

BATCH = 8
# Uncharged evaluations, probes outside the ball and gradients among them: all that must travel.
ATTACKS = ("pgd,step=0.0005,steps=60", "parsimonious", "bandits", "nes,samples=10", "square")


class Run:
    """A run in a folder, and what its processes were shown."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self._log = folder / f"{name}.log"
        self._read = 0
        self.calls: list[tuple[int, list[str]]] = []  # which process, and the rows of a call for a search

    def go(self, *means: str, moment: str = "//0", code: int = 0) -> str:
        """Begin the run or go on with it until its process ends; what it says on standard error."""
        process = self.start(*means, moment=moment)
        return self.end(process, code)

    def start(self, *means: str, moment: str = "//0") -> subprocess.Popen[str]:
        begun = (self.folder / "spec.toml").exists()
        arguments = ["resume", self.folder.name] if begun else ["run", "spec.toml", "--out", self.folder.name]
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        count = {"COUNT_LOG": str(self._log), "COUNT_MOMENT": moment, "COUNT_TEST": str(os.getpid())}
        count |= {"PYTHONPATH": os.pathsep.join(paths)}
        return subprocess.Popen(
            [sys.executable, "-m", "parsimon", *arguments, "--in-flight", "10", *means],
            cwd=self.folder.parent,
            env={**os.environ, **count},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that Ctrl-C can be sent to all its processes, as a terminal does
        )

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

    def last_calls(self, count: int = 1) -> Counter[str]:
        """The rows of the last calls of each process, and so what may have been asked again if it was killed."""
        of_each = defaultdict(list)
        for process, rows in self.calls:
            of_each[process].append(rows)
        return Counter(row for calls in of_each.values() for rows in calls[-count:] for row in rows)

    @property
    def outcomes(self) -> list[Any]:
        return self._rows("SELECT * FROM outcomes ORDER BY attack, image")

    @property
    def files(self) -> list[bytes]:
        return [(self.folder / name).read_bytes() for name in ("results.csv", "table.md", "table.tex", "examples.png")]

    def _rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "run.sqlite")) as database:
            return database.execute(query).fetchall()

    def assert_same(self, whole: Run, again: Counter[str]) -> None:
        """The results of the other, and nothing asked twice but what may have been in work at a kill.

        Parsimonious asks for several points at once. Those behind a success may be shown or not, as batches fall, and
        are not counted; they too are asked no more than once.
        """
        assert self.outcomes == whole.outcomes
        assert self.files == whole.files
        assert self._rows("SELECT * FROM journal") == []
        more = self.shown - again - whole.shown
        assert [row for row, times in more.items() if times > 1 or row in whole.shown] == []
        ((counted,),) = self._rows("SELECT SUM(queries + uncharged) FROM outcomes")
        assert counted <= self.shown.total()


def wait_until_gone(group: int) -> None:
    """No process of a run outlives it for long."""
    for _ in range(600):
        if not members_of(group):
            return
        time.sleep(0.05)
    raise AssertionError(f"processes of the run have stayed behind: {members_of(group)}")


def members_of(group: int) -> list[str]:
    """The living processes of a group; some may be dead, and only wait for their parent to take notice."""
    members = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended just now
            name, _, rest = path.read_text().rpartition(")")
            state, _, its_group = rest.split()[:3]
            if int(its_group) == group and state != "Z":
                members.append(name)
    return members


def moment_of(process: subprocess.Popen[str]) -> int:
    """Wait for the moment; in which process it has come."""
    assert process.stderr is not None
    word, number = process.stderr.readline().split()
    assert word == "now"
    return int(number)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of one process, undisturbed."""
    folder = tmp_path_factory.mktemp("workers")
    images = np.random.default_rng(1).random((12, *SHAPE), dtype=np.float32)
    np.savez(folder / "data.npz", images=images, labels=Network(SHAPE)(images).argmax(axis=1))
    spec = Spec(
        attacks=ATTACKS, model="counted_network:build", data="data.npz", eps="0.02", budget=70, batch_size=BATCH
    )
    (folder / "spec.toml").write_text(spec.toml())
    run = Run(folder, "whole")
    run.go()
    return run


@pytest.fixture
def other(whole: Run, request: pytest.FixtureRequest) -> Run:
    """A run of the same spec."""
    return Run(whole.folder.parent, "".join(each for each in request.node.name if each.isalnum()))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_results_of_any_number_of_workers_are_those_of_one_process(whole: Run, other: Run, workers: int) -> None:
    other.go("--workers", str(workers))
    other.assert_same(whole, again=Counter())
    assert len({process for process, _ in other.calls}) == workers


@pytest.mark.parametrize("moment", ["built/1", "shown/1", "shown/30", "answered/5", "answered/100"])
def test_a_killed_worker_changes_nothing_and_what_it_told_is_not_asked_again(
    whole: Run, other: Run, moment: str
) -> None:
    said = other.go("--workers", "2", moment=f"kill/{moment}")
    assert "was lost (SIGKILL): the others go on with its images" in said
    other.assert_same(whole, again=other.last_calls())


def test_a_worker_killed_at_any_time_changes_nothing(whole: Run, other: Run) -> None:
    process = other.start("--workers", "3", moment="say/shown/60")
    worker = moment_of(process)
    time.sleep(np.random.default_rng().uniform(0, 0.01))
    os.kill(worker, signal.SIGKILL)
    assert "was lost (SIGKILL)" in other.end(process)
    other.assert_same(whole, again=other.last_calls())


def test_when_all_workers_are_killed_the_run_says_so_and_can_be_resumed(whole: Run, other: Run) -> None:
    said = " ".join(other.go("--workers", "2", moment="kill_all/answered/40", code=2).split())
    assert "no worker is left: the last one was lost (SIGKILL). A stored run can be resumed" in said
    again = other.last_calls()
    other.go("--workers", "2")
    other.assert_same(whole, again)


def test_ctrl_c_stops_all_workers_and_nothing_is_asked_again(whole: Run, other: Run) -> None:
    process = other.start("--workers", "2", moment="say/shown/50")
    moment_of(process)
    os.killpg(process.pid, signal.SIGINT)
    other.end(process, code=130)
    assert 0 < other.shown.total() < whole.shown.total()
    other.go("--workers", "2")
    other.assert_same(whole, again=Counter())


def test_a_second_ctrl_c_does_not_wait_for_a_worker_that_hangs(other: Run) -> None:
    process = other.start("--workers", "2", moment="wait/shown/50")
    moment_of(process)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.5)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    wait_until_gone(process.pid)


def test_workers_end_with_a_driver_that_is_killed_and_the_run_is_resumed(whole: Run, other: Run) -> None:
    process = other.start("--workers", "2", moment="say/shown/50")
    moment_of(process)
    process.kill()
    other.end(process, code=-signal.SIGKILL)
    again = other.last_calls(_AHEAD)
    other.go("--workers", "2")
    other.assert_same(whole, again)


def test_a_run_goes_on_with_another_number_of_workers_or_none(whole: Run, other: Run) -> None:
    again: Counter[str] = Counter()
    for means, moment in ((("--workers", "3"), 30), ((), 100), (("--workers", "1"), 100)):
        process = other.start(*means, moment=f"say/shown/{moment}")
        moment_of(process)
        os.killpg(process.pid, signal.SIGINT)
        other.end(process, code=130)
        (other.folder.parent / f"{other.folder.name}.log.moment").unlink()
    other.go("--workers", "2")
    other.assert_same(whole, again)


def test_a_worker_whose_model_fails_ends_the_run_with_the_models_error(whole: Run, other: Run) -> None:
    said = " ".join(other.go("--workers", "2", moment="fail/shown/30", code=2).split())
    assert re.match(
        r"error: the model failed on images of shape \(\d, 3, 8, 8\): OSError: the network has gone out", said
    )
    again = other.last_calls(_AHEAD)
    other.go("--workers", "2")
    other.assert_same(whole, again)


def test_a_model_that_is_an_object_is_refused_with_workers() -> None:
    with pytest.raises(InputError, match=r"each worker opens the model by its name.*got an object \(function\)"):
        parsimon.attack(linear, IMAGES, LABELS, 0.02, workers=2)


@pytest.mark.parametrize("workers", [0, -1, 1.5])
def test_a_number_of_workers_that_cannot_be_is_refused(workers: Any) -> None:
    with pytest.raises(InputError, match="workers must be a whole number, at least 1"):
        parsimon.attack("robust", IMAGES, LABELS, 0.02, workers=workers)


def test_a_cluster_without_ray_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from parsimon.workers import crew_for\n"
        "from parsimon import MissingExtraError\n"
        "try: crew_for('robust', None, 'local')\n"
        "except MissingExtraError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'parsimon[ray]'" in run.stdout


def test_few_images_in_python(bundled: Any) -> None:
    def attack(workers: int | None) -> Any:
        return parsimon.attack("robust", bundled.images, bundled.labels, 8 / 255, budget=50, workers=workers)

    assert attack(2).outcomes == attack(None).outcomes

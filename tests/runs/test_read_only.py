"""A closed run can be read without changing its folder; while it is written, others can read it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from parsimon import runs
from parsimon.core.types import JournalEntry, Outcome
from parsimon.errors import StoreError
from parsimon.runs.store import Store, is_written
from stored_runs import OLD, described

IMAGES = np.zeros((200, 3, 4, 4), np.float32)


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def mode_of(folder: Path) -> str:
    """Return the journal mode in the header of a file: 1 is a rollback journal, 2 a write-ahead log."""
    return {1: "delete", 2: "wal"}[(folder / "run.sqlite").read_bytes()[18]]


@pytest.mark.parametrize("name", ["finished", "interrupted"])
def test_a_closed_run_is_read_without_changing_its_folder(made: Path, name: str) -> None:
    folder = made / name
    assert mode_of(folder) == "delete"
    before = state(folder)
    assert not [file for file in before if file.endswith(("-wal", "-shm", "-journal"))]
    runs.load(folder)
    assert not is_written(folder)
    assert state(folder) == before
    with closing(sqlite3.connect(f"{(folder / 'run.sqlite').as_uri()}?mode=ro", uri=True)) as database:
        assert database.execute("PRAGMA journal_mode").fetchall() == [("delete",)]


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder that not even root can write, with an old run in WAL mode."""
    source, mounted = tmp_path / "source", tmp_path / "mounted"
    shutil.copytree(OLD / "finished", source)
    mounted.mkdir()
    for command in (["mount", "--bind", source, mounted], ["mount", "-o", "remount,ro,bind", mounted]):
        if subprocess.run([str(word) for word in command], capture_output=True, check=False).returncode:
            subprocess.run(["umount", str(mounted)], capture_output=True, check=False)
            pytest.skip("this user may not mount folders")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def test_a_run_is_read_from_a_medium_that_cannot_be_written(
    made: Path, unwritable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    monkeypatch.syspath_prepend(made)
    source = unwritable.parent / "source"
    for folder in (OLD / "finished", made / "finished"):
        shutil.copy(folder / "run.sqlite", source)
        shutil.copy(folder / "spec.toml", source)
        assert described(runs.load(unwritable)) == described(runs.load(folder))
        with pytest.raises(StoreError, match="may be read and written") as raised:
            Store(unwritable, (), write=True)
        assert "another process" not in str(raised.value)


WRITER = """
import sys, os, signal
from pathlib import Path
import numpy as np
from parsimon.core.types import Outcome
from parsimon.runs.store import Store

with Store(Path(sys.argv[1]), np.zeros((200, 3, 4, 4), np.float32), write=True) as store:
    for number in range(20):
        store.save("attack", [Outcome(number, False, 7, "budget")], [], number)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_file_of_a_killed_writer_can_be_read_and_is_repaired(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WRITER, str(tmp_path)], check=False)
    assert (tmp_path / "run.sqlite-wal").stat().st_size > 0
    assert not is_written(tmp_path)
    with Store(tmp_path, IMAGES) as store:
        assert sorted(store.outcomes("attack")) == list(range(20))
    with Store(tmp_path, IMAGES, write=True) as store:
        assert sorted(store.outcomes("attack")) == list(range(20))
    assert mode_of(tmp_path) == "delete"
    assert not (tmp_path / "run.sqlite-wal").exists()


def test_readers_and_repeated_writers_do_not_disturb_each_other(tmp_path: Path) -> None:
    with Store(tmp_path, IMAGES, write=True):
        pass
    done, failures, most = threading.Event(), [], 0

    def read() -> None:
        nonlocal most
        while not done.is_set():
            try:
                with Store(tmp_path, IMAGES) as store:
                    store.verify()
                    most = max(most, len(store.ended_after(0)), len(store.outcomes("attack")))
                    assert store.journal("attack").keys() <= {199}
            except BaseException as error:
                failures.append(error)
                raise
            done.wait(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    for life in range(10):
        with Store(tmp_path, IMAGES, write=True) as store:
            for number in range(10 * life, 10 * life + 10):
                entry = JournalEntry(199, np.ones(3), None, 1, 1, 1)
                store.save("attack", [Outcome(number, False, 7, "budget", out_of_range=2)], [entry], number)
    done.set()
    reader.join()
    assert failures == []
    assert most > 0
    with Store(tmp_path, IMAGES, write=True) as store:
        store.finish("attack")
        assert {outcome.out_of_range for outcome in store.outcomes("attack").values()} == {2}
    assert mode_of(tmp_path) == "delete"
    with Store(tmp_path, IMAGES) as store:
        assert len(store.ended_after(0)) == 100
        assert store.journal("attack") == {}


# A process whose children write a run in turn. Each is killed one statement later than the one before.
KILLED = """
import os, shutil, signal, sqlite3, sys
from pathlib import Path
import numpy as np
from parsimon.core.types import Outcome, JournalEntry
from parsimon.runs.store import Store, is_written

folder, images, connect = Path(sys.argv[1]), np.zeros((200, 3, 4, 4), np.float32), sqlite3.connect

def live(statements):
    def count(_):
        nonlocal statements
        statements -= 1
        if statements < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(*arguments, **settings):
        connection = connect(*arguments, **settings)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = watched
    with Store(folder, images, write=True) as store:
        for number in range(2):
            entry = JournalEntry(9, np.ones(1), None, 0, 0)
            store.save("attack", [Outcome(number, False, 7, "budget")], [entry], number)
        store.finish("attack")

killed = 0
while True:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    child = os.fork()
    if child == 0:
        live(killed)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
    killed += 1
    assert not is_written(folder)
    with Store(folder, images, write=True) as store:  # a new file, if the writer was killed before creating it
        ended, journal = store.ended_after(0), store.journal("attack")
    with Store(folder, images) as store:
        store.verify()
        assert [outcome.index for _, _, outcome in ended] == list(range(len(ended)))
        assert [len(each.loss) for each in journal.values()] in ([], [len(ended)]), (ended, journal)
        assert store.ended_after(0) == ended
print(killed)
"""


def test_a_writer_can_be_killed_before_any_statement(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 30

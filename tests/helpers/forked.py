"""The command in processes that are forked from one that has imported everything: they start at once.

They are processes of their own, so they can be killed. Workers that they start are spawned as always.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

_PRELOADED = ["onnxruntime", "parsimon.cli.commands", "scipy.stats", "torch"]
_TIMEOUT = 100  # seconds


class Ran(NamedTuple):
    """The end of a process."""

    returncode: int | None  # minus the number of the signal that killed it
    stdout: str
    stderr: str


def run(folder: Path, *arguments: str, writes: int | None = None) -> Ran:
    """Run the command in a folder, whose modules it can import. After so many writes to a run file, it is killed."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with TemporaryDirectory() as said:
        process = context.Process(target=_command, args=(folder, arguments, Path(said), writes))
        process.start()
        process.join(_TIMEOUT)
        if process.exitcode is None:
            process.kill()
            process.join()
        return Ran(process.exitcode, *((Path(said) / name).read_text() for name in ("stdout", "stderr")))


def _command(folder: Path, arguments: tuple[str, ...], said: Path, writes: int | None) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(said / name, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)  # for workers
    sys.path.insert(0, str(folder))
    sys.argv = ["parsimon", *arguments]
    if writes is not None:
        _die_after(writes)
    from parsimon.cli import main

    main()


def _die_after(writes: int) -> None:
    from parsimon.runs.store import Store

    save, left = Store.save, [writes]

    def save_and_die(self: Store, *arguments: Any, **named: Any) -> None:
        save(self, *arguments, **named)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    Store.save = save_and_die  # type: ignore[method-assign]

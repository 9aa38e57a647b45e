"""Workers as processes on this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Self

from parsimon.core.engine import SWITCH_SECONDS
from parsimon.models import keep_freed_memory
from parsimon.runs.workers.driver import Lost
from parsimon.runs.workers.worker import Report, Request, Worker

_SECONDS_TO_LEAVE = 5


class Processes:
    """A crew of processes, each with a pipe to this one. They end when this one does, however it ends.

    Threads read and write the pipes: a process that is stopped in the middle of a message must not stop this one.
    """

    def __init__(self, model: str | Path, count: int) -> None:
        self._model, self._count = model, count
        self._requests: dict[int, SimpleQueue[memoryview | None]] = {}  # of each worker that is not lost; None: no more
        self._processes: dict[int, SpawnProcess] = {}
        self._answers: SimpleQueue[tuple[int, Report | None]] = SimpleQueue()  # None: the worker is gone

    def __enter__(self) -> Self:
        # Not forked: a model's framework has threads, which a fork would leave behind in any state.
        context = get_context("spawn")
        with _alone_with_the_processor(), _deaf_to_interrupts():
            for worker in range(1, self._count + 1):
                pipe, theirs = context.Pipe()
                self._processes[worker] = context.Process(target=_work, args=(theirs, self._model), daemon=True)
                self._processes[worker].start()
                theirs.close()  # or the end of the process would not be seen
                self._requests[worker] = SimpleQueue()
                threading.Thread(target=_write, args=(pipe, self._requests[worker]), daemon=True).start()
                threading.Thread(target=self._listen, args=(worker, pipe), daemon=True).start()
        return self

    @property
    def workers(self) -> Collection[int]:
        return list(self._requests)

    def ask(self, worker: int, request: Request) -> None:
        self._requests[worker].put(ForkingPickler.dumps(request))

    def answers(self, timeout: float) -> Iterator[tuple[int, Report | Lost]]:
        come: list[tuple[int, Report | None]] = []
        with suppress(Empty):
            come.append(self._answers.get(timeout=timeout))
            while True:
                come.append(self._answers.get_nowait())
        for worker, answer in come:
            if worker not in self._requests:  # it was dismissed
                continue
            if answer is not None:
                yield worker, answer
            else:
                self._requests.pop(worker).put(None)
                process = self._processes[worker]
                process.join(_SECONDS_TO_LEAVE)
                yield worker, Lost(_ending(process.exitcode))

    def dismiss(self, worker: int) -> None:
        self._requests.pop(worker).put(None)
        self._processes[worker].kill()

    def _listen(self, worker: int, pipe: Connection) -> None:
        """Collect what a worker answers, until it is gone."""
        with suppress(EOFError, OSError):
            while True:
                self._answers.put((worker, pipe.recv()))
        self._answers.put((worker, None))

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        for requests in self._requests.values():
            requests.put(None)
        deadline = time.monotonic() + (_SECONDS_TO_LEAVE if error is None else 0)
        for process in self._processes.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _write(pipe: Connection, requests: SimpleQueue[memoryview | None]) -> None:
    """Send requests to a worker, and at last that there will be no more."""
    with suppress(OSError):  # of a process that is gone, as its pipe tells who listens to it
        while (request := requests.get()) is not None:
            pipe.send_bytes(request)
        pipe.send(None)


def _work(pipe: Connection, model: str | Path) -> None:
    """What a worker's process does."""
    keep_freed_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    worker = Worker(model)
    requests: SimpleQueue[Request | None] = SimpleQueue()
    # Read beside the work: if this end read only between answers, a large answer and a large request could wait for
    # each other forever.
    threading.Thread(target=_read, args=(pipe, requests), daemon=True).start()
    with suppress(OSError):  # the driver is gone
        while (request := requests.get()) is not None:
            pipe.send(worker.answer(request))


def _read(pipe: Connection, requests: SimpleQueue[Request | None]) -> None:
    with suppress(EOFError, OSError):
        while True:
            requests.put(pipe.recv())  # None: there will be no more
    requests.put(None)


def _ending(code: int | None) -> str:
    if code is None:
        return "it closed its pipe"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


@contextmanager
def _alone_with_the_processor() -> Iterator[None]:
    """Processes begun here compute with one thread each, unless the user wants it otherwise."""
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes begun here do not see Ctrl-C, which a terminal sends to all: the driver tells them what to do."""
    resource_tracker.ensure_running()  # or the first process to begin would start it, which lets signals in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

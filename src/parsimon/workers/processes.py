"""Workers as processes on this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue
from typing import Self

from parsimon.workers.driver import Lost
from parsimon.workers.worker import Report, Request, Worker

_SECONDS_TO_LEAVE = 5


class Processes:
    """A crew of processes, each with a pipe to this one. They end when this one does, however it ends."""

    def __init__(self, model: str | Path, count: int) -> None:
        self._model, self._count = model, count
        self._pipes: dict[int, Connection] = {}
        self._processes: dict[int, SpawnProcess] = {}

    def __enter__(self) -> Self:
        # Not forked: a model's framework has threads, which a fork would leave behind in any state.
        context = get_context("spawn")
        with _alone_with_the_processor(), _deaf_to_interrupts():
            for worker in range(1, self._count + 1):
                self._pipes[worker], theirs = context.Pipe()
                self._processes[worker] = context.Process(target=_work, args=(theirs, self._model), daemon=True)
                self._processes[worker].start()
                theirs.close()  # or the end of the process would not be seen
        return self

    @property
    def workers(self) -> Collection[int]:
        return list(self._pipes)

    def ask(self, worker: int, request: Request) -> None:
        with suppress(OSError):  # of a process that is gone, as will be seen below
            self._pipes[worker].send(request)

    def answers(self) -> Iterator[tuple[int, Report | Lost]]:
        ready = connection.wait(self._pipes.values())
        for worker in [worker for worker, pipe in self._pipes.items() if pipe in ready]:
            try:
                yield worker, self._pipes[worker].recv()
            except (EOFError, OSError):
                self._pipes.pop(worker).close()
                process = self._processes[worker]
                process.join(_SECONDS_TO_LEAVE)
                yield worker, Lost(_ending(process.exitcode))

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        for pipe in self._pipes.values():
            pipe.close()
        for process in self._processes.values():
            process.join(_SECONDS_TO_LEAVE if error is None else 0)
            if process.is_alive():
                process.kill()
                process.join()


def _work(pipe: Connection, model: str | Path) -> None:
    """What a worker's process does."""
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
            requests.put(pipe.recv())
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

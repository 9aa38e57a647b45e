"""Workers as processes on this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

from parsimon.core.engine import SWITCH_SECONDS
from parsimon.core.threat import Scores
from parsimon.models import keep_freed_memory
from parsimon.runs.workers.driver import Lost
from parsimon.runs.workers.worker import Report, Request, Worker

_EXIT_TIMEOUT = 5  # seconds


class Processes:
    """A pool of processes with a pipe each. They end when this process ends, even if it is killed.

    Threads read and write the pipes, so that a process that hangs in the middle of a message does not block this one.
    """

    def __init__(
        self, model: str | Path, count: int, defences: Sequence[str] = (), returns: Scores | None = None
    ) -> None:
        self._count, self._about = count, (model, defences, returns)  # as for `Worker`
        self._requests: dict[int, SimpleQueue[memoryview | None]] = {}  # by worker that is not lost; None ends it
        self._processes: dict[int, SpawnProcess] = {}
        self._reports: SimpleQueue[tuple[int, Report | None]] = SimpleQueue()  # None: the worker has ended

    def __enter__(self) -> Self:
        # Spawned, not forked: the threads of a model's framework do not survive a fork.
        context = get_context("spawn")
        with _single_threaded(), _ignoring_interrupts():
            for worker in range(1, self._count + 1):
                pipe, other_end = context.Pipe()
                self._processes[worker] = context.Process(target=_work, args=(other_end, *self._about), daemon=True)
                self._processes[worker].start()
                other_end.close()  # otherwise the end of the process would not be noticed
                self._requests[worker] = SimpleQueue()
                _start_thread(_write, pipe, self._requests[worker])
                _start_thread(self._listen, worker, pipe)
        return self

    @property
    def workers(self) -> Collection[int]:
        return list(self._requests)

    def send(self, worker: int, request: Request) -> None:
        self._requests[worker].put(ForkingPickler.dumps(request))

    def receive(self, timeout: float) -> Iterator[tuple[int, Report | Lost]]:
        received: list[tuple[int, Report | None]] = []
        with suppress(Empty):
            received.append(self._reports.get(timeout=timeout))
            while True:
                received.append(self._reports.get_nowait())
        for worker, report in received:
            if worker not in self._requests:  # it was dismissed
                continue
            if report is not None:
                yield worker, report
            else:
                self._requests.pop(worker).put(None)
                process = self._processes[worker]
                process.join(_EXIT_TIMEOUT)
                yield worker, Lost(_exit_reason(process.exitcode))

    def dismiss(self, worker: int) -> None:
        self._requests.pop(worker).put(None)
        self._processes[worker].kill()

    def _listen(self, worker: int, pipe: Connection) -> None:
        """Collect the reports of a worker until it ends."""
        with suppress(EOFError, OSError):
            while True:
                self._reports.put((worker, pipe.recv()))
        self._reports.put((worker, None))

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        for requests in self._requests.values():
            requests.put(None)
        deadline = time.monotonic() + (_EXIT_TIMEOUT if error is None else 0)
        for process in self._processes.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _start_thread(target: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()


def _write(pipe: Connection, requests: SimpleQueue[memoryview | None]) -> None:
    """Send requests to a worker, and finally None."""
    with suppress(OSError):  # the process has ended; `_listen` notices that too
        while (request := requests.get()) is not None:
            pipe.send_bytes(request)
        pipe.send(None)


def _work(pipe: Connection, model: str | Path, defences: Sequence[str], returns: Scores | None) -> None:
    """Handle requests in a worker's process until there are no more."""
    keep_freed_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    worker = Worker(model, defences, returns)
    requests: SimpleQueue[Request | None] = SimpleQueue()
    # In a thread: otherwise a large report and a large request could wait for each other forever.
    _start_thread(_read, pipe, requests)
    with suppress(OSError):  # the driver has ended
        while (request := requests.get()) is not None:
            pipe.send(worker.handle(request))


def _read(pipe: Connection, requests: SimpleQueue[Request | None]) -> None:
    with suppress(EOFError, OSError):
        while True:
            requests.put(pipe.recv())
    requests.put(None)


def _exit_reason(code: int | None) -> str:
    if code is None:
        return "it closed its pipe"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Let processes that start here compute with one thread, unless the user has chosen a number."""
    chosen = "OMP_NUM_THREADS" in os.environ
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        yield
    finally:
        if not chosen:
            del os.environ["OMP_NUM_THREADS"]


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Let processes that start here ignore Ctrl-C, which a terminal sends to all: the driver stops them."""
    resource_tracker.ensure_running()  # otherwise the first process would start it, which unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

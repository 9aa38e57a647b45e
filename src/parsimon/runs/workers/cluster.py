"""Workers as actors on the nodes of a Ray cluster: one per GPU, or one per core if there are no GPUs."""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from parsimon.core.threat import Scores
from parsimon.errors import InputError, WorkerError, first_line, require
from parsimon.models import keep_freed_memory
from parsimon.runs.workers.driver import Lost
from parsimon.runs.workers.worker import Report, Request, Worker

_CONNECT_TIMEOUT = 10  # seconds


class Cluster:
    """A pool of Ray actors. A cluster or a connection that existed before is left as it was."""

    def __init__(
        self,
        model: str | Path,
        count: int | None,
        address: str,
        defences: Sequence[str] = (),
        returns: Scores | None = None,
    ) -> None:
        self._ray: Any = require("ray", "ray")
        self._connects = not self._ray.is_initialized()
        self._model, self._count, self._address = model, count, address
        self._defended = defences, returns  # as for `Worker`
        self._actors: dict[int, Any] = {}
        self._pending: dict[int, deque[Any]] = {}

    def __enter__(self) -> Self:
        if self._connects:
            self._connect()
        resources = self._ray.cluster_resources()
        device = "GPU" if resources.get("GPU") else "CPU"
        available = int(resources.get(device, 0))
        count = self._count or available
        if count > available:
            self.__exit__()
            raise InputError(
                f"{count} workers need one {device} each, and the cluster at {self._address} has {available}: "
                "use fewer workers, or add nodes"
            )
        # No restarts: a new actor would not know its images, and the driver assigns those to the other workers.
        options = {"num_cpus": int(device == "CPU"), "num_gpus": int(device == "GPU"), "max_restarts": 0}
        actor = self._ray.remote(_Actor).options(**options)
        for worker in range(1, count + 1):
            self._actors[worker] = actor.remote(self._model, str(Path.cwd()), *self._defended)
            self._pending[worker] = deque()
        return self

    def _connect(self) -> None:
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if self._address == "local":
                self._ray.init("local", include_dashboard=False, num_cpus=self._count or os.cpu_count(), **quiet)
                return
            host, _, port = self._address.rpartition(":")
            if host and port.isdecimal():  # Ray takes minutes to notice that nothing listens there
                socket.create_connection((host, int(port)), _CONNECT_TIMEOUT).close()
            self._ray.init(self._address, **quiet)
        except Exception as error:  # Ray's errors have no common base class
            raise WorkerError(f"cannot connect to a Ray cluster at {self._address}: {first_line(error)}") from error

    @property
    def workers(self) -> Collection[int]:
        return list(self._actors)

    def send(self, worker: int, request: Request) -> None:
        self._pending[worker].append(self._actors[worker].handle.remote(request))

    def receive(self, timeout: float) -> Iterator[tuple[int, Report | Lost]]:
        first = {pending[0]: worker for worker, pending in self._pending.items() if pending}
        if not first:
            return
        self._ray.wait(list(first), timeout=timeout)
        ready, _ = self._ray.wait(list(first), num_returns=len(first), timeout=0)  # all that have arrived, not just one
        for reference in ready:
            worker = first[reference]
            try:
                report: Report | Lost = self._ray.get(reference)
                self._pending[worker].popleft()
            except self._ray.exceptions.RayError as error:
                report = Lost(first_line(error))
                self.dismiss(worker)
            yield worker, report

    def dismiss(self, worker: int) -> None:
        # An actor that is only unreachable must not continue images that others have taken over.
        self._ray.kill(self._actors.pop(worker))
        del self._pending[worker]

    def __exit__(self, *_: object) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        if self._connects:
            self._ray.shutdown()


class _Actor(Worker):
    """A worker in the driver's folder, if that exists on its node: a model may be a file or a module there."""

    def __init__(
        self, model: str | Path, folder: str, defences: Sequence[str] = (), returns: Scores | None = None
    ) -> None:
        if Path(folder).is_dir():
            os.chdir(folder)
            sys.path.insert(0, folder)
        keep_freed_memory()
        super().__init__(model, defences, returns)

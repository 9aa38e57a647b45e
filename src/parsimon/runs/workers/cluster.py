"""Workers as actors on the nodes of a Ray cluster: one for each GPU, or for each core where there are none."""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Self

from parsimon.errors import InputError, WorkerError, first_line, require
from parsimon.models import keep_freed_memory
from parsimon.runs.workers.driver import Lost
from parsimon.runs.workers.worker import Report, Request, Worker

_SECONDS_TO_CONNECT = 10


class Cluster:
    """A crew of Ray actors. A cluster that was there before is left as it was, and so is a connection to it."""

    def __init__(self, model: str | Path, count: int | None, address: str) -> None:
        self._ray: Any = require("ray", "ray")
        self._connects = not self._ray.is_initialized()
        self._model, self._count, self._address = model, count, address
        self._actors: dict[int, Any] = {}
        self._unanswered: dict[int, deque[Any]] = {}

    def __enter__(self) -> Self:
        if self._connects:
            self._connect()
        have = self._ray.cluster_resources()
        device = "GPU" if have.get("GPU") else "CPU"
        count = self._count or int(have.get(device, 0))
        if count > have.get(device, 0):
            self.__exit__()
            raise InputError(
                f"{count} workers need a {device} each, and the cluster at {self._address} has "
                f"{int(have.get(device, 0))}: ask for fewer workers, or add nodes"
            )
        # A restarted actor would know nothing of its images: the driver hands them out anew, to those that are left.
        options = {"num_cpus": int(device == "CPU"), "num_gpus": int(device == "GPU"), "max_restarts": 0}
        actor = self._ray.remote(_Actor).options(**options)
        for worker in range(1, count + 1):
            self._actors[worker] = actor.remote(self._model, str(Path.cwd()))
            self._unanswered[worker] = deque()
        return self

    def _connect(self) -> None:
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if self._address == "local":
                self._ray.init("local", include_dashboard=False, num_cpus=self._count or os.cpu_count(), **quiet)
                return
            host, _, port = self._address.rpartition(":")
            if host and port.isdecimal():  # Ray itself takes minutes to see that nobody listens
                socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
            self._ray.init(self._address, **quiet)
        except Exception as error:  # Ray has no common base for these
            raise WorkerError(f"there is no Ray cluster to be had at {self._address}: {first_line(error)}") from error

    @property
    def workers(self) -> Collection[int]:
        return list(self._actors)

    def ask(self, worker: int, request: Request) -> None:
        self._unanswered[worker].append(self._actors[worker].answer.remote(request))

    def answers(self, timeout: float) -> Iterator[tuple[int, Report | Lost]]:
        first = {unanswered[0]: worker for worker, unanswered in self._unanswered.items() if unanswered}
        if not first:
            return
        self._ray.wait(list(first), timeout=timeout)
        ready, _ = self._ray.wait(list(first), num_returns=len(first), timeout=0)  # not the one, but all that have come
        for reference in ready:
            worker = first[reference]
            try:
                answer: Report | Lost = self._ray.get(reference)
                self._unanswered[worker].popleft()
            except self._ray.exceptions.RayError as error:
                answer = Lost(first_line(error))
                self.dismiss(worker)
            yield worker, answer

    def dismiss(self, worker: int) -> None:
        # One that is merely out of reach must not come back to images that others have taken over.
        self._ray.kill(self._actors.pop(worker))
        del self._unanswered[worker]

    def __exit__(self, *_: object) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        if self._connects:
            self._ray.shutdown()


class _Actor(Worker):
    """A worker in the driver's folder, where there is such a one: a model may be a file or a module in it."""

    def __init__(self, model: str | Path, folder: str) -> None:
        if Path(folder).is_dir():
            os.chdir(folder)
            sys.path.insert(0, folder)
        keep_freed_memory()
        super().__init__(model)

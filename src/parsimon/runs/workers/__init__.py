"""Workers that share one run: processes on this machine, or actors on the nodes of a Ray cluster.

- `driver`: hands out images, collects reports, and hands out again what a lost worker held;
- `worker`: a model and an engine, which advance by one model call per request;
- `processes`: workers as processes; `cluster`: workers as Ray actors.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from parsimon.errors import InputError, check_whole
from parsimon.runs.config import ExecutionOptions
from parsimon.runs.workers.driver import Driver, WorkerPool
from parsimon.runs.workers.processes import Processes
from parsimon.runs.workers.worker import EngineConfig

__all__ = ["Driver", "EngineConfig", "WorkerPool", "worker_pool"]

_MOST, _MOST_PER_CORE = 64, 4  # worker processes: this many, or so many per core if that is more


def worker_pool(model: Any, execution: ExecutionOptions) -> AbstractContextManager[WorkerPool | None]:
    """Return the workers that a run asks for, which start when entered; None: this process does the work."""
    workers, ray = execution.workers, execution.ray
    if workers is None and ray is None:
        return nullcontext()
    if workers is not None and ray in (None, "local"):
        cores = os.cpu_count() or 1
        why = f" on this machine of {cores} cores, since each worker is a process with a model of its own"
        check_whole("workers", workers, 1, max(_MOST, _MOST_PER_CORE * cores), why)
    if not isinstance(model, str | Path):
        raise InputError(
            "each worker opens the model by its name, so workers need the name of one: a network of the zoo, the path "
            f"of an ONNX file, or 'package.module:function'; got an object ({type(model).__name__})"
        )
    if ray is None:
        assert workers is not None, "one of the two is set"
        return Processes(model, workers)
    from parsimon.runs.workers.cluster import Cluster

    return Cluster(model, workers, ray)

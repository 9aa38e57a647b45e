"""Workers that share one run: processes on this machine, or actors on the nodes of a Ray cluster.

- `driver`: assigns images, collects reports, and assigns the images of a lost worker again;
- `worker`: a model and an engine, which make one model call per request;
- `processes`: workers as processes; `cluster`: workers as Ray actors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from parsimon.core.threat import Scores
from parsimon.errors import InputError, check_whole
from parsimon.runs.config import ExecutionOptions
from parsimon.runs.workers.driver import Driver, WorkerPool
from parsimon.runs.workers.processes import Processes
from parsimon.runs.workers.worker import EngineConfig

__all__ = ["Driver", "EngineConfig", "WorkerPool", "worker_pool"]

_MAX_WORKERS, _MAX_WORKERS_PER_CORE = 64, 4  # the larger limit applies


def worker_pool(
    model: Any, execution: ExecutionOptions, defences: Sequence[str] = (), returns: Scores | None = None
) -> AbstractContextManager[WorkerPool | None]:
    """Return the workers of a run, which start when entered, or a context of None if there are none.

    `returns` is what the model returns without its defences, if they must know it.
    """
    workers, ray = execution.workers, execution.ray
    if workers is None and ray is None:
        return nullcontext()
    if workers is not None and ray in (None, "local"):
        cores = os.cpu_count() or 1
        why = f" on this machine of {cores} cores, since each worker is a process with a model of its own"
        check_whole("workers", workers, 1, max(_MAX_WORKERS, _MAX_WORKERS_PER_CORE * cores), why)
    if not isinstance(model, str | Path):
        raise InputError(
            "each worker opens the model by its name, so workers need a name: a network of the zoo, the path of an "
            f"ONNX file, or 'package.module:function'; got an object ({type(model).__name__})"
        )
    if ray is None:
        assert workers is not None, "one of the two is set"
        return Processes(model, workers, defences, returns)
    from parsimon.runs.workers.cluster import Cluster

    return Cluster(model, workers, ray, defences, returns)

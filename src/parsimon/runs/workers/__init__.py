"""Many workers for one run: processes on this machine, or actors on the nodes of a Ray cluster.

- `driver`: hands out images one by one, collects reports, hands out again what a lost worker held;
- `worker`: an oracle and an engine, which go a model call further with each request;
- `processes`: workers as processes; `cluster`: as Ray actors.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from parsimon.errors import InputError
from parsimon.runs.settings import check_processes
from parsimon.runs.workers.driver import Driver, WorkerPool
from parsimon.runs.workers.processes import Processes
from parsimon.runs.workers.worker import EngineConfig

__all__ = ["Driver", "EngineConfig", "WorkerPool", "crew_for"]


def crew_for(model: Any, workers: int | None, ray: str | None) -> AbstractContextManager[WorkerPool | None]:
    """The workers that are asked for, which start when they are entered; None: this process does it all."""
    if workers is None and ray is None:
        return nullcontext()
    if workers is not None and ray in (None, "local"):
        check_processes(workers)
    if not isinstance(model, str | Path):
        raise InputError(
            "each worker opens the model by its name, so with workers the model must be one: a network of the zoo, the "
            f"path of an ONNX file, or 'package.module:function'; got an object ({type(model).__name__})"
        )
    if ray is None:
        assert workers is not None, "one of the two is asked for"
        return Processes(model, workers)
    from parsimon.runs.workers.cluster import Cluster

    return Cluster(model, workers, ray)

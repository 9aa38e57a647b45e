"""A run: its configuration, the checks before it, its execution, its store, and reading it back.

Imports everything below: attacks, models, data, results.
"""

from parsimon.runs.audit import verify
from parsimon.runs.stored import (
    StoredRun,
    classes_of,
    config_of,
    data_of,
    facts_of,
    identity,
    is_run,
    load,
    resume,
    run,
)

__all__ = [
    "StoredRun",
    "classes_of",
    "config_of",
    "data_of",
    "facts_of",
    "identity",
    "is_run",
    "load",
    "resume",
    "run",
    "verify",
]

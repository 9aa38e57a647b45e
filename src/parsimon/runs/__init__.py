"""A run: its configuration, the checks before it, its execution, its store, and reading it back.

Imports everything below: attacks, models, data, results.
"""

from parsimon.runs.audit import verify
from parsimon.runs.defences import assess_stored
from parsimon.runs.difference import diff
from parsimon.runs.evaluation import (
    EvaluationConfig,
    evaluate,
    evaluation_classes,
    is_evaluation,
    load_evaluation,
    resume_evaluation,
)
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
    "EvaluationConfig",
    "StoredRun",
    "assess_stored",
    "classes_of",
    "config_of",
    "data_of",
    "diff",
    "evaluate",
    "evaluation_classes",
    "facts_of",
    "identity",
    "is_evaluation",
    "is_run",
    "load",
    "load_evaluation",
    "resume",
    "resume_evaluation",
    "run",
    "verify",
]

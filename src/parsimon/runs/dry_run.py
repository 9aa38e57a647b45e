"""Estimate runs without attacking: open the model, classify the clean images, time a few batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from parsimon.attacks.registry import attack_rows
from parsimon.runs import stored
from parsimon.runs.config import RunConfig
from parsimon.runs.estimate import Estimate, time_queries
from parsimon.runs.evaluation import EvaluationConfig
from parsimon.runs.preparation import Inputs, prepare, validate


def estimate_run(config: RunConfig, *, radii: int = 1, needs_correct: bool = True) -> Estimate:
    """Return the most that a run can take. Its model is queried for the clean images and for the timing."""
    data = stored.data_of(config)
    attacks = attack_rows(config.attacks)
    job = validate(config, attacks, Inputs(config.model, data.images, data.labels, needs_correct=needs_correct))
    prepared = prepare(job)
    timed = (prepared.chosen or range(len(data.images)))[: job.batch_size]
    pixels = np.stack([np.asarray(data.images[index]) for index in timed])
    seconds = time_queries(job.model, pixels, job.batch_size)
    return Estimate.of(config, attacks, len(prepared.chosen), len(data.images), seconds, radii)


def estimate_evaluation(config: EvaluationConfig) -> list[Estimate]:
    """Return the most that the evaluation of each model can take, at all radii together."""
    settings: Any = {"radii": len(config.eps), "needs_correct": len(config.models) == 1}
    return [estimate_run(next(config.cells(model)), **settings) for model in config.models]

"""Prepare a run: validate its settings and inputs, and classify the clean images."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model
from parsimon.core.threat import Rounding, Scores, Threat
from parsimon.core.types import Attack, ImageSource
from parsimon.data.base import choose
from parsimon.data.validate import as_images, as_numpy, check_labels
from parsimon.errors import InputError, quote
from parsimon.results.result import CleanPredictions
from parsimon.runs import preflight
from parsimon.runs.builder import threat_for
from parsimon.runs.config import RunConfig
from parsimon.runs.diagnose import doubts
from parsimon.runs.inputs import open_defended
from parsimon.runs.score_kind import with_known_scores

CPU_BATCH = 64  # images
_ACCELERATOR_BATCH = 256
_MANY_DRAWS = 50_000  # of clean images; a run with as many announces them

_LOG = logging.getLogger("parsimon")


@dataclass(frozen=True)
class Inputs:
    """The objects that a run works on, as a user gives them.

    Attributes:
        model: A model, or the name of one; workers need the name.
        images: An array, or a sequence that reads images lazily.
        labels: The true classes, or `"predicted"`: what the model sees is taken as true.
        targets: A class per image, in place of the configuration's `targets`.
        rounding: How the ball's bounds are rounded, where a run that is resumed did it differently.
        excluded: Images that are not attacked, because their result is known.
        needs_correct: Refuse a model that classifies no image correctly; otherwise nothing is attacked.
    """

    model: Any
    images: Any
    labels: Any
    targets: Any = None
    rounding: Rounding = "inward"
    excluded: Collection[int] = ()
    needs_correct: bool = True


@dataclass(frozen=True)
class Job:
    """A run whose settings and inputs fit together."""

    config: RunConfig
    attacks: Mapping[str, Attack]
    model: Model
    images: ImageSource
    labels: NDArray[np.intp] | None  # None: what the model sees
    targets: Any
    threats: Mapping[str, Threat]
    batch_size: int
    excluded: frozenset[int]
    declared: Scores | None  # what the model returns, defences included; None: it is detected
    undefended: Scores | None  # what it returns without its defences, if they must know it
    needs_correct: bool

    @property
    def on_cpu(self) -> bool:
        return str(self.model.device) == "cpu"

    @property
    def any_threat(self) -> Threat:
        return next(iter(self.threats.values()))


def validate(config: RunConfig, attacks: Mapping[str, Attack], inputs: Inputs) -> Job:
    """Open the model and the images, and refuse what cannot be run before anything is computed."""
    targets = config.targets if inputs.targets is None else inputs.targets
    Threat(config.radius, eight_bit=config.eight_bit)  # before the model is opened, which may take long
    if str(config.eps).endswith("/256"):
        _LOG.warning("eps is %s, but pixels have 255 steps: did you mean %s5?", config.eps, str(config.eps)[:-1])
    model, declared = open_defended(inputs.model, config)
    images = as_images(inputs.images)
    preflight.check_random(model, attacks, stochastic=config.stochastic)
    batch_size = config.batch_size or (CPU_BATCH if str(model.device) == "cpu" else _ACCELERATOR_BATCH)
    # If nothing is declared, it is detected from the clean images; only a model of the top k classes is known before.
    scores: Scores = declared or model.returns or ("logits" if model.top is None else "probabilities")
    threats = {
        name: threat_for(attack, config, targeted=targets is not None, scores=scores, rounding=inputs.rounding)
        for name, attack in attacks.items()
    }
    preflight.check_until_budget(attacks, until_budget=config.until_budget)
    for name, threat in threats.items():
        preflight.check_answers(model, attacks[name], config.scores, stochastic=config.stochastic)
        preflight.check_threat(model, threat)
    predicted = isinstance(inputs.labels, str) and inputs.labels == "predicted"
    labels = None if predicted else check_labels(as_numpy(inputs.labels, "labels"), len(images))
    model, undefended = with_known_scores(model, images, next(iter(threats.values())), config.scores)
    about_scores, needs = (declared, undefended), inputs.needs_correct
    excluded = frozenset(inputs.excluded)
    return Job(config, attacks, model, images, labels, targets, threats, batch_size, excluded, *about_scores, needs)


@dataclass(frozen=True)
class Prepared:
    """The predictions on clean images, the images to attack, and the goal for each."""

    clean: CleanPredictions
    labels: NDArray[np.intp]
    goals: NDArray[np.intp]  # the class to leave, or to reach
    chosen: list[int]
    threats: Mapping[str, Threat]  # with the kind of scores that the model returns


def prepare(job: Job) -> Prepared:
    """Classify the clean images, and choose those to attack."""
    sampling = job.config.sampling
    if sampling is not None and len(job.images) * sampling.draws >= _MANY_DRAWS:
        _LOG.warning(
            "each of the %s clean images is drawn %s times first: fewer images or fewer --draws shorten that",
            f"{len(job.images):,}",
            sampling.draws,
        )
    clean = preflight.prepare(
        job.model,
        job.images,
        job.labels,
        job.any_threat,
        job.batch_size,
        declared=job.declared,
        seed=job.config.seed,
    )
    for attack in job.attacks.values():
        preflight.check_answers(job.model, attack, clean.kind, stochastic=job.config.stochastic)
    threats = {name: replace(threat, scores=clean.kind) for name, threat in job.threats.items()}
    labels = clean.predicted if job.labels is None else job.labels
    goals, attackable = labels, clean.correct
    if job.targets is not None:
        goals = goal_classes(job.targets, labels, clean)
        attackable = clean.correct & (goals != labels)
        if there := int((goals == labels).sum()):
            there_already = f"Images that were not attacked, since their target is their own class: {there:,}."
            clean = replace(clean, remarks=(*clean.remarks, there_already))
    if job.needs_correct or clean.correct.any():
        preflight.check_any(clean, attackable)
    else:
        clean = replace(clean, warnings=(*clean.warnings, _none_correct(job.config.model, len(labels))))
    found = doubts(job.model, job.images, job.labels, clean, job.any_threat)
    clean = replace(clean, warnings=(*clean.warnings, *(sentence for _, sentence in found)))
    count = None if job.config.images == "all" else job.config.images
    chosen = choose(attackable, count, job.config.sample).tolist()
    return Prepared(clean, labels, goals, [index for index in chosen if index not in job.excluded], threats)


def _none_correct(model: str, images: int) -> str:
    """Return a warning of a robust accuracy that may have another reason than the model."""
    return (
        f"{model} classifies none of the {images:,} images correctly, so its robust accuracy is 0 without an attack. "
        "Do labels belong to images, are classes numbered as the model numbers them, and does it expect images in "
        "[0, 1]?"
    )


def goal_classes(targets: Any, labels: NDArray[np.intp], clean: CleanPredictions) -> NDArray[np.intp]:
    """Return the class to reach for each image."""
    if not isinstance(targets, str):
        return preflight.check_targets(as_numpy(targets, "targets"), clean)
    classes = clean.classes
    if targets == "next":
        return (labels + 1) % classes
    if targets == "random":
        return np.array([_random_class(index, int(label), classes) for index, label in enumerate(labels)], np.intp)
    raise InputError(f"targets must be one class per image, or 'next' or 'random'; got {quote(targets)}")


def _random_class(index: int, label: int, classes: int) -> int:
    """Draw another class than the image's own as the paper's authors do: by the image's number alone."""
    rng = np.random.RandomState(index)
    while (target := int(rng.randint(classes))) == label:
        pass
    return target

"""Check images, labels and model before a run.

Every run passes through `prepare`. It reads and classifies each image once, and raises an error at the first problem.
`diagnose` finds what is doubtful but not invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.attacks import ATTACKS
from parsimon.core.model import ANSWER_LEVELS, Model
from parsimon.core.threat import Scores, Threat
from parsimon.core.types import Attack, ImageSource
from parsimon.data.validate import check_classes, check_count, check_labels
from parsimon.defences.base import undefended
from parsimon.errors import MOST, InputError, ModelError, NothingToAttackError, check_whole
from parsimon.models.top_k import check_top_k
from parsimon.results.result import CleanPredictions
from parsimon.runs.classify import check_shape, read
from parsimon.runs.predictions import DrawnPredictions, ExactPredictions, Predictions
from parsimon.runs.score_kind import ScoreKind

_NO_RANDOM_LABELS = "no attack fits a random model: let the model return its scores"
_KEPT_SCORES = 100_000  # numbers; a run stores the scores of its first clean images


def prepare(
    model: Model,
    images: ImageSource,
    labels: NDArray[np.intp] | None,
    threat: Threat,
    batch_size: int,
    *,
    declared: Scores | None = None,
    seed: int = 0,
) -> CleanPredictions:
    """Check every image and label, and classify the images. Without labels, every prediction counts as correct.

    `declared` is what the model is said to return; None: it is detected. A random model is drawn, with this seed.
    """
    check_whole("batch_size", batch_size, 1)
    check_count(len(images))
    kind = ScoreKind(model, declared)
    predictions: Predictions = (
        ExactPredictions(model, kind, batch_size, threat)
        if threat.sampling is None
        else DrawnPredictions(model, kind, batch_size, threat.sampling, seed)
    )
    shape: tuple[int, ...] | None = None
    kept: list[NDArray[np.float32]] = []
    for start in range(0, len(images), batch_size):
        pixels = read(images, start, batch_size, threat, shape)
        shape, numbers = pixels.shape[1:], range(start, start + len(pixels))
        if start == 0:
            check_shape(model, shape)
        scores = predictions.query(pixels, numbers)
        columns = scores.shape[1]
        if start * columns < _KEPT_SCORES:
            kept.append(scores[: -(-_KEPT_SCORES // columns) - start].astype(np.float32))
        if labels is not None:
            check_classes(labels[start : numbers.stop], columns if columns > 1 else MOST + 1, "labels", start)
        predictions.predict()
    kind.check()
    predicted = predictions.predicted
    truth = predicted if labels is None else labels
    classes = columns if columns > 1 else max(2, 1 + int(max(truth.max(), predicted.max())))
    return CleanPredictions(
        predicted=predicted,
        classes=classes,
        backend=model.backend,
        values=pixels[0].size,
        scores=np.concatenate(kept),
        fingerprint=model.fingerprint,
        runtime=model.runtime,
        kind=kind.found,
        **predictions.judge(truth),
    )


def check_any(clean: CleanPredictions, attackable: NDArray[np.bool_]) -> None:
    """Refuse a run without an image to attack."""
    if not clean.correct.any():
        raise NothingToAttackError(
            f"the model classifies none of the {len(attackable)} images correctly, so there is nothing to attack. "
            "Check that labels belong to images, that classes are numbered as the model numbers them, and "
            "that the model expects images in [0, 1] (a model that needs normalised images must normalise them itself)."
        )
    if not attackable.any():
        raise NothingToAttackError(f"the model already predicts the target of each of the {len(attackable)} images")


def check_targets(targets: Any, clean: CleanPredictions) -> NDArray[np.intp]:
    """Return one target class per image. A model that returns class numbers may have more than those that were seen."""
    classes = check_labels(targets, len(clean.predicted), "targets")
    check_classes(classes, clean.classes if clean.columns != 1 else MOST + 1, "targets")
    return classes


def check_threat(model: Model, threat: Threat) -> None:
    """Refuse a threat whose images the model does not take, or whose loss it does not give."""
    if model.eight_bit_only and not threat.eight_bit:
        raise InputError(
            "this model takes 8-bit pixels, so the pixels of every query must be k / 255: use 8-bit mode "
            "(eight_bit=True)",
            argument="eight_bit",
        )
    if model.top is not None:
        check_top_k(model.top, threat)


def check_random(model: Model, attacks: Mapping[str, Attack], *, stochastic: bool) -> None:
    """Refuse a model that says it is random, unless the run allows it, and attacks that cannot be sampled."""
    if model.random and not stochastic:
        raise ModelError("this model is random by design: allow that with stochastic=True")
    label_only = [name for name, attack in attacks.items() if attack.needs == "label"]
    if stochastic and label_only:
        raise InputError(
            f"{label_only[0]} is label-only, and label-only attacks cannot be run on a random model: their loss is a "
            "distance, which one draw decides. If the model returns scores, choose an attack that uses them, such as "
            f"thrift or square. If it returns only labels, {_NO_RANDOM_LABELS}",
            argument="attack",
        )


def check_answers(model: Model, attack: Attack, scores: Scores | None, *, stochastic: bool = False) -> None:
    """Refuse an attack that needs a higher level of response than the model gives.

    `scores` is what the model returns, as far as it is known: a model that returns labels gives nothing else.
    """
    needs, gives = attack.needs, "label" if scores == "labels" else model.gives
    if ANSWER_LEVELS.index(needs) <= ANSWER_LEVELS.index(gives):
        return
    name = type(attack).__name__
    if gives == "label":
        needed = "gradients" if needs == "gradient" else "scores"
        advice = _NO_RANDOM_LABELS if stochastic else f"choose a label-only attack: {_label_only()}"
        raise InputError(
            f"{name} needs {needed}, and this model returns only labels, one class per image. "
            f"{advice[0].upper()}{advice[1:]}",
            argument="attack",
        )
    if needs == "gradient" and undefended(model) is not model:
        raise ModelError(
            f"{name} is a white-box attack and needs gradients, which no model gives behind a defence that changes "
            "images or scores: leave out the attack or the defence"
        )
    if needs == "gradient":
        raise ModelError(
            f"{name} is a white-box attack and needs gradients, which this model does not give: pass a torch module, "
            "or an ONNX file by its path or its name in the zoo"
        )
    raise ModelError(
        f"{name} needs the {needs} of its queries; this model gives only the {gives}: choose another "
        "attack, or a model that gives more"
    )


def check_until_budget(attacks: Mapping[str, Attack], *, until_budget: bool) -> None:
    """Refuse `until_budget` where no attack looks for closer adversarial images."""
    if until_budget and not any(attack.needs == "label" for attack in attacks.values()):
        raise InputError(
            f"until_budget is for label-only attacks, and none of {', '.join(attacks)} is one. Leave it out, or choose "
            f"a label-only attack: {_label_only()}",
            argument="until_budget",
        )


def _label_only() -> str:
    return ", ".join(name for name, kind in ATTACKS.items() if kind.needs == "label")

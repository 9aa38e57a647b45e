"""Check images, labels and model before a run.

Every run passes through `prepare`, which reads and classifies each image once, and raises an error at the first
problem. `diagnose` has what is doubtful, and not wrong.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.attacks import ATTACKS
from parsimon.core.canvas import pad_batch
from parsimon.core.draws import Purpose, draw_keys
from parsimon.core.engine import scores_of
from parsimon.core.model import ANSWER_LEVELS, Keys, Model
from parsimon.core.threat import Scores, Threat, detect_scores, predicted_classes
from parsimon.core.types import Attack, ImageSource
from parsimon.data.validate import check_classes, check_count, check_image, check_labels
from parsimon.defences.base import needs_kind, told, undefended
from parsimon.errors import MOST, InputError, ModelError, NothingToAttackError, check_whole
from parsimon.models.top_k import check_top_k
from parsimon.results.result import CleanPredictions

_BATCH_COPIES = 4  # the least number of copies of a batch in memory at once
# Tolerances relative to the spread of the scores. Smaller differences are rounding: between two calls of one model,
# and between two machines or runtimes.
_SAME_CALL, _SAME_MODEL = 1e-4, 1e-3
_FEW_IMAGES, _MORE_IMAGES = 8, 64  # per batch in which kinds of scores are detected, at first and later
_ALLOW_RANDOM = "If the model is random by design, allow that with stochastic=True (--random)."
_NOT_RANDOM = (
    "The model gave the same scores twice. Is it random? (Torch modules are run in evaluation mode, "
    "where dropout layers do nothing.) If not, leave out stochastic (--random), which takes more queries."
)
_KEYED = "The defence draws from the seed: the same run gives the same results, also with other batches or resumed."
_OWN_RANDOMNESS = (
    "The model draws by itself: another run, another batch size or a resumed run sees other draws, so results vary."
)
_KEPT_SCORES = 100_000  # numbers; a run stores the scores of its first clean images


def prepare(
    model: Model,
    images: ImageSource,
    labels: NDArray[np.intp] | None,
    threat: Threat,
    batch_size: int,
    *,
    detect: bool = False,
    seed: int = 0,
) -> CleanPredictions:
    """Check every image and label, and classify the images. Without labels, every prediction counts as correct.

    With `detect`, the kind of the scores is detected instead of taken from the threat. A random model is drawn, with
    this seed.
    """
    check_whole("batch_size", batch_size, 1)
    check_count(len(images))
    predicted = np.empty(len(images), np.intp)
    confidence: list[NDArray[np.float64]] = []
    shape: tuple[int, ...] | None = None
    columns = 0
    kept: list[NDArray[np.float32]] = []
    drawn: list[NDArray[np.intp]] = []
    varies, repeatable = True, False
    kind = _ScoreKind(model, None if detect else threat.scores)
    for start in range(0, len(images), batch_size):
        pixels = read(images, start, batch_size, threat, shape)
        shape, stop = pixels.shape[1:], start + len(pixels)
        if start == 0:
            check_shape(model, shape)
        # Of a random model the first draw of each image, so that a resumed run can compare it.
        keys = None if threat.sampling is None else _clean_keys(seed, start, stop)(0)
        scores = classify(model, pixels, batch_size, columns or None, keys)
        columns = scores.shape[1]
        if start == 0 and threat.sampling is not None:
            distance = largest_difference(classify(model, pixels, batch_size, columns, keys), scores)
            varies = model.random or distance > 0
            # A defence draws from the keys alone, but the model behind it may have a randomness of its own.
            repeatable = model.random and distance <= _SAME_CALL * spread_of(scores)
        if kind.see(scores):
            threat = replace(threat, scores=kind.found)
            if threat.sampling is None:
                check_determinism(model, pixels, scores, threat.scores, batch_size)
                confidence = _one_hot_confidence(threat, start, columns)
        if start * columns < _KEPT_SCORES:
            kept.append(scores[: -(-_KEPT_SCORES // columns) - start].astype(np.float32))
        if labels is not None:
            check_classes(labels[start:stop], columns if columns > 1 else MOST + 1, "labels", start)
        if threat.sampling is not None:
            draws, numbers = threat.sampling.draws, _clean_keys(seed, start, stop)
            drawn.append(draw_classes(model, pixels, draws, numbers, batch_size))
            predicted[start:stop] = [np.bincount(each).argmax() for each in drawn[-1]]
            confidence.append((drawn[-1] == predicted[start:stop, None]).mean(axis=1))
            continue
        predicted[start:stop] = predicted_classes(scores)
        if (sure := threat.confidence(scores)) is not None:
            confidence.append(sure)
    kind.check()
    truth = predicted if labels is None else labels
    classes = columns if columns > 1 else max(2, 1 + int(max(truth.max(), predicted.max())))
    about_model = (np.concatenate(kept), model.fingerprint, model.runtime)
    shared = (np.concatenate(confidence) if confidence else None, model.backend, pixels[0].size, *about_model)
    clean = CleanPredictions(predicted, predicted == truth, classes, *shared, kind=threat.scores)
    if not drawn:
        return clean
    warnings = () if varies else (_NOT_RANDOM,)
    return replace(_with_errors(clean, np.concatenate(drawn), truth, repeatable=repeatable), warnings=warnings)


def _one_hot_confidence(threat: Threat, rows: int, columns: int) -> list[NDArray[np.float64]]:
    """Return the confidence of one-hot rows that came before the kind of the scores was known."""
    sure = threat.confidence(np.eye(columns)[:1])
    return [] if sure is None else [np.repeat(sure, rows)]


def _clean_keys(seed: int, start: int, stop: int) -> Callable[[int], Keys]:
    """Return a function from the number of a draw to its keys, one per clean image."""
    return partial(draw_keys, seed, range(start, stop), Purpose.CLEAN)


def _with_errors(
    clean: CleanPredictions, drawn: NDArray[np.intp], truth: NDArray[np.intp], *, repeatable: bool
) -> CleanPredictions:
    """Return the predictions of a random model: an image is correct unless most of its draws err."""
    errors, draws = (drawn != truth[:, None]).sum(axis=1), drawn.shape[1]
    remarks = (_KEYED if repeatable else _OWN_RANDOMNESS,)
    drawing = {"errors": errors, "draws": draws, "repeatable": repeatable}
    return replace(clean, correct=2 * errors <= draws, remarks=remarks, **drawing)


def draw_classes(
    model: Model, pixels: NDArray[np.float32], draws: int, keys: Callable[[int], Keys], batch_size: int
) -> NDArray[np.intp]:
    """Return the class of each draw of some images, at most a batch, in a row per image.

    `keys` returns one key per image for the number of a draw.
    """
    found = [predicted_classes(classify(model, pixels, batch_size, keys=keys(number))) for number in range(draws)]
    return np.stack(found, axis=1)


def read(
    images: ImageSource, start: int, batch_size: int, threat: Threat, shape: tuple[int, ...] | None = None
) -> NDArray[np.float32]:
    """Return a batch of checked images, which must have the shape of the images before them."""
    batch = []
    for index in range(start, min(start + batch_size, len(images))):
        batch.append(check_image(images[index], index, threat))
        shape = shape or batch[0].shape
        if batch[-1].shape != shape:
            raise InputError(
                f"all images must have one shape; image 0 has {shape}, image {index} has {batch[-1].shape}"
            )
    return np.stack(batch)


def check_batch(images: int, values: int) -> None:
    """Refuse a batch that cannot fit into memory."""
    if not hasattr(os, "sysconf"):  # Windows
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    size = np.dtype(np.float32).itemsize * images * values
    if _BATCH_COPIES * size > memory:
        sizes = f"{size / 2**30:,.1f} GiB, and this machine has {memory / 2**30:,.1f} GiB of memory"
        sentence = f"a batch of {images:,} images takes {sizes}: choose a smaller batch_size"
        raise InputError(sentence, argument="batch_size")


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


def classify(
    model: Model,
    pixels: NDArray[np.float32],
    batch_size: int,
    classes: int | None = None,
    keys: Keys | None = None,
) -> NDArray[Any]:
    """Return the scores of at most one batch of images, padded if the model needs a fixed batch.

    `classes` is the number of scores per image of earlier calls. A random model draws from the keys.
    """
    count = len(pixels)
    if model.fixed_batch:
        check_batch(batch_size, pixels[0].size)
    images = model.namespace.asarray(pixels.copy(), device=model.device)  # the model may write to its input
    if model.fixed_batch and count < batch_size:
        images = pad_batch(images, batch_size, model.namespace)
        keys = None if keys is None else np.resize(keys, (batch_size, keys.shape[1]))
    scores = scores_of(model, images, classes, keys)[:count]
    if not np.isfinite(scores).all():
        raise ModelError(
            "the model returned NaN or infinite scores for a clean image; a classifier must return numbers"
        )
    return scores


def check_targets(targets: Any, clean: CleanPredictions) -> NDArray[np.intp]:
    """Return one target class per image. A model that returns class numbers may have more than those that were seen."""
    classes = check_labels(targets, len(clean.predicted), "targets")
    check_classes(classes, clean.classes if clean.columns != 1 else MOST + 1, "targets")
    return classes


def check_shape(model: Model, shape: tuple[int, ...]) -> None:
    """Refuse images whose shape differs from the one that the model declares."""
    declared = model.image_shape
    if declared and any(side is not None and side != given for side, given in zip(declared, shape, strict=True)):
        wanted = ", ".join("any" if side is None else str(side) for side in declared)
        what_to_do = "resize them, channels first"
        if declared[2] == shape[0] and declared[0] != shape[0]:
            what_to_do = (
                "its channels come last, so wrap it in a Python function that transposes images to (0, 2, 3, 1)"
            )
        raise InputError(f"this model takes images of shape ({wanted}); got {shape}: {what_to_do}")


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
        raise ModelError("this model is random by design: allow that with stochastic=True (--random)")
    label_only = [name for name, attack in attacks.items() if attack.needs == "label"]
    if stochastic and label_only:
        raise InputError(
            f"{label_only[0]} is label-only, and label-only attacks cannot be run on a random model: their loss is a "
            "distance, which one draw decides. Choose an attack that uses scores, such as thrift or square. No attack "
            "fits a random model that returns only labels",
            argument="attack",
        )


def check_answers(model: Model, attack: Attack, scores: Scores | None) -> None:
    """Refuse an attack that needs a higher level of response than the model gives.

    `scores` is what the model returns, as far as it is known: a model that returns labels gives nothing else.
    """
    needs, gives = attack.needs, "label" if scores == "labels" else model.gives
    if ANSWER_LEVELS.index(needs) <= ANSWER_LEVELS.index(gives):
        return
    name = type(attack).__name__
    if gives == "label":
        needed = "gradients" if needs == "gradient" else "scores"
        raise InputError(
            f"{name} needs {needed}, and this model returns only labels, one class per image. Choose a label-only "
            f"attack: {_label_only()}",
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


class _ScoreKind:
    """What a model returns, found from one batch of clean images after another.

    One-hot rows are labels, or the scores of a saturated softmax. So the kind stays open while all rows are one-hot,
    unless labels are declared.

    Attributes:
        found: The kind that fits all scores so far.
        open: Whether further scores may change it.
    """

    def __init__(self, model: Model, declared: Scores | None) -> None:
        known = model.returns is not None and declared in (None, model.returns)
        self.found: Scores = (model.returns if known else None) or "logits"
        self.open = not known
        self._declared, self._columns, self._began = declared, 0, False
        self._best_class = declared == "labels" and model.top is not None  # of the most probable ones: a label

    def see(self, scores: NDArray[Any]) -> bool:
        """Take the scores of further images; return whether the kind is new."""
        before, first = self.found, not self._began
        self._began = True
        if self.open:
            self._columns = scores.shape[1]
            self.found = "labels" if self._best_class else detect_scores(scores)
            self.open = self.found == "labels" and self._columns > 1 and self._declared != "labels"
            if not self.open:
                self.check()
        return first or self.found != before

    def check(self) -> None:
        """Refuse a kind other than declared, whose loss would mislead the search."""
        if self._declared in (None, self.found):
            return
        reasons = {
            "labels": "one class number per image" if self._columns == 1 else "each row is one 1 and zeros",
            "probabilities": "rows sum to 1",
            "logits": "rows do not sum to 1, or have negative numbers",
        }
        what = f"the model returns {self.found} ({reasons[self.found]}), not {self._declared}"
        raise InputError(f"{what}: pass scores={self.found!r}", argument="scores")


def kind_of(model: Model, images: ImageSource, threat: Threat, declared: Scores | None = None) -> Scores:
    """Return what a model returns, detected from a few clean images, or from more while all rows are one-hot.

    The result depends neither on the batch size nor on other calls. Another kind than declared is refused.
    """
    check_count(len(images))
    kind = _ScoreKind(model, declared)
    start, size, shape = 0, _FEW_IMAGES, None
    while kind.open and start < len(images):
        pixels = read(images, start, size, threat, shape)
        shape = pixels.shape[1:]
        if start == 0:
            check_shape(model, shape)
        kind.see(classify(model, pixels, size))
        start, size = start + len(pixels), _MORE_IMAGES
    kind.check()
    return kind.found


def settled(
    model: Model, images: ImageSource, threat: Threat, declared: Scores | None = None
) -> tuple[Model, Scores | None]:
    """Return a model whose defences know what the model behind them returns, and what that is.

    `declared` is what the user says that it returns. The second is None if no defence has to know.
    """
    if not needs_kind(model):
        return model, None
    kind = kind_of(undefended(model), images, threat, declared)
    return told(model, kind), kind


def check_determinism(
    model: Model, pixels: NDArray[np.float32], scores: NDArray[Any], kind: Scores, batch_size: int
) -> None:
    """Refuse a model whose scores of the same images differ between two calls."""
    again = classify(model, pixels, batch_size, scores.shape[1])
    remedy = f"Switch off dropout and random preprocessing (model.eval()). {_ALLOW_RANDOM}"
    if kind == "labels":
        if differing := count_differing(again, scores):
            raise ModelError(
                f"the model gives the same images different classes from call to call: {differing} of {len(scores)} "
                f"differ. A search cannot rely on such labels. {remedy}"
            )
        return
    distance = largest_difference(again, scores)
    if distance > _SAME_CALL * spread_of(scores):
        raise ModelError(
            f"the model gives the same images different scores from call to call: they differ by up to "
            f"{distance:.3g}, where the scores of an image spread over {spread_of(scores):.3g}. A search cannot rely "
            f"on such scores. {remedy}"
        )


def spread_of(scores: NDArray[Any]) -> float:
    """Return the scale of the scores: the median distance from an image's median score to its best."""
    numbers = scores.astype(np.float64)
    return float(np.median(numbers.max(axis=1) - np.median(numbers, axis=1)))


def check_same_draws(before: CleanPredictions, now: CleanPredictions) -> None:
    """Refuse another random model than before, whose same draws err otherwise; rounding may change a few."""
    assert before.errors is not None, "only random models are drawn"
    assert now.errors is not None, "only random models are drawn"
    draws = before.draws * len(before.errors)
    differing = int(np.abs(before.errors - now.errors).sum())
    if before.draws != now.draws or differing > _SAME_MODEL * draws:
        raise InputError(
            f"this run was begun with another model: of {draws:,} draws of the clean images, {differing:,} err "
            "otherwise now, so continuing would mix the results of two models. Start a new run, or restore the model."
        )


def check_same_model(before: NDArray[np.float32], now: NDArray[np.float32]) -> None:
    """Refuse another model than before: the scores of the clean images must agree up to rounding."""
    distance = largest_difference(before, now) if before.shape == now.shape else math.inf
    if distance > _SAME_MODEL * spread_of(before):
        raise InputError(
            f"this run was begun with another model: the scores of the clean images differ by up to {distance:.3g}, "
            "so continuing would mix the results of two models. Start a new run, or restore the model."
        )


def largest_difference(left: NDArray[Any], right: NDArray[Any]) -> float:
    """Return the largest difference between two arrays of scores."""
    return float(np.abs(left.astype(np.float64) - right.astype(np.float64)).max())


def count_differing(left: NDArray[Any], right: NDArray[Any]) -> int:
    """Return the number of images whose predicted classes differ."""
    return int((predicted_classes(left) != predicted_classes(right)).sum())

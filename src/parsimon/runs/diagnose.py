"""Find what is doubtful about a model but not invalid: coarse scores, accuracy near chance, normalisation.

Every run carries the `doubts` as warnings. `inspect` is `parsimon check`: it lists everything it finds about a model,
good and bad.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model
from parsimon.core.threat import Scores, Threat, predicted_classes
from parsimon.core.types import ImageSource
from parsimon.errors import OutageError, ParsimonError
from parsimon.results.result import CleanPredictions
from parsimon.results.statistics import agresti_coull_interval
from parsimon.runs.classify import classify
from parsimon.runs.consistency import OtherBatch
from parsimon.runs.preflight import check_any, prepare
from parsimon.runs.same_model import count_differing, largest_difference

_TIMED_CALLS = 5
_LEAST_IMAGES = 10  # fewer say nothing about accuracy
_LEAST_SCORES = 5  # other than 0 and 1, which a saturated softmax returns, too
_ROUNDED_TO = (0, 1, 2, 3)  # decimals
_STEPS = 50  # of the number format per step of the decimals, or a score could lie near a decimal by chance
_FEW_VALUES, _REPEATED = 256, 4  # as many as 8 bits have, each four times on average
_TRIED_IMAGES = 64
# Normalisation is tried where accuracy leaves room, and reported where a sign test and the gain leave no doubt. With
# fewer images to gain than this, the test cannot reach its level.
_GAIN, _LEVEL, _LEAST_WRONG = 0.1, 0.001, 10
_NORMALISATIONS = {
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR-100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "MNIST": ((0.1307,), (0.3081,)),
}


def doubts(
    model: Model, images: ImageSource, labels: NDArray[np.intp] | None, clean: CleanPredictions, threat: Threat
) -> Iterator[tuple[str, str]]:
    """Yield the name and a sentence for each reason to doubt results that rest on these scores."""
    assert clean.scores is not None, "only predictions that were read from a run have no scores"
    if clean.kind != "labels" and (coarse := _coarse(clean.scores, few=model.top is None)):
        yield "precision", f"{coarse} Small changes of an image may leave them as they are, so attacks can stand still."
    if labels is None:
        return
    correct, count, chance = int(clean.correct.sum()), len(clean.correct), 1 / clean.classes
    if count >= _LEAST_IMAGES and agresti_coull_interval(correct, count)[0] <= chance:
        found = f"Clean accuracy is {clean.accuracy:.1%}, not significantly above the {chance:.1%} of guessing."
        yield "guessing", f"{found} Do labels belong to images, and does the model expect images in [0, 1]?"
    local = model.traffic is None and not (model.eight_bit_only or threat.eight_bit)
    room = int((~clean.correct[:_TRIED_IMAGES]).sum()) >= _LEAST_WRONG
    if local and room and (better := _normalised(model, images, labels, clean)):
        yield "normalisation", better


def _coarse(scores: NDArray[np.float32], *, few: bool) -> str | None:
    """Return a sentence on scores of few values, or None. Images that occur twice count once."""
    different = np.unique(scores, axis=0).astype(np.float64)
    inner = different[(different != 0) & (different != 1)]
    if len(inner) < _LEAST_SCORES:
        return None
    if (decimals := _rounded_to(inner)) is not None:
        return f"The model's scores are rounded to {decimals} decimal{'' if decimals == 1 else 's'}."
    values = len(np.unique(inner))
    if few and values <= _FEW_VALUES and values * _REPEATED <= len(inner):
        return f"The model's scores of the first {len(scores):,} images take only {values:,} different values."
    return None


def _rounded_to(scores: NDArray[np.float64]) -> int | None:
    """Return the number of decimals that all scores have, up to the precision of their number format; None: many.

    Scores below that precision are not rounded: a rounded one would be 0. Saturated ones come as close to 0 and 1.
    """
    with np.errstate(over="ignore"):
        half = np.array_equal(scores, scores.astype(np.float16))
    spacing = np.spacing(np.abs(scores).astype(np.float16 if half else np.float32)).astype(np.float64)
    for decimals in _ROUNDED_TO:
        rounded = scores.round(decimals)
        telling = np.count_nonzero(_STEPS * spacing <= 10.0**-decimals)
        if telling >= _LEAST_SCORES and (rounded != 0).all() and (np.abs(scores - rounded) <= 2 * spacing).all():
            return decimals
    return None


def _normalised(model: Model, images: ImageSource, labels: NDArray[np.intp], clean: CleanPredictions) -> str | None:
    """Return a sentence on the normalisation under which the model is clearly better, or None."""
    count = min(len(images), _TRIED_IMAGES)
    pixels = np.stack([np.asarray(images[index], np.float32) for index in range(count)])
    before = clean.correct[:count]
    found: dict[str, NDArray[np.bool_]] = {}
    channels = pixels.shape[1]
    for name, (mean, deviation) in {**_NORMALISATIONS, "0.5": ((0.5,) * channels, (0.5,) * channels)}.items():
        if len(mean) != channels:
            continue
        shift, scale = (np.array(each, np.float32).reshape(-1, 1, 1) for each in (mean, deviation))
        try:
            scores = classify(model, (pixels - shift) / scale, count, clean.columns)
        except Exception:  # the model may refuse pixels outside [0, 1], in any way
            continue
        found[name] = predicted_classes(scores) == labels[:count]
    best = max(found, key=lambda name: int(found[name].sum()), default=None)
    if best is None or not _clearly_better(before, found[best]):
        return None
    known = f"{best}'s mean and standard deviation" if best in _NORMALISATIONS else "mean and standard deviation 0.5"
    return (
        f"On the first {count} images accuracy is {before.mean():.1%}, but {found[best].mean():.1%} if they are "
        f"normalised with {known}. If the model expects that, let it normalise its input "
        "itself."
    )


def _clearly_better(before: NDArray[np.bool_], after: NDArray[np.bool_]) -> bool:
    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    tail = sum(math.comb(gained + lost, more) for more in range(gained, gained + lost + 1)) / 2 ** (gained + lost)
    return gained - lost >= _GAIN * len(before) and tail < _LEVEL


@dataclass(frozen=True)
class Finding:
    """One result of `parsimon check`."""

    name: str
    verdict: Literal["ok", "note", "error"]
    sentence: str
    argument: str | None = None  # the setting at fault


def inspect(
    model: Model,
    images: ImageSource,
    labels: NDArray[np.intp] | None,
    threat: Threat,
    batch_size: int,
    *,
    declared: Scores | None = None,
) -> Iterator[Finding]:
    """Yield everything that can be found out about a model before it is attacked; an error ends the list.

    `declared` is what the model is said to return; None: it is detected.
    """
    try:
        clean = prepare(model, images, labels, threat, batch_size, declared=declared)
        check_any(clean, clean.correct)
        pixels = np.stack([images[index] for index in range(min(len(images), batch_size))])
        yield Finding("images", "ok", f"{len(images)} of shape {pixels.shape[1:]}, float32 in [0, 1]")
        yield Finding("scores", "ok", _described(clean))
        if threat.sampling is None:
            yield from _stability(model, pixels, clean.kind, batch_size)
        else:
            yield _randomness(clean)
        if clean.backend is not None:
            yield Finding("speed", "ok", _speed(model, clean.backend, pixels, batch_size))
        yield _accuracy(clean)
        for name, doubt in doubts(model, images, labels, clean, threat):
            yield Finding(name, "note", doubt)
    except OutageError:  # says nothing about the model
        raise
    except ParsimonError as error:
        yield Finding("images, labels, model", "error", str(error), error.argument)


def _described(clean: CleanPredictions) -> str:
    if clean.kind == "labels":
        form = "class numbers" if clean.columns == 1 else f"one-hot rows of {clean.classes} classes"
        return f"labels, as {form}: only label-only attacks can use them"
    return f"{clean.classes} classes, {clean.kind}, all finite"


def _randomness(clean: CleanPredictions) -> Finding:
    """Return how often the class of an image changes from draw to draw."""
    if clean.warnings:
        return Finding("randomness", "note", " ".join(clean.warnings))
    assert clean.confidence is not None, "the draws of a random model agree in some share"
    other = 1 - float(clean.confidence.mean())
    found = f"in {clean.draws} draws per image, {other:.1%} have another class than most draws of their image"
    return Finding("randomness", "ok", " ".join([f"{found}.", *clean.remarks]))


def _stability(model: Model, pixels: NDArray[np.float32], kind: Scores, batch_size: int) -> Iterator[Finding]:
    """Yield whether scores depend on the call, on the other images in the batch, and on its size."""
    what, do = ("class", "does") if kind == "labels" else ("scores", "do")
    scores = classify(model, pixels, batch_size)
    query = partial(classify, model, batch_size=batch_size, classes=scores.shape[1])
    call = _difference(query(pixels), scores, kind)
    differ = f"{call} from call to call: results may differ a little between runs"
    yield _note_if(call, "determinism", differ, f"the same images get the same {what}, bit for bit")
    other = OtherBatch.of(pixels, batch_size)
    rest = _difference(query(other.pixels)[other.rows], scores[other.numbers], kind)
    differ = f"{rest} with the other images in the batch, or with the order: results may depend on them"
    yield _note_if(rest, "other images", differ, f"a row's {what} {do} not depend on the other rows or their order")
    size = _difference(classify(model, pixels[:1], 1, scores.shape[1]), scores[:1], kind)
    differ = f"{size} with the size of the batch"
    if size and model.fixed_batch:
        yield Finding("size of the batch", "ok", f"{differ}, so every batch is filled to {batch_size}")
    else:
        differ += ": results may depend on batch_size"
        yield _note_if(size, "size of the batch", differ, f"a row's {what} {do} not depend on the size of the batch")


def _difference(left: NDArray[Any], right: NDArray[Any], kind: Scores) -> str:
    """Return by how much two responses differ, in words; nothing if they do not."""
    if kind == "labels":
        differing = count_differing(left, right)
        return f"the class of {differing} of {len(left)} images differs" if differing else ""
    distance = largest_difference(left, right)
    return f"scores differ by up to {distance:.2g}" if distance else ""


def _note_if(difference: str, name: str, note: str, otherwise: str) -> Finding:
    return Finding(name, "note", note) if difference else Finding(name, "ok", otherwise)


def _accuracy(clean: CleanPredictions) -> Finding:
    found = f"{clean.accuracy:.1%}: {clean.correct.sum()} of {len(clean.correct)} images can be attacked"
    return Finding("clean accuracy", "ok", found)


def _speed(model: Model, backend: str, pixels: NDArray[np.float32], batch_size: int) -> str:
    """Return the milliseconds per image in full batches, also for the plain backend if another was chosen."""
    plain = model.plain()
    models = [model] if plain.backend == backend else [model, plain]
    seconds: list[list[float]] = [[] for _ in models]
    for _ in range(_TIMED_CALLS + 1):  # in turns, so that both see the same load of the machine
        for each, spent in zip(models, seconds, strict=True):
            began = time.perf_counter()
            classify(each, pixels, batch_size)
            spent.append(time.perf_counter() - began)
    images = batch_size if model.fixed_batch else len(pixels)
    costs = [f"{1000 * median(spent[1:]) / images:.3g} ms" for spent in seconds]  # the first call warms up
    alone = "" if len(costs) == 1 else f"; {plain.backend} alone: {costs[1]}"
    return f"{costs[0]} per image in batches of {images}, with {backend}{alone}"

"""Before a run: are the images, the labels and the model what an evaluation needs?

`prepare` is what every run passes through: it reads each image once, classifies it, and raises the first thing that
is wrong. `inspect` is `parsimon check`: it tells all that can be told of a model, good and bad.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parsimon.engine import scores_of
from parsimon.errors import InputError, ModelError, NothingToAttackError, ParsimonError, check_whole
from parsimon.oracles.partial import check_partial
from parsimon.protocol import Image, Oracle, ReadingOracle
from parsimon.settings import check_batch
from parsimon.threat import Scores, Threat, to_eight_bit

ImageSource = Sequence[Image] | NDArray[np.float32]  # anything with a length whose items are images

_TIMED = 5  # model calls
_GRID_ROUNDING = 2**-23  # two ways to compute k / 255 in single precision differ by less
# Of the spread of scores: what differs by less from call to call is a device's rounding; by more, the model is random.
_NOISE = 1e-4
_OTHER_MODEL = 1e-3  # of the spread, likewise, from one machine or runtime to another
_KEPT_SCORES = 100_000  # numbers; a run remembers the scores of its first clean images


@dataclass(frozen=True)
class Prepared:
    """The model's view of the clean images."""

    predicted: NDArray[np.intp]
    correct: NDArray[np.bool_]
    classes: int
    confidence: NDArray[np.float64]  # its probability of the predicted class
    way: str | None = None  # how it is run, where it tells
    values: int = 0  # of an image; 0 where none was looked at
    scores: NDArray[np.float32] | None = None  # of the first clean images
    fingerprint: str | None = None  # of the model's file, where there is one
    runtime: str | None = None  # the library that runs the model, with its version
    remarks: tuple[str, ...] = ()  # on how the run was made, for whoever reads its results

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())


def prepare(
    oracle: Oracle, images: ImageSource, labels: NDArray[np.intp] | None, threat: Threat, batch_size: int
) -> Prepared:
    """Check every image and label and classify the images; raise the first thing that is wrong.

    Without labels, what the model sees is correct.
    """
    check_whole("batch_size", batch_size, 1)
    check_count(len(images))
    predicted, confidence = np.empty(len(images), np.intp), np.empty(len(images))
    shape: tuple[int, ...] | None = None
    classes = 0
    kept: list[NDArray[np.float32]] = []
    for start in range(0, len(images), batch_size):
        pixels = read(images, start, batch_size, threat, shape)
        shape, stop = pixels.shape[1:], start + len(pixels)
        if start == 0:
            check_shape(oracle, shape)
        scores = classify(oracle, pixels, batch_size, classes or None)
        classes = scores.shape[1]
        if start == 0:
            check_scores_kind(scores, threat.scores)
            check_determinism(oracle, pixels, scores, batch_size)
        if start * classes < _KEPT_SCORES:
            kept.append(scores[: -(-_KEPT_SCORES // classes) - start].astype(np.float32))
        if labels is not None:
            check_classes(labels[start:stop], classes, "labels", start)
        predicted[start:stop] = scores.argmax(axis=1)
        confidence[start:stop] = threat.confidence(scores)
    correct = predicted == (predicted if labels is None else labels)
    return Prepared(
        predicted,
        correct,
        classes,
        confidence,
        getattr(oracle, "way", None),
        pixels[0].size,
        np.concatenate(kept),
        getattr(oracle, "fingerprint", None),
        getattr(oracle, "runtime", None),
    )


def read(
    images: ImageSource, start: int, batch_size: int, threat: Threat, shape: tuple[int, ...] | None = None
) -> NDArray[np.float32]:
    """A batch of images, each checked, all of the shape that those before them had."""
    batch = []
    for index in range(start, min(start + batch_size, len(images))):
        batch.append(check_image(images[index], index, threat))
        shape = shape or batch[0].shape
        if batch[-1].shape != shape:
            raise InputError(
                f"all images must have one shape; image 0 has {shape}, image {index} has {batch[-1].shape}"
            )
    return np.stack(batch)


def check_any(prepared: Prepared, attackable: NDArray[np.bool_]) -> None:
    """Whether there is an image to attack."""
    if not prepared.correct.any():
        raise NothingToAttackError(
            f"the model classifies none of the {len(attackable)} images correctly, so there is nothing to attack. "
            "Check that labels belong to images, that classes are numbered as the model numbers them, and "
            "that the model expects images in [0, 1] (one that wants them normalised must do so itself)."
        )
    if not attackable.any():
        raise NothingToAttackError(f"the model sees the target in each of the {len(attackable)} images already")


def classify(oracle: Oracle, pixels: NDArray[np.float32], batch_size: int, classes: int | None = None) -> NDArray[Any]:
    """The scores of at most a batch of images, shown in the shape that the oracle needs.

    `classes`: how many scores an image had before.
    """
    count = len(pixels)
    if oracle.fixed_batch and count < batch_size:
        check_batch(batch_size, pixels[0].size)
        pixels = np.concatenate([pixels, np.repeat(pixels[:1], batch_size - count, axis=0)])
    elif not (isinstance(oracle, ReadingOracle) and oracle.only_reads):
        pixels = pixels.copy()  # it may normalise them in place
    scores = scores_of(oracle, oracle.namespace.asarray(pixels, device=oracle.device), classes)[:count]
    if not np.isfinite(scores).all():
        raise ModelError(
            "the model returned NaN or infinite scores for a clean image; a classifier must return numbers"
        )
    return scores


def check_image(image: Any, index: int, threat: Threat) -> Image:
    """One image: its type, its shape, its range."""
    try:
        image = np.asarray(image)
    except (TypeError, ValueError, RuntimeError) as error:  # the last of torch, for one that requires gradients
        raise InputError(
            f"images must be arrays (channels, rows, columns); got {type(image).__name__} at image {index}. "
            "Take the images alone, without labels beside them."
        ) from error
    if image.dtype != np.float32:
        what_to_do = "images.astype(np.float32)" + (" / 255" if np.issubdtype(image.dtype, np.integer) else "")
        raise InputError(f"images must be float32 in [0, 1]; got {image.dtype} at image {index}: use {what_to_do}")
    if image.ndim != 3 or image.size == 0:
        raise InputError(
            f"images must have shape (channels, rows, columns), none of them 0; got {image.shape} at image {index}"
        )
    if image.shape[2] in (1, 3) and image.shape[0] > 4:
        raise InputError(
            f"channels must come before rows and columns; image {index} has shape {image.shape}, which looks like "
            "channels last: use images.transpose(0, 3, 1, 2)"
        )
    if not np.isfinite(image).all():
        raise InputError(f"pixels must be numbers in [0, 1]; image {index} has NaN or infinite ones")
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > 1:
        hint = "divide by 255" if low >= 0 and 1 < high <= 255 else "undo the normalisation, and let the model do it"
        raise InputError(f"pixels must lie in [0, 1]; image {index} spans {low:g} to {high:g}: {hint}")
    if threat.eight_bit and np.abs(image - to_eight_bit(image)).max() > _GRID_ROUNDING:
        raise InputError(
            f"8-bit mode needs images whose pixels are k / 255; image {index} has others: round it with "
            "np.rint(image * 255) / 255, or leave 8-bit mode"
        )
    return image  # type: ignore[no-any-return]


def check_count(count: int) -> None:
    """Whether there are images at all."""
    if count == 0:
        raise InputError("there are no images to attack")


def check_labels(labels: Any, count: int, what: str = "labels") -> NDArray[np.intp]:
    """One class number for each image."""
    labels = np.asarray(labels)
    check_count(count)
    if labels.shape != (count,) or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(
            f"{what} must be one whole number for each of the {count} images; "
            f"got {labels.dtype} of shape {labels.shape}{_hint(labels, count)}"
        )
    return np.asarray(labels, np.intp)


def _hint(labels: NDArray[Any], count: int) -> str:
    if labels.shape == (count, 1):
        return ": use labels[:, 0]"
    if labels.ndim == 2 and len(labels) == count:
        return ": use argmax(axis=1) on one-hot rows"
    if labels.shape == (count,) and labels.dtype.kind == "f":
        return ": use astype(int)"
    return ""


def check_classes(classes: NDArray[np.intp], known: int, what: str, first_index: int = 0) -> None:
    """Labels or targets against the number of classes that the model knows."""
    wrong = np.flatnonzero((classes < 0) | (classes >= known))
    if len(wrong):
        raise InputError(
            f"{what} must be 0..{known - 1} for this model; got {classes[wrong[0]]} at image {first_index + wrong[0]}"
        )


def check_targets(targets: Any, labels: NDArray[np.intp] | None, count: int, known: int) -> NDArray[np.intp]:
    """The classes to reach: one for each image, and never its own, where that is known."""
    classes = check_labels(targets, count, "targets")
    check_classes(classes, known, "targets")
    if labels is not None and len(same := np.flatnonzero(classes == labels)):
        raise InputError(f"a target must differ from the true class; both are {labels[same[0]]} at image {same[0]}")
    return classes


def check_shape(oracle: Oracle, shape: tuple[int, ...]) -> None:
    """The images' shape against the one that the model declares, where it declares one."""
    declared = getattr(oracle, "image_shape", None)
    if declared and any(side is not None and side != given for side, given in zip(declared, shape, strict=True)):
        wanted = ", ".join("any" if side is None else str(side) for side in declared)
        what_to_do = "resize them, channels first"
        if declared[2] == shape[0] and declared[0] != shape[0]:
            what_to_do = "its channels come last, so wrap it in a Python function that turns images to (0, 2, 3, 1)"
        raise InputError(f"this model takes images of shape ({wanted}); got {shape}: {what_to_do}")


def check_threat(oracle: Oracle, threat: Threat) -> None:
    """Whether the model can be shown what the threat shows, and tells what its loss needs."""
    if getattr(oracle, "eight_bit_only", False) and not threat.eight_bit:
        raise InputError(
            "this model is shown pixels of 8 bits, so every image that it is asked about must have pixels k / 255: "
            "use 8-bit mode (eight_bit=True, --eight-bit)"
        )
    top = getattr(oracle, "top", None)
    if top is not None:
        check_partial(top, threat)


def scores_kind(oracle: Oracle, images: ImageSource, batch_size: int) -> Scores:
    """What the model returns, told by its scores of the first images."""
    check_count(len(images))
    check_whole("batch_size", batch_size, 1)
    pixels = read(images, 0, batch_size, Threat(1))
    check_shape(oracle, pixels.shape[1:])
    scores = classify(oracle, pixels, batch_size)
    if not _are_probabilities(scores):
        return "logits"
    if ((scores == 0) | (scores == 1)).all():
        raise InputError(
            "the model tells only its decision: each row of its scores is a 1 and else 0. These attacks climb a loss, "
            "so it must return probabilities or logits."
        )
    return "probabilities"


def _are_probabilities(scores: NDArray[Any]) -> bool:
    return bool((scores >= 0).all() and np.abs(scores.sum(axis=1) - 1).max() < 1e-3)


def check_scores_kind(scores: NDArray[Any], declared: Scores) -> None:
    """Whether the scores are what they were said to be; the loss of the wrong kind misleads the search."""
    are_probabilities = _are_probabilities(scores)
    if are_probabilities and declared == "logits":
        raise InputError("the model returns probabilities (rows sum to 1), not logits: pass scores='probabilities'")
    if not are_probabilities and declared == "probabilities":
        raise InputError("the model's scores are not probabilities (rows do not sum to 1): pass scores='logits'")


def check_determinism(oracle: Oracle, pixels: NDArray[np.float32], scores: NDArray[Any], batch_size: int) -> None:
    """A model that answers the same question differently has no robustness that could be measured so."""
    difference = _difference(classify(oracle, pixels, batch_size, scores.shape[1]), scores)
    if difference > _NOISE * spread_of(scores):
        raise ModelError(
            f"the model gives the same images different scores from call to call: they move by up to {difference:.3g}, "
            f"and the scores of an image spread over {spread_of(scores):.3g}. So a search cannot trust its answers. "
            "Switch off dropout and random preprocessing (model.eval())."
        )


def spread_of(scores: NDArray[Any]) -> float:
    """Return how far the best class of an image typically lies above the middle one: the scale of the scores."""
    numbers = scores.astype(np.float64)
    return float(np.median(numbers.max(axis=1) - np.median(numbers, axis=1)))


def check_same_model(before: NDArray[np.float32], now: NDArray[np.float32]) -> None:
    """Refuse to mix the results of two models: the scores of the clean images must agree up to rounding."""
    difference = _difference(before, now) if before.shape == now.shape else math.inf
    if difference > _OTHER_MODEL * spread_of(before):
        raise InputError(
            f"this run was begun with another model: the scores of the clean images moved by up to {difference:.3g}, "
            "so continuing would mix the results of two models. Start a new run, or bring back the model."
        )


@dataclass(frozen=True)
class Finding:
    """One thing that `parsimon check` has to say."""

    name: str
    verdict: Literal["ok", "note", "error"]
    sentence: str


def inspect(
    oracle: Oracle, images: ImageSource, labels: NDArray[np.intp], threat: Threat, batch_size: int
) -> Iterator[Finding]:
    """All that can be told of a model before it is attacked; an error ends the list."""
    try:
        yield from _findings(oracle, images, labels, threat, batch_size)
    except ParsimonError as error:
        yield Finding("images, labels, model", "error", str(error))


def _findings(
    oracle: Oracle, images: ImageSource, labels: NDArray[np.intp], threat: Threat, batch_size: int
) -> Iterator[Finding]:
    prepared = prepare(oracle, images, labels, threat, batch_size)
    check_any(prepared, prepared.correct)
    count = min(len(images), batch_size)
    pixels = np.stack([images[index] for index in range(count)])
    scores = classify(oracle, pixels, batch_size)
    yield Finding("images", "ok", f"{len(images)} of shape {pixels.shape[1:]}, float32 in [0, 1]")
    yield Finding("scores", "ok", f"{scores.shape[1]} classes, {threat.scores}, all finite")
    classes = scores.shape[1]
    again = _difference(classify(oracle, pixels, batch_size, classes), scores)
    yield Finding(
        "determinism",
        "note" if again else "ok",
        f"scores move by up to {again:.2g} from call to call: results may differ a little between runs"
        if again
        else "the same images get the same scores, bit for bit",
    )
    place = _difference(classify(oracle, pixels[::-1].copy(), batch_size, classes)[::-1], scores)
    yield Finding(
        "place in the batch",
        "note" if place else "ok",
        f"scores move by up to {place:.2g} with the place in the batch: results may depend on what runs beside"
        if place
        else "a row's scores do not depend on its place",
    )
    alone = _difference(classify(oracle, pixels[:1], 1, classes), scores[:1])
    if not alone:
        sentence = "a row's scores do not depend on the size of the batch"
    elif oracle.fixed_batch:
        sentence = (
            f"scores move by up to {alone:.2g} with the size of the batch, so every batch is filled to {batch_size}"
        )
    else:
        sentence = f"scores move by up to {alone:.2g} with the size of the batch: results may depend on batch_size"
    yield Finding("size of the batch", "note" if alone and not oracle.fixed_batch else "ok", sentence)
    if prepared.way is not None:
        yield Finding("speed", "ok", _speed(oracle, prepared.way, pixels, batch_size))
    correct = int(prepared.correct.sum())
    sentence = f"{prepared.accuracy:.1%}: {correct} of {len(images)} images can be attacked"
    guessed = prepared.accuracy <= 1 / prepared.classes
    if guessed:
        sentence += ", no more than by guessing. Do labels belong to images, and does the model want them in [0, 1]?"
    yield Finding("clean accuracy", "note" if guessed else "ok", sentence)


def _speed(oracle: Any, way: str, pixels: NDArray[np.float32], batch_size: int) -> str:
    """Milliseconds an image in full batches; beside them those of the plain way, where another was chosen."""
    plain = getattr(oracle, "plain", oracle)
    ways = [oracle] if plain.way == way else [oracle, plain]
    seconds: list[list[float]] = [[] for _ in ways]
    for _ in range(_TIMED + 1):  # in turns, so that both see the same state of the machine
        for each, spent in zip(ways, seconds, strict=True):
            began = time.perf_counter()
            classify(each, pixels, batch_size)
            spent.append(time.perf_counter() - began)
    shown = batch_size if oracle.fixed_batch else len(pixels)
    costs = [f"{1000 * median(spent[1:]) / shown:.3g} ms" for spent in seconds]  # without the first, which warms up
    beside = "" if len(costs) == 1 else f"; {plain.way} alone: {costs[1]}"
    return f"{costs[0]} an image in batches of {shown}, by {way}{beside}"


def _difference(left: NDArray[Any], right: NDArray[Any]) -> float:
    return float(np.abs(left.astype(np.float64) - right.astype(np.float64)).max())

"""Bad input leads to an error that says what was expected, what came and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import parsimon
from parsimon import InputError, ModelError, ParsimonError, Parsimonious
from parsimon.errors import NothingToAttackError
from small_model import IMAGES, LABELS, Pixels, attack, changed, linear, raising, softmax


class Lazy:
    """Images that are read lazily."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Any:
        return self._items[index]


def after(calls: int, spoil: Callable[[Pixels], Any]) -> Callable[[Pixels], Any]:
    """Return the linear model with scores that are spoilt after `calls` calls. The checks make two."""
    answered = 0

    def model(images: Pixels) -> Any:
        nonlocal answered
        answered += 1
        return spoil(linear(images)) if answered > calls else linear(images)

    return model


def dropout() -> Callable[[Pixels], Pixels]:
    random = np.random.default_rng(0)
    return lambda images: linear(images * (random.random(images.shape) < 0.5).astype(np.float32) * 2)


def nan_at_first_row(scores: Pixels) -> Pixels:
    return changed(scores, 0, np.nan)


class Case(NamedTuple):
    name: str
    call: Callable[[], object]
    kind: type[ParsimonError]
    words: tuple[str, ...]


OTHER = (LABELS + 1) % 10

CASES = [
    # Images.
    Case(
        "float images up to 255",
        lambda: attack(images=IMAGES * 255),
        InputError,
        ("must lie in [0, 1]", "image 0 spans", "to 255", "divide by 255"),
    ),
    Case(
        "normalised images",
        lambda: attack(images=(IMAGES - 0.5) / 0.25),
        InputError,
        ("must lie in [0, 1]", "image 0 spans -2", "undo the normalisation"),
    ),
    Case(
        "NaN pixel",
        lambda: attack(images=changed(IMAGES, 4, np.nan)),
        InputError,
        ("must be numbers in [0, 1]", "image 4 has NaN"),
    ),
    Case(
        "infinite pixel",
        lambda: attack(images=changed(IMAGES, 2, np.inf)),
        InputError,
        ("must be numbers in [0, 1]", "image 2 has", "infinite"),
    ),
    Case(
        "labels in a column",
        lambda: attack(labels=LABELS[:, None]),
        InputError,
        ("one whole number per image", "use labels[:, 0]"),
    ),
    Case("half an image", lambda: attack(at_most=1.5), InputError, ("at_most must be a whole number", "got 1.5")),
    Case("no image", lambda: attack(at_most=0), InputError, ("at_most must be a whole number, at least 1; got 0",)),
    Case("a negative sample", lambda: attack(sample=-1), InputError, ("sample must be a whole number", "got -1")),
    Case("a batch in words", lambda: attack(batch_size="64"), InputError, ("batch_size must be", "got '64'")),
    Case(
        "scores of several lengths",
        lambda: attack(lambda images: [[0.0] * (2 + number % 2) for number in range(len(images))]),
        ModelError,
        ("must return an array of scores", "numpy cannot read"),
    ),
    Case(
        "channels last",
        lambda: attack(images=IMAGES.transpose(0, 2, 3, 1)),
        InputError,
        ("channels must come before rows", "(8, 8, 3)", "images.transpose(0, 3, 1, 2)"),
    ),
    Case(
        "uint8 images",
        lambda: attack(images=(IMAGES * 255).astype(np.uint8)),
        InputError,
        ("must be float32 in [0, 1]", "got uint8 at image 0", "use images.astype(np.float32) / 255"),
    ),
    Case(
        "float64 images",
        lambda: attack(images=IMAGES.astype(np.float64)),
        InputError,
        ("must be float32", "got float64 at image 0", "use images.astype(np.float32)"),
    ),
    Case(
        "one image without its number",
        lambda: attack(images=IMAGES[0]),
        InputError,
        ("(number, channels, rows, columns)", "got (3, 8, 8)", "images[None]"),
    ),
    Case(
        "flat images",
        lambda: attack(images=IMAGES.reshape(6, -1)),
        InputError,
        ("(number, channels, rows, columns)", "got (6, 192)"),
    ),
    Case("no images", lambda: attack(images=IMAGES[:0], labels=LABELS[:0]), InputError, ("there are no images",)),
    Case("an empty sequence", lambda: attack(images=[], labels=[]), InputError, ("there are no images",)),
    Case(
        "images without pixels",
        lambda: attack(images=IMAGES[:, :, :0]),
        InputError,
        ("(channels, rows, columns)", "got (3, 0, 8) at image 0"),
    ),
    Case(
        "shapes that differ",
        lambda: attack(images=Lazy(*IMAGES[:3], np.zeros((3, 9, 8), np.float32), *IMAGES[4:])),
        InputError,
        ("must have one shape", "image 0 has (3, 8, 8)", "image 3 has (3, 9, 8)"),
    ),
    Case(
        "grey images without their channel",
        lambda: attack(images=Lazy(*IMAGES[:, 0])),
        InputError,
        ("(channels, rows, columns)", "got (8, 8) at image 0"),
    ),
    Case(
        "a data set of pairs",
        lambda: attack(images=Lazy(*zip(IMAGES, LABELS.tolist(), strict=True))),
        InputError,
        ("must be arrays", "got tuple at image 0", "images alone"),
    ),
    Case("a number for images", lambda: attack(images=3), InputError, ("array or a sequence", "got int")),
    Case("a dictionary of images", lambda: attack(images={0: IMAGES[0]}), InputError, ("array", "got dict")),
    # Labels.
    Case(
        "one-hot labels", lambda: attack(labels=np.eye(10)[LABELS]), InputError, ("whole number", "(6, 10)", "argmax")
    ),
    Case(
        "a label out of range",
        lambda: attack(labels=changed(LABELS, 3, 12)),
        InputError,
        ("labels must be 0..9 for this model; got 12 at image 3",),
    ),
    Case(
        "a label out of range in a later batch",
        lambda: attack(labels=changed(LABELS, 5, -1), batch_size=2),
        InputError,
        ("labels must be 0..9 for this model; got -1 at image 5",),
    ),
    Case(
        "float labels",
        lambda: attack(labels=LABELS.astype(np.float32)),
        InputError,
        ("labels must be one whole number per image, for 6 images", "got float32 of shape (6,)", "astype(int)"),
    ),
    Case(
        "too few labels",
        lambda: attack(labels=LABELS[:5]),
        InputError,
        ("one whole number per image, for 6 images", "got int64 of shape (5,)"),
    ),
    Case("no labels", lambda: attack(labels=None), InputError, ("labels are missing: give one class per image",)),
    Case("ragged labels", lambda: attack(labels=[[1], [2, 3]]), InputError, ("labels must be an array of numbers",)),
    # Targets.
    Case(
        "a target out of range",
        lambda: attack(targets=changed(OTHER, 2, 10)),
        InputError,
        ("targets must be 0..9 for this model; got 10 at image 2",),
    ),
    Case(
        "all labels as targets",
        lambda: attack(targets=LABELS),
        NothingToAttackError,
        ("already predicts the target of each of the 6 images",),
    ),
    Case(
        "too many targets",
        lambda: attack(targets=[*OTHER, 0]),
        InputError,
        ("targets must be one whole number per image, for 6 images", "(7,)"),
    ),
    Case("an unknown word for targets", lambda: attack(targets="likely"), InputError, ("'next'", "got 'likely'")),
    # What the model returns.
    Case(
        "one score per image",
        lambda: attack(lambda images: linear(images)[:, 0]),
        ModelError,
        ("shape (images, classes), here (6, at least 2)", "got (6,)"),
    ),
    Case(
        "a row too few",
        lambda: attack(lambda images: linear(images)[1:]),
        ModelError,
        ("shape (images, classes), here (6, at least 2)", "got (5, 10)"),
    ),
    Case(
        "a single class",
        lambda: attack(lambda images: linear(images)[:, :1]),
        ModelError,
        ("shape (images, classes), here (6, at least 2)", "got (6, 1)", "must be a class, as an integer"),
    ),
    Case("nothing returned", lambda: attack(lambda _: None), ModelError, ("scores (images, classes)", "got NoneType")),
    Case(
        "a dictionary of scores",
        lambda: attack(lambda images: {"logits": linear(images)}),
        ModelError,
        ("an array of scores (images, classes)", "got dict", "returns the scores alone"),
    ),
    Case("one number for all", lambda: attack(lambda _: 3.0), ModelError, ("shape (images, classes)", "got ()")),
    Case(
        "pixels a rounding error below 0",
        lambda: attack(images=changed(IMAGES, 2, -1e-8)),
        InputError,
        ("must lie in [0, 1]", "image 2 spans -1e-08 to", "clip them, as images.clip(0, 1) does"),
    ),
    Case(
        "pixels a rounding error above 1",
        lambda: attack(images=changed(IMAGES, 2, np.nextafter(np.float32(1), np.float32(2)))),
        InputError,
        ("must lie in [0, 1]", "to 1.0000001", "clip them"),
    ),
    Case(
        "words for scores",
        lambda: attack(lambda images: np.full((len(images), 10), "cat")),
        ModelError,
        ("scores that are real numbers", "got an array of <U3"),
    ),
    Case("NaN on clean images", lambda: attack(after(0, nan_at_first_row)), ModelError, ("NaN", "a clean image")),
    Case(
        "NaN during the attack",
        lambda: attack(after(2, nan_at_first_row), in_flight=1),
        ModelError,
        ("NaN scores for a point near image 0", "must return numbers"),
    ),
    Case(
        "infinity during the attack",
        lambda: attack(after(2, lambda scores: changed(scores, 0, np.inf)), in_flight=1),
        ModelError,
        ("infinite or NaN scores for a point near image 0",),
    ),
    Case(
        "dropout",
        lambda: attack(dropout()),
        ModelError,
        ("different scores from call to call", "Switch off dropout", "model.eval()"),
    ),
    Case(
        "an exception in the model",
        lambda: attack(raising),
        ModelError,
        ("the model failed on images of shape (6, 3, 8, 8)", "KeyError: 'weights/7'"),
    ),
    Case(
        "no image classified correctly",
        lambda: attack(labels=OTHER),
        NothingToAttackError,
        ("none of the 6 images correctly", "labels belong to images", "images in [0, 1]"),
    ),
    Case(
        "probabilities said to be logits",
        lambda: attack(softmax, scores="logits"),
        InputError,
        ("returns probabilities", "not logits", "scores='probabilities'"),
    ),
    Case(
        "logits said to be probabilities",
        lambda: attack(scores="probabilities"),
        InputError,
        ("not probabilities", "scores='logits'"),
    ),
    # Settings.
    Case("eps 0", lambda: attack(eps=0), InputError, ("eps must lie above 0", "got 0")),
    Case("negative eps", lambda: attack(eps=-0.1), InputError, ("eps must lie above 0", "got -0.1")),
    Case("eps NaN", lambda: attack(eps=float("nan")), InputError, ("eps must lie above 0", "got nan")),
    Case("eps on the 0..255 scale", lambda: attack(eps=8), InputError, ("at most 1", "got 8", "did you mean 8/255?")),
    Case("eps as a word", lambda: attack(eps="much"), InputError, ("number or a fraction such as 8/255", "got 'much'")),
    Case("budget 0", lambda: attack(budget=0), InputError, ("budget", "at least 1", "got 0")),
    Case("half a query", lambda: attack(budget=10.5), InputError, ("budget", "whole number", "got 10.5")),
    Case("batch size 0", lambda: attack(batch_size=0), InputError, ("batch_size", "at least 1", "got 0")),
    Case("nothing in flight", lambda: attack(in_flight=0), InputError, ("in_flight", "at least 1", "got 0")),
    Case("at most no image", lambda: attack(at_most=0), InputError, ("at_most", "at least 1", "got 0")),
    Case("at most -1 images", lambda: attack(at_most=-1), InputError, ("at_most", "at least 1", "got -1")),
    Case("a negative seed", lambda: attack(seed=-1), InputError, ("seed", "at least 0", "got -1")),
    Case("an unknown loss", lambda: attack(loss="hinge"), InputError, ("cross-entropy, margin", "got 'hinge'")),
    Case("unknown scores", lambda: attack(scores="odds"), InputError, ("logits, probabilities", "got 'odds'")),
    Case(
        "eps below one level in 8-bit mode",
        lambda: attack(eps=0.5 / 255, eight_bit=True),
        InputError,
        ("at least 1/255 in 8-bit mode", "got 0.00196"),
    ),
    Case(
        "pixels between levels in 8-bit mode",
        lambda: attack(images=changed(IMAGES, 1, 0.5), eight_bit=True),
        InputError,
        ("8-bit mode needs pixels that are k / 255", "image 1 has others", "round it"),
    ),
    Case("block 3", lambda: Parsimonious(block=3), InputError, ("block must be a power of two", "got 3")),
    Case("block 0", lambda: Parsimonious(block=0), InputError, ("block must be a power of two", "got 0")),
    Case("block 2.5", lambda: Parsimonious(block=2.5), InputError, ("power of two", "got 2.5")),  # type: ignore[arg-type]
    Case(
        "an unknown behaviour",
        lambda: Parsimonious(behaviour="fast"),  # type: ignore[arg-type]
        InputError,
        ("behaviour must be one of paper, published", "got 'fast'"),
    ),
    Case(
        "a model that is none",
        lambda: attack(model=5),
        InputError,
        ("torch module", "ONNX file", "function from images to scores", "got int"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_is_refused_with_a_helpful_message(case: Case) -> None:
    with pytest.raises(ParsimonError) as caught:
        case.call()
    assert type(caught.value) is case.kind
    for word in case.words:
        assert word in str(caught.value)


def test_the_message_about_a_label_is_exact() -> None:
    with pytest.raises(InputError) as caught:
        attack(labels=changed(LABELS, 3, 12))
    assert str(caught.value) == "labels must be 0..9 for this model; got 12 at image 3"


def test_the_unspoilt_input_is_accepted() -> None:
    assert len(attack().outcomes) == 6
    assert len(attack(targets=OTHER, eight_bit=True, loss="margin").outcomes) == 6
    assert len(attack(softmax, scores="probabilities").outcomes) == 6


def test_a_model_may_normalise_its_images_in_place() -> None:
    def in_place(images: Pixels) -> Pixels:
        images -= np.float32(0.5)
        return linear(images)

    assert attack(in_place).outcomes == attack(lambda images: linear(images - np.float32(0.5))).outcomes


@pytest.mark.parametrize("shape", [(2, 8, 1), (2, 1, 1), (4, 5, 3), (3, 3, 3)])
def test_images_of_few_channels_may_have_few_columns(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).random((3, *shape), dtype=np.float32)
    scores = np.random.default_rng(1).normal(size=(images[0].size, 3))
    result = parsimon.attack(lambda shown: shown.reshape(len(shown), -1) @ scores, images, "predicted", 0.1, budget=5)
    assert len(result.outcomes) == 3


def test_rounding_noise_in_the_scores_is_tolerated() -> None:
    random = np.random.default_rng(0)

    def noisy(images: Pixels) -> Pixels:
        return linear(images) + random.uniform(-1e-5, 1e-5, (len(images), 10)).astype(np.float32)

    assert attack(noisy).summary.queries > 0


def test_nan_scores_name_their_image_among_those_of_a_batch() -> None:
    def nan_near_image_4(images: Pixels) -> Pixels:
        scores = linear(images)
        near = np.abs(images - IMAGES[4]).max(axis=(1, 2, 3)) < 0.05
        exactly = (images == IMAGES[4]).all(axis=(1, 2, 3))
        scores[near & ~exactly] = np.nan
        return scores

    with pytest.raises(ModelError, match="for a point near image 4;"):
        attack(nan_near_image_4)


def test_an_exception_in_the_model_is_kept_as_the_cause() -> None:
    with pytest.raises(ModelError) as caught:
        attack(raising)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_exception_during_the_attack_is_quoted() -> None:
    def fail(_: Pixels) -> Pixels:
        raise ConnectionError("the service is gone")

    with pytest.raises(ModelError, match="ConnectionError: the service is gone"):
        attack(after(5, fail), batch_size=8)


def test_an_image_whose_target_is_its_label_is_left_out_with_a_note() -> None:
    targets = np.where(np.arange(6) == 4, LABELS, OTHER)
    result = attack(targets=targets)
    assert result.attacked.tolist() == [True] * 4 + [False, True]
    assert "Images that were not attacked, since their target is their own class: 1." in result.table().notes
    others = np.arange(6) != 4
    alone = attack(targets=OTHER)
    assert result.queries[others].tolist() == alone.queries[others].tolist()
    assert not any("own class" in note for note in alone.table().notes)

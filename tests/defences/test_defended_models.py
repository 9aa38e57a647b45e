"""What holds for every defence, in front of a numpy function and of a torch module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import nn

import parsimon
from parsimon.core.model import Keys, Model
from parsimon.defences import AAA, BitDepth, Blacklight, Defence, InputNoise, Jpeg, ResizePad, RoundedScores, defended
from parsimon.defences.base import needs_score_kind, with_score_kind
from parsimon.errors import InputError
from parsimon.models import FunctionModel, as_model

Pixels = NDArray[np.float32]

CLASSES = 6
WEIGHTS = np.random.default_rng(0).normal(size=(3 * 8 * 8, CLASSES)).astype(np.float32)
IMAGES = np.random.default_rng(1).random((12, 3, 8, 8), dtype=np.float32)
KEYS: Keys = np.random.default_rng(2).integers(2**40, size=(12, 2))

INPUT_DEFENCES = [InputNoise(), ResizePad(), Jpeg(), BitDepth(3)]
SCORE_DEFENCES = [RoundedScores(), AAA(), AAA("sine")]
ALL = [*INPUT_DEFENCES, *SCORE_DEFENCES, Blacklight()]


def linear(images: Pixels) -> Pixels:
    flat = images.reshape(len(images), 1, -1)
    return (flat @ WEIGHTS)[:, 0]  # row by row, so that a row does not depend on the others


def torch_module() -> nn.Module:
    layer = nn.Linear(len(WEIGHTS), CLASSES, bias=False)
    layer.weight = nn.Parameter(torch.from_numpy(WEIGHTS.T.copy()))
    return nn.Sequential(nn.Flatten(), layer).eval()


def models() -> list[Model]:
    return [FunctionModel(linear), as_model(torch_module())]


def respond(model: Model, images: Pixels = IMAGES, keys: Keys = KEYS) -> NDArray[Any]:
    return np.asarray(model.draw(model.put(images), keys))


@pytest.mark.parametrize("defence", ALL)
def test_a_function_and_a_module_with_the_same_weights_respond_alike(defence: Defence) -> None:
    function, module = (respond(defended(model, [defence], "logits")) for model in models())
    np.testing.assert_allclose(function, module, atol=0.0101 if isinstance(defence, RoundedScores) else 1e-3)


@pytest.mark.parametrize("defence", ALL)
def test_a_row_depends_on_nothing_but_its_image_and_key(defence: Defence) -> None:
    model = defended(FunctionModel(linear), [defence], "logits")
    whole = respond(model)
    order = np.random.default_rng(3).permutation(len(IMAGES))
    np.testing.assert_array_equal(respond(model, IMAGES[order], KEYS[order]), whole[order])
    for size in (1, 5):
        parts = [respond(model, IMAGES[at : at + size], KEYS[at : at + size]) for at in range(0, len(IMAGES), size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("defence", ALL)
@pytest.mark.parametrize("number", [0, 1])
def test_the_images_and_keys_are_not_changed(defence: Defence, number: int) -> None:
    images, keys = IMAGES.copy(), KEYS.copy()
    model = defended(models()[number], [defence], "logits")
    respond(model, images, keys)
    model(model.put(images))
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(keys, KEYS)


@pytest.mark.parametrize("defence", INPUT_DEFENCES)
def test_the_model_receives_the_transformed_images_as_float32(defence: Any) -> None:
    received: list[Pixels] = []

    def function(images: Pixels) -> Pixels:
        received.append(images)
        return linear(images)

    respond(defended(FunctionModel(function), [defence]))
    generators = [np.random.default_rng([0, *key]) for key in KEYS.tolist()] if defence.random else []
    np.testing.assert_array_equal(received[0], defence.transform(IMAGES, generators))
    assert received[0].dtype == np.float32
    assert received[0].flags.c_contiguous


@pytest.mark.parametrize("defence", [InputNoise(), ResizePad(0.5)])
def test_keyed_draws_repeat_and_differ_between_keys(defence: Defence) -> None:
    model = defended(FunctionModel(linear), [defence])
    assert model.random
    same = np.repeat(IMAGES[:1], 12, axis=0)
    first = respond(model, same)
    np.testing.assert_array_equal(respond(model, same), first)
    assert len(np.unique(first, axis=0)) > 6  # resizing may draw the same side and place twice
    assert not np.array_equal(respond(model, same, KEYS + 1), first)


@pytest.mark.parametrize("defence", [InputNoise(), ResizePad(0.5)])
def test_calls_without_keys_differ(defence: Defence) -> None:
    model = defended(FunctionModel(linear), [defence])
    assert not np.array_equal(model(IMAGES), model(IMAGES))


@pytest.mark.parametrize("defence", [Jpeg(), BitDepth(), *SCORE_DEFENCES, Blacklight()])
def test_other_defences_are_not_random(defence: Defence) -> None:
    model = defended(FunctionModel(linear), [defence], "logits")
    assert not model.random
    np.testing.assert_array_equal(model(IMAGES), respond(model))


def test_two_random_defences_in_a_row_draw_independently() -> None:
    received: list[Pixels] = []

    def function(images: Pixels) -> Pixels:
        received.append(images)
        return linear(images)

    grey = np.full((200, 3, 8, 8), 0.5, np.float32)
    keys = np.random.default_rng(5).integers(2**40, size=(200, 2))
    for names in (["noise"], ["noise", "noise"]):
        respond(defended(FunctionModel(function), names), grey, keys)
    once, twice = (images.ravel() - 0.5 for images in received)
    second = twice - once  # the inner defence draws as if it were alone
    assert abs(np.corrcoef(once, second)[0, 1]) < 5 / np.sqrt(once.size)
    assert np.var(twice) == pytest.approx(2 * 0.02**2, rel=0.03)  # four times, not twice, if the draws were equal
    assert np.var(second) == pytest.approx(0.02**2, rel=0.03)


@pytest.mark.parametrize("defence", SCORE_DEFENCES)
@pytest.mark.parametrize("probabilities", [False, True])
def test_the_predicted_class_is_that_of_the_model(defence: Any, probabilities: bool) -> None:
    def function(images: Pixels) -> NDArray[Any]:
        logits = linear(images).astype(np.float64)
        return np.asarray(softmax(logits, axis=1)) if probabilities else logits

    images = np.random.default_rng(6).random((500, 3, 8, 8), dtype=np.float32)
    model = defended(FunctionModel(function), [defence], "probabilities" if probabilities else "logits")
    shown = model(images)
    np.testing.assert_array_equal(shown.argmax(axis=1), linear(images).argmax(axis=1))
    assert model.returns == defence.returns
    logits = linear(images).astype(np.float64)
    np.testing.assert_allclose(softmax(shown, axis=1), softmax(defence.transform(logits), axis=1), atol=1e-6)


@pytest.mark.parametrize("defence", SCORE_DEFENCES)
def test_score_defences_refuse_labels(defence: Defence) -> None:
    classes = FunctionModel(lambda images: linear(images).argmax(axis=1))
    with pytest.raises(InputError, match="changes scores, and this model returns labels"):
        defended(classes, [defence])(IMAGES)
    with pytest.raises(InputError, match="changes scores, and this model returns labels"):
        defended(classes, [defence], "labels")


@pytest.mark.parametrize("defence", SCORE_DEFENCES)
def test_score_defences_guess_nothing(defence: Any) -> None:
    """A guess from a first batch would make results depend on batches and workers."""
    model = FunctionModel(linear)
    with pytest.raises(InputError, match="must know whether the model returns logits or probabilities"):
        defence.protect(model)(IMAGES)
    shown = defence.protect(model, "logits")(IMAGES)
    np.testing.assert_array_equal(shown, defence.transform(linear(IMAGES).astype(np.float64)))
    np.testing.assert_array_equal(with_score_kind(defence.protect(model), "logits")(IMAGES), shown)


def test_only_the_innermost_score_defence_is_told_the_kind() -> None:
    """The other ones receive what a defence returns; those in between are kept."""
    names = ["aaa", "jpeg", "round", "bit-depth,bits=3"]
    model = with_score_kind(defended(FunctionModel(linear), names), "logits")
    assert not needs_score_kind(model)
    rounded = RoundedScores().transform(linear(bits_of(jpeg_of(IMAGES))).astype(np.float64))
    np.testing.assert_array_equal(model(IMAGES), AAA().transform(np.log(np.maximum(rounded, 1e-30))))
    np.testing.assert_array_equal(model.plain()(IMAGES), model(IMAGES))


def jpeg_of(images: Pixels) -> Pixels:
    return Jpeg().transform(images, [])


def bits_of(images: Pixels) -> Pixels:
    return BitDepth(3).transform(images, [])


def test_two_score_defences_in_a_row_are_those_of_the_formulas() -> None:
    model = defended(FunctionModel(linear), [RoundedScores(3), AAA()], "logits")
    expected = RoundedScores(3).transform(AAA().transform(linear(IMAGES).astype(np.float64)))
    np.testing.assert_array_equal(respond(model), expected)
    assert model.returns == "probabilities"


def test_a_watched_model_gives_the_gradients_of_the_model() -> None:
    """A detector changes no response, so a white-box attack sees the same."""
    module = as_model(torch_module())
    watched = defended(module, ["blacklight"])
    assert watched.gives == "gradient"
    images = module.put(IMAGES)
    for mine, its in zip(watched.vjp(images, np.sign), module.vjp(images, np.sign), strict=True):
        np.testing.assert_array_equal(mine, its)
    np.testing.assert_array_equal(watched.start(images)(), module(images))
    assert defended(module, ["jpeg", "blacklight"]).gives == defended(module, ["blacklight", "jpeg"]).gives == "scores"
    labels = np.asarray(module(images)).argmax(axis=1)
    settings: Any = {"attack": "pgd", "budget": 20}
    plain = parsimon.attack(torch_module(), IMAGES, labels, 0.05, **settings)
    behind = parsimon.attack(torch_module(), IMAGES, labels, 0.05, **settings, defence="blacklight")
    assert [each.queries for each in behind.outcomes] == [each.queries for each in plain.outcomes]
    assert [each.point for each in behind.outcomes] == [each.point for each in plain.outcomes]
    assert behind.summary.successes > 0
    assert behind.summary.flagged is not None


def test_a_watched_model_begins_calls_as_the_model_does() -> None:
    class Begun(FunctionModel):
        asynchronous = True
        begun = 0

        def start(self, images: Any) -> Any:
            self.begun += 1
            return super().start(images)

    model = Begun(linear)
    watched = defended(model, ["blacklight"])
    assert watched.asynchronous
    np.testing.assert_array_equal(watched.start(IMAGES)(), linear(IMAGES))
    assert model.begun == 1
    assert not defended(model, ["jpeg"]).asynchronous


@pytest.mark.parametrize("names", [["blacklight"], ["noise", "blacklight"], ["blacklight", "noise", "round"]])
def test_a_watched_model_has_a_detector_and_the_same_responses(names: Sequence[str]) -> None:
    model = defended(FunctionModel(linear), names, "logits")
    others = defended(FunctionModel(linear), [name for name in names if name != "blacklight"], "logits")
    assert model.detector == Blacklight()
    assert others.detector is None
    responses = respond(model)
    assert responses.shape == (12, CLASSES)
    if "noise" not in names:
        np.testing.assert_array_equal(responses, respond(others))


@pytest.mark.parametrize("defence", [*INPUT_DEFENCES, *SCORE_DEFENCES, Blacklight()], ids=repr)
@pytest.mark.parametrize("model", ["robust", linear], ids=["name", "function"])
def test_a_model_is_opened_before_it_is_protected(defence: Defence, model: Any) -> None:
    with pytest.raises(InputError, match=rf"{type(defence).__name__} protects an opened model; .*models.as_model"):
        defence.protect(model)
    assert defence.protect(as_model(model)).random == defence.random

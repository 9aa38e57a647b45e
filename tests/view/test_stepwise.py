"""An attack told step by step: the same queries as any other run's, drawn and scored here by other means."""

from __future__ import annotations

from base64 import b64decode
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from PIL import Image as Pillow

import parsimon
from parsimon import zoo
from parsimon.attacks import Parsimonious
from parsimon.view import stepwise

EPS = 8 / 255
ATTACKS = [(0, "standard", 300), (3, "robust", 500)]


@cache
def told(number: int, network: str, budget: int) -> list[dict[str, Any]]:
    target = stepwise.bundled(network)
    return list(stepwise.steps(target.sample(number), target, "parsimonious", "8/255", budget))


def session(network: str) -> Any:
    return onnxruntime.InferenceSession(str(zoo.path(network)), providers=["CPUExecutionProvider"])


def raised(step: dict[str, Any], base: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The pixels (channels, rows, columns) that a step asked to be raised; written out slowly."""
    side = 32 // step["block"]
    members = base.copy()
    if step["flip"] is not None:
        members[step["flip"]] ^= True
    pixels = np.zeros((3, 32, 32), np.bool_)
    for block in np.flatnonzero(members):
        cell, channel = divmod(int(block), 3)
        row, column = (step["block"] * each for each in divmod(cell, side))
        pixels[channel, row : row + step["block"], column : column + step["block"]] = True
    return pixels


def bases(steps: list[dict[str, Any]]) -> list[NDArray[np.bool_]]:
    """Of each step; one that is not told is that of the step before."""
    found: list[NDArray[np.bool_]] = []
    for step in steps:
        count = 3 * (32 // step["block"]) ** 2
        told = step.get("base")
        found.append(
            np.unpackbits(np.frombuffer(b64decode(told), np.uint8), count=count).astype(np.bool_) if told else found[-1]
        )
    return found


@pytest.mark.parametrize(("number", "network", "budget"), ATTACKS)
def test_it_is_the_same_attack_as_in_any_run(number: int, network: str, budget: int) -> None:
    first, *steps, last = told(number, network, budget)
    image = zoo.images()[0][number][None]
    label = np.array([first["label"]])
    result = parsimon.attack(zoo.path(network), image, label, EPS, attack=Parsimonious(), budget=budget)
    (outcome,) = result.outcomes
    assert (last["ended"], last["queries"]) == (outcome.ended, outcome.queries)
    assert [step["query"] for step in steps] == list(range(1, outcome.queries + 1))
    assert all(step["seen"] == first["label"] for step in steps[:-1])
    if outcome.success:
        assert steps[-1]["seen"] == outcome.predicted
        assert steps[-1]["confidence"] == pytest.approx(outcome.confidence, abs=1e-4)
        corner = raised(steps[-1], bases(steps)[-1])
        assert np.array_equal(
            np.where(corner, (image + EPS).clip(0, 1), (image - EPS).clip(0, 1)) > image, result.adversarial > image
        )


def test_some_are_fooled_and_some_are_not() -> None:
    endings = {told(*which)[-1]["ended"] for which in ATTACKS}
    assert endings == {"success", "budget"}


def test_each_loss_is_that_of_the_corner_that_is_shown() -> None:
    first, *steps, _ = told(3, "robust", 500)
    image = zoo.images()[0][3]
    corners = [raised(step, base) for step, base in zip(steps, bases(steps), strict=True)]
    shown = np.where(np.stack(corners), (image + EPS).clip(0, 1), (image - EPS).clip(0, 1)).astype(np.float32)
    model = session("robust")
    scores = model.run(None, {model.get_inputs()[0].name: shown})[0].astype(np.float64)
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[:, first["label"]]
    assert np.allclose(losses, [step["loss"] for step in steps], atol=1e-3)
    assert len({step["loss"] for step in steps}) > 100


def test_the_block_that_is_kept_is_what_the_next_base_differs_by() -> None:
    _, *steps, _ = told(3, "robust", 500)
    found = bases(steps)
    kept = levels = 0
    for (step, base), (after, base_after) in zip(
        zip(steps, found, strict=True), list(zip(steps, found, strict=True))[1:], strict=False
    ):
        if after["block"] == step["block"]:
            changed = np.flatnonzero(base != base_after).tolist()
            assert step["kept"] == (changed[0] if len(changed) == 1 else None)
            kept += bool(changed)
        else:
            levels += 1
            # A level ends with a look at the complement, which need not be the better.
            pixels, other = raised({**step, "flip": step["kept"]}, base), raised(step, ~base)
            finer = raised({**after, "flip": None}, base_after)
            assert any(np.array_equal(finer, each) for each in ((pixels, other) if step["flip"] is None else (pixels,)))
    assert kept > 20
    assert levels >= 1


def test_the_first_step_holds_the_picture_and_the_ends_of_the_ball() -> None:
    first, *_ = told(3, "robust", 500)
    image = zoo.images()[0][3].transpose(1, 2, 0)
    for name, expected in (("original", image), ("low", image - EPS), ("high", image + EPS)):
        pixels = np.frombuffer(b64decode(first["pictures"][name]), np.uint8).reshape(32, 32, 3)
        assert np.abs(pixels - expected.clip(0, 1) * 255).max() <= 0.5 + 1e-4
    model = session("robust")
    scores = model.run(None, {model.get_inputs()[0].name: zoo.images()[0][3:4]})[0]
    assert first["label"] == int(scores.argmax())


@pytest.mark.parametrize("size", [(32, 32), (100, 60), (31, 200), (640, 480)])
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_picture_is_made_small_and_its_middle_cut_out(size: tuple[int, int], form: str) -> None:
    file = BytesIO()
    picture = Pillow.new("RGB", size, (0, 0, 0))
    wide = size[0] > size[1]  # a white middle, as large as the square that is cut out
    side = min(size)
    left, top = ((size[0] - side) // 2, 0) if wide else (0, (size[1] - side) // 2)
    picture.paste((255, 255, 255), (left, top, left + side, top + side))
    picture.save(file, form)
    image = stepwise.bundled("robust").opened(file.getvalue())
    assert image.shape == (3, 32, 32)
    assert image[:, 2:-2, 2:-2].min() > 0.95  # but for its blurred edges, all of it is of the middle


@pytest.mark.parametrize("attack", [name for name in stepwise.BLACK_BOX if name != "parsimonious"])
def test_other_attacks_are_told_by_the_pictures_that_they_query(attack: str) -> None:
    target = stepwise.bundled("standard")
    image = target.sample(0)
    first, *steps, last = stepwise.steps(image, target, attack, "8/255", 60)
    model = session("standard")
    (whole,) = parsimon.attack(
        zoo.path("standard"), image[None], [first["label"]], EPS, attack=attack, budget=60
    ).outcomes
    assert (last["ended"], last["queries"]) == (whole.ended, whole.queries)
    frames = np.stack([np.frombuffer(b64decode(step["frame"]), np.uint8).reshape(32, 32, 3) for step in steps])
    pixels = frames.transpose(0, 3, 1, 2).astype(np.float32) / 255
    assert np.abs(pixels - image).max() <= 0.11  # the ball, and the probes of NES and Bandits beyond it
    predicted = model.run(None, {model.get_inputs()[0].name: pixels})[0].argmax(axis=1)
    assert np.mean(predicted == [step["seen"] for step in steps]) > 0.9  # but for rounding to 8 bits
    assert {step["seen"] for step in steps[:-1] if not whole.success} <= {first["label"]} or whole.success


def test_a_picture_is_shown_smaller_than_a_large_image() -> None:
    image = np.random.default_rng(0).random((3, 224, 160), np.float32)
    small = stepwise._small(image)
    assert small.shape == (56, 40, 3)
    assert np.array_equal(small, np.rint(255 * image.transpose(1, 2, 0)[::4, ::4]).astype(np.uint8))

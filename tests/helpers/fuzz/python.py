"""Part 1: `parsimon.attack`, `compare` and `evaluate` with random models, images, labels, radii and settings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import parsimon
from fuzz import Draw, sentence_of
from fuzz.judging import check_evaluation, check_result, check_with_model
from fuzz.limited_models import Limited
from fuzz.models import HARMLESS, Faulty, Module, Pure
from fuzz.values import LONG, anything, attack_object, attack_text
from parsimon import ParsimonError, Result

EPS = (0.001, 0.01, 0.03, 8 / 255, 0.1, 0.3, 1, np.float32(0.05), np.float16(0.05), np.float64(0.05), 1e-12, 1e-8)
MANY_CALLS = 60  # for a search whose budget is without end


class Lazy:
    """Images that are read when they are asked for, and of which some cannot be."""

    def __init__(self, images: NDArray[Any], fails_at: int | None, error: Exception) -> None:
        self._images, self._fails_at, self._error = images, fails_at, error

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> NDArray[Any]:
        if index == self._fails_at:
            raise self._error
        return np.array(self._images[index])


class Input:
    """One call of the public functions: everything good at first, then some of it spoilt."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.shape = draw.randint(1, 4), draw.choice((1, 2, 3, 4, 5, 8)), draw.choice((1, 2, 3, 4, 7, 8))
        numbers = np.random.default_rng(draw.randrange(2**32))
        self.pixels = (numbers.integers(0, 256, (draw.randint(1, 5), *self.shape)) / 255).astype(np.float32)
        if draw.chance(0.3):
            self.pixels = np.clip(numbers.normal(0.5, 0.6, self.pixels.shape), 0, 1).astype(np.float32)
        self.settings: dict[str, Any] = {"budget": draw.choice((1, 2, 3, 10, 40)), "progress": False}
        self.settings |= {"batch_size": draw.choice((1, 3, 64)), "seed": draw.randrange(3), "verify": draw.chance(0.8)}
        for name, values in GOOD.items():
            if draw.chance(0.1):
                self.settings[name] = draw.choice(values)
        self._choose_model()
        self.labels: Any = self.clean(self.pixels).argmax(axis=1)
        wrong = numbers.random(len(self.labels)) < 0.1
        self.labels[wrong] = numbers.integers(0, 2, len(self.labels))[wrong]
        self.images: Any = self.pixels.copy()
        self.eps: Any = draw.choice(EPS)
        self.attacks: Any = [self._attack() for _ in range(draw.choice((1, 1, 1, 2)))]

    def _choose_model(self) -> None:
        draw = self.draw
        if draw.chance(0.1):
            module = Module(draw, math.prod(self.shape))
            self.model: Any = module
            self.clean_model: Any = module
            self.clean: Any = lambda images: module(torch.from_numpy(np.asarray(images))).numpy()
            draw.note(model="torch module")
            return
        kind = draw.one("logits", "logits", "probabilities")
        self.settings["scores"] = kind
        self.clean = self.clean_model = pure = Pure(draw, math.prod(self.shape), kind)
        how = draw.choice([*HARMLESS])
        self.model = HARMLESS[how](pure)
        if draw.chance(0.2):
            self.model = Faulty(draw, pure)
            how = self.model.how
        told = {name: getattr(pure, name) for name in ("kind", "scale", "dtype", "steps", "wall", "classes")}
        draw.note(model=how, pure=told)

    def _attack(self) -> Any:
        if self.draw.chance(0.5):
            text = attack_text(self.draw)
            self.draw.note(attack=text)
            return text
        return attack_object(self.draw)

    def spoil(self, what: str) -> None:
        """Replace something good by something that cannot be used, or that can."""
        draw = self.draw
        name: Any
        match what:
            case "images":
                name = draw.choice([*IMAGES])
                with np.errstate(all="ignore"):
                    self.images = IMAGES[name](self.images, draw)
            case "labels":
                name = draw.choice([*LABELS])
                self.labels = LABELS[name](self.labels)
            case "eps":
                self.eps = name = anything(draw)
            case "model":
                self.model = name = draw.one(
                    None, 3, "", "a.b:c", "os:getcwd", "no.onnx", LONG, "x\0", [], object(), "://"
                )
            case "attacks":
                self.attacks = name = draw.one([], {}, "nes", [anything(draw)], {"a": anything(draw)}, anything(draw))
            case "budget":
                self.settings["budget"] = name = draw.choice((10**9, 2**62, 2**63 - 1))
                if callable(self.model) and not isinstance(self.model, torch.nn.Module):
                    self.model = Limited(self.model, MANY_CALLS)
                else:
                    self.settings["budget"] = 1
            case "targets":
                self.settings["targets"] = name = anything(draw)
            case _:
                key = draw.choice(("budget", "seed", "workers", "progres", "open_store", "ray", *GOOD, "verify"))
                name = anything(draw)
                if not _would_take_long(key, name):
                    self.settings[key] = name
        draw.note(spoilt=(what, name))

    @property
    def trusted(self) -> bool:
        """Whether the model has answered as its clean copy does."""
        return not isinstance(self.model, Faulty) or not self.model.shown

    @property
    def misbehaved(self) -> bool:
        """Whether the model has answered what no classifier answers."""
        return isinstance(self.model, Faulty) and self.model.shown > self.model.plausible


SPOILT = ("images", "labels", "eps", "settings", "model", "attacks", "budget", "targets")
GOOD: dict[str, tuple[Any, ...]] = {
    "loss": ("cross-entropy", "margin", None),
    "eight_bit": (True,),
    "at_most": (1, 2, 100, None),
    "sample": (0, 7, 2**63 - 1),
    "in_flight": (1, 2, 2**20),
    "targets": ("next", "random"),
    "batch_size": (None, 2**16, 2),
}

IMAGES: dict[str, Any] = {
    "double": lambda images, _: images.astype(np.float64),
    "half": lambda images, _: images.astype(np.float16),
    "swapped bytes": lambda images, _: images.astype(">f4"),
    "bytes": lambda images, _: (images * 255).astype(np.uint8),
    "times 255": lambda images, _: images * 255,
    "NaN": lambda images, draw: _with(images, draw, np.nan),
    "infinite": lambda images, draw: _with(images, draw, np.inf),
    "below": lambda images, draw: _with(images, draw, -1e-9),
    "above": lambda images, draw: _with(images, draw, np.nextafter(np.float32(1), np.float32(2))),
    "minus zero": lambda images, draw: _with(images, draw, -0.0),
    "tiny": lambda images, draw: _with(images, draw, 1e-45),
    "one": lambda images, draw: _with(images, draw, 1),
    "one image": lambda images, _: images[0],
    "five axes": lambda images, _: images[None],
    "none": lambda images, _: images[:0],
    "no pixels": lambda images, _: images[:, :, :0],
    "channels last": lambda images, _: images.transpose(0, 2, 3, 1),
    "fortran": lambda images, _: np.asfortranarray(images),
    "strided": lambda images, _: images.repeat(2, axis=3)[:, :, :, ::2],
    "reversed": lambda images, _: images[:, :, ::-1][:, :, ::-1],
    "read-only": lambda images, _: np.frombuffer(images.tobytes(), np.float32).reshape(images.shape),
    "list": lambda images, _: list(images),
    "tuple of lists": lambda images, _: tuple(images.tolist()),
    "ragged": lambda images, _: [*images, images[0][:, :1]],
    "mixed": lambda images, _: [*images, 3, None],
    "pairs": lambda images, _: [(image, 0) for image in images],
    "objects": lambda images, _: images.astype(object),
    "text": lambda images, _: images.astype(str),
    "complex": lambda images, _: images.astype(complex),
    "masked": lambda images, _: np.ma.masked_array(images, images > 0.5),
    "tensor": lambda images, _: torch.from_numpy(images),
    "gradient": lambda images, _: torch.from_numpy(images).requires_grad_(),
    "list of gradients": lambda images, _: list(torch.from_numpy(images).requires_grad_()),
    "bfloat16": lambda images, _: torch.from_numpy(images).to(torch.bfloat16),
    "sparse": lambda images, _: torch.from_numpy(images).to_sparse(),
    "lazy": lambda images, _: Lazy(images, None, OSError()),
    "lazy, missing": lambda images, _: Lazy(images, 0, IndexError("out of range")),
    "lazy, unreadable": lambda images, _: Lazy(images, len(images) - 1, OSError(5, "Input/output error", "a.png")),
    "generator": lambda images, _: (image for image in images),
    "mapping": lambda images, _: dict(enumerate(images)),
    "anything": lambda _, draw: anything(draw),
}

LABELS: dict[str, Any] = {
    "list": lambda labels: labels.tolist(),
    "tensor": torch.from_numpy,
    "8 bits": lambda labels: labels.astype(np.int8),
    "unsigned": lambda labels: labels.astype(np.uint64),
    "swapped bytes": lambda labels: labels.astype(">i2"),
    "predicted": lambda _: "predicted",
    "float": lambda labels: labels.astype(float),
    "bool": lambda labels: labels.astype(bool),
    "text": lambda labels: labels.astype(str),
    "objects": lambda labels: labels.astype(object),
    "column": lambda labels: labels[:, None],
    "one-hot": lambda labels: np.eye(9, dtype=int)[labels],
    "fewer": lambda labels: labels[1:],
    "more": lambda labels: [*labels, 0],
    "wrong": lambda labels: (labels + 1) % 2,
    "negative": lambda labels: labels - 3,
    "large": lambda labels: labels + 100,
    "huge": lambda labels: labels.astype(np.uint64) + 2**63,
    "larger than any integer": lambda labels: [10**30 for _ in labels],
    "none": lambda _: None,
    "number": lambda _: 3,
    "ragged": lambda labels: [[1], *labels],
    "mapping": lambda labels: dict(enumerate(labels)),
}


def _with(images: NDArray[Any], draw: Draw, value: Any) -> NDArray[Any]:
    images.flat[draw.randrange(images.size)] = value
    return images


def _would_take_long(key: str, value: Any) -> bool:
    """Return whether a good setting would start processes, or a search of hours."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return (key == "budget" and whole and value > 1000) or (key == "ray" and isinstance(value, str))


def attempt(draw: Draw) -> str:
    """Call one of the functions with random input, and check what comes back."""
    try:
        given = Input(draw)
        for what in draw.sample(SPOILT, draw.choice((0, 0, 0, 1, 1, 2))):
            given.spoil(what)
        draw.note(shape=given.pixels.shape, eps=given.eps, settings=given.settings)
        originals = pixels_of(given.images)
        results = _called(given, draw.one("attack", "attack", "compare", "evaluate"))
    except ParsimonError as error:
        sentence_of(error)
        return "error"
    assert originals is not None, "these are no images"
    assert np.array_equal(pixels_of(given.images), originals), "the given images were changed"
    for result in results:
        check_result(result, originals, given.eps)
        if given.trusted:
            check_with_model(result, originals, given.clean, given.settings.get("targets"))
    if given.misbehaved:
        assert any(result.verification is None for result in results), "a wrong answer of the model was accepted"
        assert given.settings.get("verify"), "a wrong answer of the model was accepted"
    return "result"


def pixels_of(images: Any) -> Any:
    """Return the given images as one array; None if they are none."""
    try:
        return np.stack([np.asarray(each.detach() if hasattr(each, "detach") else each) for each in images])
    except Exception:
        return None


def _called(given: Input, function: str) -> list[Result]:
    draw = given.draw
    draw.note(function=function)
    about = given.images, given.labels, given.eps
    if function == "compare":
        comparison = parsimon.compare(given.model, *about, given.attacks, **given.settings)
        assert str(comparison)
        assert 0 <= comparison.robust_accuracy <= 1
        return [*comparison.results.values()]
    if function == "evaluate":
        for name in ("targets", "at_most", "sample"):
            given.settings.pop(name, None)
        evaluation = parsimon.evaluate(given.model, *about, attacks=given.attacks, **given.settings)
        check_evaluation(evaluation)
        return [*evaluation.results.values()]
    attack = given.attacks[0] if isinstance(given.attacks, list) and given.attacks else given.attacks
    result = parsimon.attack(given.model, *about, attack=attack, **given.settings)
    if given.trusted and draw.chance(0.5):
        settings = {**given.settings, "batch_size": draw.choice((2, 5, 200)), "in_flight": draw.choice((None, 1, 3))}
        assert parsimon.attack(given.clean_model, *about, attack=attack, **settings).outcomes == result.outcomes
    return [result]

"""Defences by name, such as `noise`, `aaa:cifar10` or `jpeg,quality=50`, and models behind several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from parsimon.core.docstrings import describe_configurable
from parsimon.core.model import Model
from parsimon.core.parsing import kind_named, parse_configured
from parsimon.core.threat import Scores
from parsimon.defences.aaa import AAA
from parsimon.defences.base import Defence, with_score_kind
from parsimon.defences.bit_depth import BitDepth
from parsimon.defences.blacklight import Blacklight
from parsimon.defences.input_noise import InputNoise
from parsimon.defences.jpeg import Jpeg
from parsimon.defences.resize_pad import ResizePad
from parsimon.defences.rounded_scores import RoundedScores
from parsimon.errors import InputError, quote

DEFENCES: dict[str, type[Defence]] = {
    "noise": InputNoise,
    "resize-pad": ResizePad,
    "jpeg": Jpeg,
    "bit-depth": BitDepth,
    "round": RoundedScores,
    "aaa": AAA,
    "blacklight": Blacklight,
}


def parse_defence(text: str) -> Defence:
    """Return the defence that a text names, perhaps with a preset after a colon and settings after commas."""
    return parse_configured(text, "defence", DEFENCES)


def format_defence(defence: Defence) -> str:
    """Return the text that names a defence with its settings: what `parse_defence` reads as an equal one."""
    name = next((name for name, kind in DEFENCES.items() if type(defence) is kind), None)
    if name is None:
        raise InputError(
            f"{type(defence).__name__} has no name under which a run can store it: put it in front of the model "
            "yourself, as in model=defence.protect(as_model(model))",
            argument="defence",
        )
    default = DEFENCES[name]()
    given = {each.name: getattr(defence, each.name) for each in fields(defence)}  # type: ignore[arg-type]
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in given.items()}
    typed = [f"{key}={_typed(value)}" for key, value in plain.items() if value != getattr(default, key)]
    return ",".join([name, *typed])


def _typed(value: Any) -> str:
    """Return a setting as text that is read as the same value, with all digits."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def as_texts(defence: Any) -> tuple[str, ...]:
    """Return defences as texts, in their order: one name or object, or a sequence of them."""
    given = [defence] if isinstance(defence, Defence | str) else defence
    if isinstance(given, Sequence) and all(isinstance(each, Defence | str) for each in given):
        return tuple(each if isinstance(each, str) else format_defence(each) for each in given)
    raise InputError(
        f"defence must be a name such as 'noise,sigma=0.02', or a list of names; got {quote(defence)}",
        argument="defence",
    )


def check_together(defences: Sequence[Defence], detector: object = None) -> None:
    """Refuse defences that cannot stand in front of one model, which may have a detector already."""
    if sum(each.changes == "nothing" for each in defences) + (detector is not None) > 1:
        raise InputError("a model can have only one stateful defence", argument="defence")


def defended(model: Model, defences: Sequence[Defence | str], returns: Scores | None = None) -> Model:
    """Return the model behind several defences, in the order in which a query passes them.

    The first defence receives the query first and the response last. A stateful defence sees the queries as they are
    sent, wherever it stands in the list. There can be only one. `returns` is what the model returns, if it is known.
    """
    if isinstance(defences, Defence | str) or not isinstance(defences, Sequence):
        raise InputError(f"defences must be a list of defences or names; got {quote(defences)}", argument="defences")
    parsed = [_as_defence(each) for each in defences]
    check_together(parsed, model.detector)
    for defence in reversed(parsed):
        model = defence.protect(model)
    return model if returns is None else with_score_kind(model, returns)


def any_random(defences: Sequence[str]) -> bool:
    """Return whether one of these defences makes any model random."""
    return any(each.random for each in map(parse_defence, defences))


def describe(name: str) -> dict[str, Any]:
    """Return everything about a defence: what it changes, whether it is random, its paper, presets and settings."""
    defence = kind_named(name, "defence", DEFENCES)
    return describe_configurable(name, defence, changes=defence.changes, random=defence.random)


def _as_defence(defence: Defence | str) -> Defence:
    if isinstance(defence, str):
        return parse_defence(defence)
    if isinstance(defence, Defence):
        return defence
    raise InputError(f"a defence must be an instance of parsimon.defences.Defence or a name; got {quote(defence)}")

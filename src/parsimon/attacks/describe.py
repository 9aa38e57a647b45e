"""Describe an attack and its needs as plain values, for `parsimon attacks` and for scripts."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from parsimon.attacks import ATTACKS
from parsimon.core.docstrings import meanings_of, summary_of
from parsimon.core.types import Attack
from parsimon.errors import unknown_name

NORM = "L-infinity"  # of every ball; see `Threat`


def describe(name: str) -> dict[str, Any]:
    """Return everything about an attack: what it needs, its paper, presets and settings."""
    if name not in ATTACKS:
        raise unknown_name("there is no attack", name, "The attacks are", ATTACKS)
    attack = ATTACKS[name]
    return {
        "name": name,
        "class": attack.__name__,
        "summary": summary_of(attack),
        "needs": attack.needs,
        "norm": NORM,
        "paper": None if attack.paper is None else attack.paper._asdict(),
        "presets": {
            preset: {key: _typed(value) for key, value in settings.items()}
            for preset, settings in attack.presets.items()
        },
        "settings": _settings(attack),
    }


def _settings(attack: type[Attack]) -> list[dict[str, str]]:
    hints, meanings = get_type_hints(attack), meanings_of(attack)
    return [
        {
            "name": field.name,
            "type": _type_name(hints[field.name]),
            "default": _typed(field.default),
            "meaning": meanings[field.name],
        }
        for field in fields(attack)  # type: ignore[arg-type]  # every attack is a dataclass
    ]


def _typed(value: Any) -> str:
    """Return a value as it is typed on the command line."""
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _type_name(hint: Any) -> str:
    """Return a type in the words of a user."""
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    if get_origin(hint) is tuple:
        return "ROWSxCOLUMNS"
    if get_args(hint):
        return " or ".join(_type_name(each) for each in get_args(hint))
    return {bool: "true or false", int: "whole number", float: "number", NoneType: "none"}.get(hint, "text")

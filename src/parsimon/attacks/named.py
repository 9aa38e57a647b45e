"""An attack by what a person types: `nes`, `bandits:imagenet-0.05`, `square,share=0.3`, `nes:cifar10,strict=true`."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from parsimon.attacks import ATTACKS
from parsimon.errors import InputError, quote
from parsimon.parsing import parse_number
from parsimon.protocol import Attack


def open_attack(text: str) -> Attack:
    """The attack that is named: its name, perhaps a preset after a colon, perhaps settings after commas."""
    head, *assignments = text.split(",")
    name, _, preset = head.strip().partition(":")
    if name not in ATTACKS:
        raise InputError(f"there is no attack {quote(name)}: choose one of {', '.join(ATTACKS)}")
    attack = ATTACKS[name]
    settings: dict[str, Any] = {}
    for assignment in assignments:
        key, value = _setting(name, attack, assignment)
        if key in settings:
            raise InputError(f"{key} is set twice in {quote(text)}")
        settings[key] = value
    return attack.preset(preset, **settings) if preset else attack(**settings)


def _setting(name: str, attack: type[Attack], assignment: str) -> tuple[str, Any]:
    key, equals, text = (part.strip() for part in assignment.partition("="))
    names = [field.name for field in fields(attack)]  # type: ignore[arg-type]  # every attack is a dataclass
    if not equals or key not in names:
        known = ", ".join(f"{each}=..." for each in names) or "(none)"
        raise InputError(f"the settings of {name} are {known}; got {quote(assignment)}")
    hint = get_type_hints(attack)[key]
    try:
        return key, _value(text, hint)
    except (ValueError, KeyError):
        kind = hint.__name__ if isinstance(hint, type) else str(hint)
        raise InputError(f"{key} of {name} must be of type {kind}; got {quote(text)}") from None


def _value(text: str, hint: Any) -> Any:
    kinds = get_args(hint) or (hint,)
    if NoneType in kinds and text == "none":
        return None
    if bool in kinds:
        return {"true": True, "false": False}[text]
    if any(get_origin(kind) is tuple for kind in (hint, *kinds)):  # 256x256
        rows, columns = text.split("x")
        return int(rows), int(columns)
    if int in kinds:
        return int(text)
    if float in kinds:
        return parse_number(text)
    return text

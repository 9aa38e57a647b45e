"""An attack by what a person types: `nes`, `bandits:imagenet-0.05`, `square,share=0.3`, `nes:cifar10,strict=true`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from parsimon.attacks import ATTACKS
from parsimon.core.parsing import parse_number
from parsimon.core.types import Attack
from parsimon.errors import InputError, quote


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


def named_rows(attacks: Sequence[Attack | str] | Mapping[str, Attack | str]) -> dict[str, Attack]:
    """Attacks by the names of their rows: the class's name, with whatever else was typed or set."""
    if isinstance(attacks, Attack | str) or not isinstance(attacks, Mapping | Sequence):
        raise InputError(
            f"attacks must be a list of attacks or names, or a mapping from rows to them; got {quote(attacks)}"
        )
    if isinstance(attacks, Mapping):
        rows = {str(name): _opened(attack) for name, attack in attacks.items()}
    else:
        rows = _rows_of(attacks)
    if not rows:
        raise InputError("there is no attack to run: name at least one")
    return rows


def _rows_of(attacks: Sequence[Attack | str]) -> dict[str, Attack]:
    rows: dict[str, Attack] = {}
    for each in attacks:
        attack = _opened(each)
        name = type(attack).__name__
        if isinstance(each, str):
            name += each.removeprefix(each.partition(",")[0].partition(":")[0])
        if name in rows and rows[name] != attack:
            name = repr(attack)
        if name in rows:
            raise InputError(f"{quote(each)} is given twice")
        rows[name] = attack
    return rows


def _opened(attack: Attack | str) -> Attack:
    if isinstance(attack, str):
        return open_attack(attack)
    if isinstance(attack, Attack):
        return attack
    raise InputError(f"an attack must be an instance of parsimon.Attack or the name of one; got {quote(attack)}")


def row_named(name: str | None, rows: Mapping[str, Attack]) -> str | None:
    """The row that is meant, whatever its case; NES where none is."""
    wanted = "NES" if name is None else name
    found = next((row for row in rows if isinstance(wanted, str) and row.lower() == wanted.lower()), None)
    if name is not None and found is None:
        raise InputError(f"relative_to must be one of {', '.join(rows)}; got {quote(name)}")
    return found

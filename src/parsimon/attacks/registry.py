"""Attacks by name: the one parser of `name:preset,key=value`.

Examples: `nes`, `bandits:imagenet-0.05`, `square,p_init=0.3`, `nes:cifar10,strict=true`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from parsimon.attacks import ATTACKS
from parsimon.attacks.square import Square
from parsimon.core.parsing import parse_number
from parsimon.core.types import Attack
from parsimon.errors import InputError, did_you_mean, quote, unknown_name

# Names of settings before version 0.3, under which stored runs may have them.
_OLD_NAMES: Mapping[type[Attack], Mapping[str, str]] = {Square: {"share": "p_init"}}

_REFERENCE = "NES"  # the row over whose successes queries are averaged once more, unless another one is named


def parse_attack(text: str) -> Attack:
    """Return the attack that a text names, perhaps with a preset after a colon and settings after commas."""
    head, *assignments = text.split(",")
    name, _, preset = head.strip().partition(":")
    if name not in ATTACKS:
        raise unknown_name("there is no attack", name, "The attacks are", ATTACKS)
    kind = ATTACKS[name]
    settings: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals:
            raise InputError(f"the settings of {name} are written as key=value; got {quote(assignment)}")
        key = _OLD_NAMES.get(kind, {}).get(key, key)
        if key in settings:
            raise InputError(f"{key} is set twice in {quote(text)}")
        settings[key] = _parse_setting(name, key, value)
    return kind.preset(preset, **settings) if preset else kind(**settings)


def setting_names(kind: type[Attack]) -> list[str]:
    """Return the names of an attack's settings."""
    return [field.name for field in fields(kind)]  # type: ignore[arg-type]  # every attack is a dataclass


def split_settings(
    kind: type[Attack], given: Mapping[str, Any], run_settings: Collection[str]
) -> tuple[Attack, dict[str, Any]]:
    """Return the attack made of its own settings and perhaps a `preset`, and the settings of the run.

    `run_settings` names those; any other setting is refused.
    """
    own = setting_names(kind)
    for key in given:
        if key not in (*own, "preset", *run_settings):
            raise unknown_name(f"{kind.__name__} has no setting", key, "It has", [*own, "preset", *run_settings])
    preset, settings = given.get("preset"), {key: given[key] for key in given if key in own}
    attack = kind(**settings) if preset is None else kind.preset(preset, **settings)
    return attack, {key: given[key] for key in given if key in run_settings}


def _parse_setting(name: str, key: str, text: str) -> Any:
    kind = ATTACKS[name]
    if key not in setting_names(kind):
        raise unknown_name(f"{name} has no setting", key, "Its settings are", setting_names(kind))
    hint = get_type_hints(kind)[key]
    try:
        return _parse_value(text, hint)
    except (ValueError, KeyError):
        expected = hint.__name__ if isinstance(hint, type) else str(hint)
        raise InputError(f"{key} of {name} must be of type {expected}; got {quote(text)}") from None


def _parse_value(text: str, hint: Any) -> Any:
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


def attack_rows(attacks: Sequence[Attack | str] | Mapping[str, Attack | str]) -> dict[str, Attack]:
    """Return attacks by the names of their table rows: the class's name, and the preset and settings as typed."""
    if isinstance(attacks, Attack | str) or not isinstance(attacks, Mapping | Sequence):
        raise InputError(
            f"attacks must be a list of attacks or names, or a mapping from row names to them; got {quote(attacks)}"
        )
    if isinstance(attacks, Mapping):
        rows = {str(name): _as_attack(attack) for name, attack in attacks.items()}
    else:
        rows = _rows_of_list(attacks)
    if not rows:
        raise InputError("there is no attack to run: name at least one")
    return rows


def _rows_of_list(attacks: Sequence[Attack | str]) -> dict[str, Attack]:
    rows: dict[str, Attack] = {}
    for given in attacks:
        attack = _as_attack(given)
        name = type(attack).__name__
        if isinstance(given, str):
            name += given.removeprefix(given.partition(",")[0].partition(":")[0])
        if name in rows and rows[name] != attack:
            name = repr(attack)
        if name in rows:
            raise InputError(f"{quote(given)} is given twice")
        rows[name] = attack
    return rows


def _as_attack(attack: Attack | str) -> Attack:
    if isinstance(attack, str):
        return parse_attack(attack)
    if isinstance(attack, Attack):
        return attack
    raise InputError(f"an attack must be an instance of parsimon.Attack or the name of one; got {quote(attack)}")


def reference_row(name: str | None, rows: Collection[str]) -> str | None:
    """Return the row of this name, in whatever case; without a name, that of NES if there is one."""
    wanted = _REFERENCE if name is None else name
    found = next((row for row in rows if isinstance(wanted, str) and row.lower() == wanted.lower()), None)
    if name is not None and found is None:
        raise InputError(f"relative_to must be one of {', '.join(rows)}; got {quote(name)}{did_you_mean(name, rows)}")
    return found

"""Attacks by name, such as `nes`, `bandits:imagenet-0.05` or `square,p_init=0.3`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from parsimon.attacks import ATTACKS
from parsimon.attacks.square import Square
from parsimon.core.parsing import parse_configured, setting_names
from parsimon.core.types import Attack
from parsimon.errors import InputError, did_you_mean, plain_number, quote, unknown_name

# Names of settings before version 0.3, under which stored runs may have them.
_OLD_NAMES: Mapping[type[Attack], Mapping[str, str]] = {Square: {"share": "p_init"}}

_REFERENCE = "NES"  # the row over whose successes queries are averaged once more, unless another one is named


def parse_attack(text: str) -> Attack:
    """Return the attack that a text names, perhaps with a preset after a colon and settings after commas."""
    return parse_configured(text, "attack", ATTACKS, _OLD_NAMES)


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
        return _with_plain_numbers(attack)
    raise InputError(f"an attack must be an instance of parsimon.Attack or the name of one; got {quote(attack)}")


def _with_plain_numbers(attack: Attack) -> Attack:
    """Return an attack whose settings are Python's own numbers: those of numpy wrap around, and fractions are slow."""
    if not is_dataclass(attack):
        return attack
    given = {each.name: getattr(attack, each.name) for each in fields(attack) if each.init}
    plain = {name: tuple(map(plain_number, _parts(value))) for name, value in given.items()}
    changed = {
        name: parts if isinstance(given[name], tuple) else parts[0]
        for name, parts in plain.items()
        if [*map(type, parts)] != [*map(type, _parts(given[name]))]
    }
    return replace(attack, **changed) if changed else attack


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def reference_row(name: str | None, rows: Collection[str]) -> str | None:
    """Return the row of this name, in whatever case; without a name, that of NES if there is one."""
    wanted = _REFERENCE if name is None else name
    found = next((row for row in rows if isinstance(wanted, str) and row.lower() == wanted.lower()), None)
    if name is not None and found is None:
        raise InputError(f"relative_to must be one of {', '.join(rows)}; got {quote(name)}{did_you_mean(name, rows)}")
    return found

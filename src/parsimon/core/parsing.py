"""Numbers and settings as people type them: the one parser of `name:preset,key=value`.

Examples: `nes`, `bandits:imagenet-0.05`, `square,p_init=0.3`, `nes:cifar10,strict=true`, `noise,sigma=0.05`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from types import NoneType
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from parsimon.errors import InputError, quote, unknown_name

_LONGEST = 100  # characters of a number
_LARGE_EXPONENT = re.compile(r"e[-+]?[\d_]{4,}", re.IGNORECASE)


def parse_number(text: str) -> float:
    """Return a number or a fraction such as 8/255 as a float; raise ValueError for anything else.

    A fraction is exact, so `1e99999999` would take hours and all memory: such exponents are refused before.
    """
    if len(text) > _LONGEST or _LARGE_EXPONENT.search(text):
        raise ValueError("a number of this size is not supported")
    try:
        return float(Fraction(text))
    except ArithmeticError as error:  # a division by zero, or a number beyond the largest float
        raise ValueError(str(error)) from error


class Configurable:
    """A dataclass whose fields are settings.

    Attributes:
        presets: Published settings, by name.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def preset(cls, name: str, **settings: Any) -> Self:
        """Return an instance with published settings, except those given here."""
        if name not in cls.presets:
            raise unknown_name(f"{cls.__name__} has no preset", name, "Its presets are", cls.presets)
        return cls(**{**cls.presets[name], **settings})


Kind = TypeVar("Kind", bound=Configurable)


def parse_configured(
    text: str,
    what: str,
    kinds: Mapping[str, type[Kind]],
    old_names: Mapping[type[Kind], Mapping[str, str]] | None = None,
) -> Kind:
    """Return the instance that a text names, perhaps with a preset after a colon and settings after commas.

    `what` is the word for all of them in messages; `old_names` maps former names of settings to those of today.
    """
    head, *assignments = text.split(",")
    name, _, preset = head.strip().partition(":")
    kind = kind_named(name, what, kinds)
    settings: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals:
            raise InputError(f"the settings of {name} are written as key=value; got {quote(assignment)}")
        key = (old_names or {}).get(kind, {}).get(key, key)
        if key in settings:
            raise InputError(f"{key} is set twice in {quote(text)}")
        settings[key] = _parse_setting(name, kind, key, value)
    made: Kind = kind.preset(preset, **settings) if preset else kind(**settings)
    return made


def kind_named(name: str, what: str, kinds: Mapping[str, type[Kind]]) -> type[Kind]:
    """Return the class of this name; `what` is the word for all of them in messages."""
    if name not in kinds:
        raise unknown_name(f"there is no {what}", name, f"The {what}s are", kinds)
    return kinds[name]


def setting_names(kind: type[Any]) -> list[str]:
    """Return the names of the settings of a dataclass."""
    return [field.name for field in fields(kind)]


def _parse_setting(name: str, kind: type[Any], key: str, text: str) -> Any:
    if key not in setting_names(kind):
        raise unknown_name(f"{name} has no setting", key, "Its settings are", setting_names(kind))
    hint = get_type_hints(kind)[key]
    try:
        return _parse_value(text, hint)
    except (ValueError, KeyError):
        expected = type_name(hint)
        article = "a " if expected.startswith(("number", "whole number")) else ""
        raise InputError(f"{key} of {name} must be {article}{expected}; got {quote(text)}") from None


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


def typed_value(value: Any) -> str:
    """Return a value as it is typed on the command line."""
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def type_name(hint: Any) -> str:
    """Return a type in the words of a user."""
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    if get_origin(hint) is tuple:
        return "ROWSxCOLUMNS"
    if get_args(hint):
        return " or ".join(type_name(each) for each in get_args(hint))
    return {bool: "true or false", int: "whole number", float: "number", NoneType: "none"}.get(hint, "text")

"""Values that people, scripts and accidents put where a setting belongs."""

from __future__ import annotations

import math
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from typing import Any, get_args, get_type_hints

import numpy as np
import torch

from fuzz import Draw
from parsimon.attacks import ATTACKS
from parsimon.core.types import Attack

LONG = "x" * 5000


class Unprintable:
    """An object whose own description fails, and which is larger, smaller and equal to nothing."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    def __eq__(self, _: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


WHOLE = (0, -1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 10**5000, np.int8(3), np.uint64(2**64 - 1), np.int64(7))
NUMBERS = (
    *(0.0, -0.0, -1.5, math.nan, math.inf, -math.inf, 1e-45, 5e-324, 1e-12, 1e308, 1e-9, 1e9, 1.0, 0.5),
    *(np.float16(0.1), np.float32(0.1), np.float64(0.1), np.longdouble(0.1), np.float32(1e-45), Fraction(1, 3)),
)
OTHERS: tuple[Any, ...] = (
    *(True, False, None, "", "3", LONG, b"3", [], [3], {}, (), object(), 1j, Decimal("0.1"), int, print, ...),
    *(np.array(3), np.array([1, 2]), np.array(0.1), np.True_, np.datetime64("2020-01-01"), np.str_("nes")),
    *(torch.tensor(3), torch.tensor(0.1), range(3), {1: 2}, "\0\ud800", Unprintable()),
)
TEXTS = (
    *("", " ", "0", "-1", "3", "+3", "0x10", "1_0", "1e3", "1e-3", "1e999", "1e99999999", "nan", "inf", "-inf", "3.0"),
    *("1/3", "1/0", "8/255", "9" * 40, "9" * 5000, "\u0663", "\u00bd", "none", "None", "true", "True", "yes", "null"),
    *("4x4", "0x0", "8x8x8", "2147483647x2147483647", "x", "=", ",", ":", "[]", "\t", "\r\n", "\x1b[31m", "\u202e"),
    *("\udcff", "\U0001f600", "lazy", "paper", "published", "pixel", "dct", "naive", "stochastic", "%s{0}"),
    *("[bold]x[/]", "[/]", LONG),
)


def anything(draw: Draw) -> Any:
    """Return a value of any type."""
    return draw.choice(draw.choice((WHOLE, NUMBERS, OTHERS, TEXTS)))


def attack_name(draw: Draw) -> str:
    """Return the name of an attack; seldom PGD, which few models here can run."""
    return draw.choice([*ATTACKS][:-1] * 3 + [*ATTACKS][-1:])


def attack_text(draw: Draw) -> str:
    """Return an attack as it is typed: right, nearly right or absurd."""
    name = attack_name(draw) if draw.chance(0.97) else draw.choice(TEXTS)
    kind = ATTACKS.get(name)
    text = name
    if draw.chance(0.1):
        presets = [*kind.presets] if kind is not None else []
        text += ":" + draw.choice(presets if presets and draw.chance(0.8) else [*TEXTS])
    settings = [field.name for field in fields(kind)] if kind is not None else ["block"]  # type: ignore[arg-type]
    for setting in draw.some([*settings, *settings, *settings, "no"], draw.choice((0, 0, 0, 1, 1, 2))):
        good = kind is not None and setting in settings and draw.chance(0.85)
        text += f",{setting}={typed(good_setting(draw, kind, setting)) if good and kind else draw.choice(TEXTS)}"
    return mutated(draw, text) if draw.chance(0.05) else text


def typed(value: Any) -> str:
    """Return a setting's value as it is typed."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def attack_object(draw: Draw) -> Attack:
    """Return an attack with random settings; the constructor may refuse them."""
    kind = ATTACKS[attack_name(draw)]
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    settings = {name: good_setting(draw, kind, name) for name in draw.some(names, 2)}
    if names and draw.chance(0.08):
        settings[draw.choice(names)] = anything(draw)
    draw.note(attack=(kind.__name__, settings))
    return kind(**settings)


def good_setting(draw: Draw, kind: type[Attack], name: str) -> Any:
    """Return a value of the right type, which the attack may refuse all the same."""
    hint = get_type_hints(kind)[name]
    kinds = get_args(hint) or (hint,)
    if bool in kinds:
        return draw.chance(0.5)
    if all(isinstance(each, str) for each in kinds):
        return draw.choice(kinds)
    if hint is float:
        precision = draw.choice((float,) * 8 + (np.float16, np.float32))
        with np.errstate(over="ignore"):
            return precision(draw.one(1e-9, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99, 1, 1, 3.7, 1e9))
    if int in kinds:
        return draw.one(1, 2, 3, 4, 8, 16, 64, 1000, 2**20, 2**30, 2**31 - 2, 2**31 - 1)
    return draw.one(None, (1, 1), (2, 2), (4, 4), (3, 5), (8, 8), (64, 64), (1, 2**31 - 1), (2**31 - 1, 2**31 - 1))


def mutated(draw: Draw, text: str, most: int = 3) -> str:
    """Return the text with a few characters deleted, doubled, swapped or inserted."""
    characters = list(text)
    for _ in range(draw.randint(1, most)):
        place = draw.randint(0, len(characters))
        match draw.randrange(5):
            case 0:
                del characters[place : place + draw.randint(1, 3)]
            case 1:
                characters[place:place] = characters[place : place + draw.randint(1, 20)]
            case 2:
                characters[place : place + 2] = characters[place : place + 2][::-1]
            case 3:
                characters[place:place] = draw.choice(TEXTS)
            case _:
                characters.insert(place, chr(draw.choice((0, 1, 9, 10, 34, 39, 44, 61, 91, 93, 0x2028, 0x1F600))))
    return "".join(characters)

"""Describe an attack and its needs as plain values, for `parsimon attacks` and for scripts."""

from __future__ import annotations

from typing import Any

from parsimon.attacks import ATTACKS
from parsimon.core.docstrings import describe_configurable
from parsimon.core.parsing import kind_named

NORM = "L-infinity"  # of every ball; see `Threat`


def describe(name: str) -> dict[str, Any]:
    """Return everything about an attack: what it needs, its paper, presets and settings."""
    attack = kind_named(name, "attack", ATTACKS)
    return describe_configurable(name, attack, needs=attack.needs, norm=NORM)

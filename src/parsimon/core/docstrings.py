"""Docstrings as data, so that help and templates repeat what the code says about itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from parsimon.core.parsing import type_name, typed_value


def summary_of(record: type) -> str:
    """Return the first line of a class's docstring."""
    return (inspect.getdoc(record) or "").partition("\n")[0]


def meanings_of(record: type) -> dict[str, str]:
    """Return what the section `Attributes` of a class's docstring says about each attribute, as one line each."""
    _, _, section = (inspect.getdoc(record) or "").partition("Attributes:\n")
    section = re.split(r"\n(?=\S)", section)[0]
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def describe_configurable(name: str, kind: type[Any], **traits: Any) -> dict[str, Any]:
    """Return everything about an attack or a defence as plain values; `traits` are those that the other lacks."""
    return {
        "name": name,
        "class": kind.__name__,
        "summary": summary_of(kind),
        **traits,
        "paper": None if kind.paper is None else kind.paper._asdict(),
        "presets": describe_presets(kind.presets),
        "settings": describe_settings(kind),
    }


def describe_settings(record: type[Any]) -> list[dict[str, str]]:
    """Return name, type, default and meaning of each setting of a dataclass, in the words of a user."""
    hints, meanings = get_type_hints(record), meanings_of(record)
    return [
        {
            "name": field.name,
            "type": type_name(hints[field.name]),
            "default": typed_value(field.default),
            "meaning": meanings[field.name],
        }
        for field in fields(record)
    ]


def describe_presets(presets: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the settings of each preset as they are typed on the command line."""
    return {
        preset: {key: typed_value(value) for key, value in settings.items()} for preset, settings in presets.items()
    }

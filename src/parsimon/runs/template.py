"""Commented TOML files with every setting, its default and its meaning, made from the configurations' docstrings."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import tomli_w

from parsimon.core.docstrings import meanings_of
from parsimon.runs.config import Checked, ExecutionOptions, RunConfig, allowed_values
from parsimon.runs.evaluation import OWN_SETTINGS, SHARED_SETTINGS, EvaluationConfig

_WIDTH = 98  # characters in a comment, without its sign


def run_template() -> str:
    """Return a file for `parsimon run` that describes the default run."""
    names = [name for name in RunConfig.__struct_fields__ if name != "execution"]
    head = "A run. Start it with: parsimon run FILE"
    return _file(head, _settings(RunConfig(), names))


def evaluation_template() -> str:
    """Return a file for `parsimon evaluate` that describes the default evaluation."""
    config = EvaluationConfig()
    head = "An evaluation. Start it with: parsimon evaluate FILE"
    return _file(head, [*_settings(config, OWN_SETTINGS), *_settings(config.run, SHARED_SETTINGS)])


def _file(head: str, settings: Iterable[str]) -> str:
    execution = _settings(ExecutionOptions(), ExecutionOptions.__struct_fields__)
    lines = [
        f"# {head}",
        "# Every setting has its default. A line without a value is optional: remove its # to set it.",
        "",
        *settings,
        "[execution]  # none of it affects results",
        "",
        *execution,
    ]
    return "\n".join(lines).rstrip() + "\n"


def _settings(config: Checked, names: Iterable[str]) -> Iterator[str]:
    """Yield the lines of some settings: what each means, and its default or what it may be."""
    meanings = meanings_of(type(config))
    for name in names:
        value = getattr(config, name)
        meaning = meanings[name].replace("; None:", "; left out:").replace("None:", "Left out:")
        yield from (f"# {line}" for line in textwrap.wrap(meaning, _WIDTH))
        yield f"# {name} =   ({allowed_values(type(config), name)})" if value is None else _assignment(name, value)
        yield ""


def _assignment(name: str, value: Any) -> str:
    text = tomli_w.dumps({name: list(value) if isinstance(value, tuple) else value}).strip()
    return " ".join(text.split()).replace("[ ", "[").replace(", ]", "]").replace(" ]", "]")

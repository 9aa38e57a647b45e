"""Write the tables of settings and presets into docs/reference/attacks.md and docs/reference/defences.md.

The tables come from the dataclasses. A test compares the pages with the output of this script.

python docs/_make/settings_tables.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from _shared import filled
from parsimon.attacks import ATTACKS
from parsimon.attacks.describe import describe as describe_attack
from parsimon.defences import DEFENCES
from parsimon.defences.registry import describe as describe_defence

REFERENCE = Path(__file__).parents[1] / "reference"


class Kind(NamedTuple):
    """The contents of a page: its names, and functions that describe one and state its facts."""

    names: tuple[str, ...]
    describe: Callable[[str], dict[str, Any]]
    facts: Callable[[dict[str, Any]], str]


def page(path: Path) -> str:
    """Return a page with fresh tables between its markers."""
    kind = PAGES[path]
    *lines, last = [line for name in kind.names for line in section(kind, name)]
    assert not last, "a section ends with an empty line"
    return filled(path.read_text(), "settings_tables.py", lambda _: lines)


def section(kind: Kind, name: str) -> Iterator[str]:
    """Yield the lines on one attack or defence: its facts, settings and presets."""
    described = kind.describe(name)
    settings, presets = described["settings"], described["presets"]
    yield from (f"### {name}", "", f"`{described['class']}`: {described['summary']}", "")
    yield from (f"{kind.facts(described)}{_paper(described['paper'])}", "")
    if not settings:
        return
    yield from ("| setting | type | default | meaning |", "|---|---|---|---|")
    for each in settings:
        cells = (f"`{each['name']}`", each["type"], f"`{each['default']}`", each["meaning"])
        yield f"| {' | '.join(cells)} |"
    yield ""
    if presets:
        yield from _presets(name, presets, [each["name"] for each in settings])


def _presets(name: str, presets: dict[str, dict[str, str]], settings: list[str]) -> Iterator[str]:
    """Yield one row per preset and one column per setting that any of them changes."""
    changed = [each for each in settings if any(each in preset for preset in presets.values())]
    if not changed:
        yield from (f"Preset: {', '.join(f'`{name}:{preset}`' for preset in presets)}, the defaults.", "")
        return
    yield f"| preset | {' | '.join(f'`{each}`' for each in changed)} |"
    yield "|---|" + "---|" * len(changed)
    for preset, values in presets.items():
        cells = (f"`{values[each]}`" if each in values else "" for each in changed)
        yield f"| `{name}:{preset}`{'' if values else ': the defaults'} | {' | '.join(cells)} |"
    yield ""


def _paper(paper: dict[str, Any] | None) -> str:
    return "" if paper is None else f" From [{paper['authors']} {paper['year']}]({paper['link']})."


def _attack_facts(described: dict[str, Any]) -> str:
    return f"Needs per query: the {described['needs']}."


def _defence_facts(described: dict[str, Any]) -> str:
    return f"Changes {described['changes']}; {'random' if described['random'] else 'deterministic'}."


PAGES = {
    REFERENCE / "attacks.md": Kind(tuple(ATTACKS), describe_attack, _attack_facts),
    REFERENCE / "defences.md": Kind(tuple(DEFENCES), describe_defence, _defence_facts),
}


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(page(each))

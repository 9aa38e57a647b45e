"""`parsimon attacks`."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from parsimon.attacks import ATTACKS
from parsimon.attacks.describe import NORM, describe
from parsimon.cli.completion import ATTACK_NAMES
from parsimon.cli.listing import print_listing
from parsimon.cli.output import JSON, answer


@click.command()
@click.argument("name", required=False, shell_complete=ATTACK_NAMES)
@JSON
def attacks(name: str | None) -> None:
    """List all attacks, or describe one: what it needs, its paper, presets and settings.

    \b
    parsimon attacks
    parsimon attacks bandits
    """
    if name is None:
        every = [describe(each) for each in ATTACKS]
        answer(lambda: {"attacks": every}, partial(_list, every))
    else:
        one = describe(name)
        answer(lambda: one, partial(_show, one))


def _list(every: list[dict[str, Any]]) -> None:
    rows = []
    for each in every:
        paper = each["paper"]
        source = f"{paper['authors']} {paper['year']}" if paper else "-"
        rows.append((each["name"], each["needs"], source, ", ".join(each["presets"]) or "-"))
    print_listing(("name", "needs", "paper", "presets"), [rows])
    print(f"All work in the {NORM} ball. Needs: what the model must return for each query.")
    print("More about one: parsimon attacks NAME")


def _show(one: dict[str, Any]) -> None:
    console, paper = Console(highlight=False), one["paper"]
    console.print(f"[bold]{one['name']}[/] ({one['class']}): {escape(one['summary'])}")
    console.print(f"Needs the {one['needs']} of each query. Norm: {one['norm']}.")
    if paper:
        console.print(escape(f"Paper: {paper['authors']}, {paper['title']} ({paper['year']}), {paper['link']}"))
    for each in one["settings"]:
        console.print(escape(f"{each['name']}={each['default']}  ({each['type']})"), style="bold")
        console.print(Padding(escape(each["meaning"]), (0, 0, 0, 4)))
    for preset, settings in one["presets"].items():
        values = ", ".join(f"{key}={value}" for key, value in settings.items())
        console.print(escape(f"Preset {one['name']}:{preset}: {values or 'the defaults'}"))

"""`parsimon attacks`."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from parsimon.attacks import ATTACKS
from parsimon.attacks.describe import NEEDS, NORM, describe
from parsimon.cli.completion import ATTACK_NAMES
from parsimon.cli.listing import listed_source, print_description, print_lines, print_listing
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
    rows = [(each["name"], each["needs"], *listed_source(each)) for each in every]
    print_listing(("name", "needs", "paper", "presets"), [rows])
    print_lines(
        f"All work in the {NORM} ball. What an attack needs for each query:",
        *(f"  {level}: {meaning}" for level, meaning in NEEDS.items()),
        "More about one: parsimon attacks NAME",
    )


def _show(one: dict[str, Any]) -> None:
    needs = f"Needs the {one['needs']} of each query: {NEEDS[one['needs']]}."
    print_description(one, f"{needs} Norm: {one['norm']}.")

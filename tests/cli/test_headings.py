"""Every option of a command with many options stands below its heading in `--help`."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from parsimon.cli.commands import command
from parsimon.cli.options import _HEADINGS, GroupedCommand


def grouped(group: click.Group = command) -> Iterator[GroupedCommand]:
    for each in group.commands.values():
        if isinstance(each, click.Group):
            yield from grouped(each)
        elif isinstance(each, GroupedCommand):
            yield each


def test_commands_with_many_options_are_grouped() -> None:
    assert {each.name for each in grouped()} == {"run", "compare", "evaluate", "defend"}


@pytest.mark.parametrize("each", [*grouped()], ids=lambda each: str(each.name))
def test_every_option_has_a_heading(each: GroupedCommand) -> None:
    known = " ".join(_HEADINGS.values()).split()
    options = {option.name for option in each.params if isinstance(option, click.Option)}
    assert options <= set(known)
    assert len(set(known)) == len(known)


def test_the_price_of_a_flag_stands_beside_defences() -> None:
    (defend,) = (each for each in grouped() if each.name == "defend")
    options = defend.grouped_options(click.Context(defend))
    assert "flag_price" in [option.name for option in options["Defences and random models"]]


def test_settings_of_random_models_are_for_random_defences_too() -> None:
    """`defend noise --draws 20` needs no --random."""
    for each in grouped():
        for option in each.params:
            if option.name in ("repeats", "draws", "error_rate"):
                assert isinstance(option, click.Option)
                assert str(option.help).startswith("For a random model or defence: ")

"""Write docs/reference/command.md: the `--help` of every command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from parsimon.cli.commands import command

PAGE = Path(__file__).parents[1] / "reference" / "command.md"

_WIDTH = 100


def page() -> str:
    """Return the whole page."""
    head = ["# The command line", "", "The output of `parsimon COMMAND --help`.", ""]
    return "\n".join(
        [*head, *_helps(command, click.Context(command, info_name="parsimon", **command.context_settings))]
    )


def _helps(each: click.Command, context: click.Context) -> Iterator[str]:
    context.terminal_width = context.max_content_width = _WIDTH
    yield from (f"## {context.command_path}", "", "```text", each.get_help(context), "```", "")
    if isinstance(each, click.Group):
        for name, child in each.commands.items():
            yield from _helps(child, click.Context(child, info_name=name, parent=context))


if __name__ == "__main__":
    PAGE.write_text(page())

"""`parsimon completion`, and the values that options complete to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

import click
from click.shell_completion import CompletionItem, get_completion_class

from parsimon import zoo
from parsimon.attacks import ATTACKS
from parsimon.catalogue import entries as catalogue
from parsimon.cli.output import JSON, answer
from parsimon.experiments import exhibits

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_SHELLS = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/parsimon.fish"}


def _offering(values: Callable[[], Iterable[str]], *, files: bool = False) -> Complete:
    """Return a completion that offers values, or files if no value matches."""

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        found = [CompletionItem(value) for value in values() if value.startswith(begun)]
        return found or ([CompletionItem(begun, type="file")] if files else [])

    return complete


def _attacks() -> Iterable[str]:
    for name, attack in ATTACKS.items():
        yield name
        yield from (f"{name}:{preset}" for preset in attack.presets)


ATTACK_NAMES = _offering(_attacks)
MODEL_NAMES = _offering(zoo.networks, files=True)
DATA_NAMES = _offering(
    lambda: ["bundled", *(name for name, entry in catalogue.entries().items() if not entry.is_network)], files=True
)
ENTRY_NAMES = _offering(lambda: [*zoo.NAMES, *catalogue.entries()])
EXHIBIT_NAMES = _offering(lambda: [*exhibits(), "all"])


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@JSON
def completion(shell: str) -> None:
    """Print a completion script for a shell.

    \b
    parsimon completion bash >> ~/.bashrc
    parsimon completion zsh >> ~/.zshrc
    parsimon completion fish > ~/.config/fish/completions/parsimon.fish
    """
    known = get_completion_class(shell)
    assert known is not None, "click supports all of these"
    # Imported late, since that module imports this one.
    script = known(import_module("parsimon.cli.commands").command, {}, "parsimon", "_PARSIMON_COMPLETE").source()
    answer(lambda: {"shell": shell, "script": script}, lambda: print(script))

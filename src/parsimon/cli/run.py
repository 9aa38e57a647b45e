"""`parsimon run`, `compare` and `resume`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from parsimon import runs, zoo
from parsimon.cli.completion import ATTACK_NAMES
from parsimon.cli.options import ATTACK_HELP, DOWNLOAD, FORMAT, HOW_TO_ATTACK, MEANS, PathName, means_of, options
from parsimon.cli.output import JSON
from parsimon.cli.show import FAIL_UNDER, PICTURE, RESULTS, finish
from parsimon.errors import InputError
from parsimon.results.result import Comparison
from parsimon.results.table import TABLE_FILES
from parsimon.runs.config import Spec
from parsimon.runs.execute import ExecutionOptions

_OF_THE_PAPER = ("parsimonious", "bandits", "nes", "pgd")
_WHAT_TO_SAY = (FORMAT, FAIL_UNDER, JSON)
_TRACK = click.option(
    "--track",
    multiple=True,
    metavar="TOOL",
    help="Tell a tool of the run as it goes: tensorboard[:FOLDER], or wandb[:PROJECT], which stays offline unless "
    "WANDB_MODE says otherwise. May be given more than once.",
)


@click.command()
@options(*HOW_TO_ATTACK, DOWNLOAD, *MEANS, _TRACK, *_WHAT_TO_SAY)
@click.option("--attack", default="parsimonious", show_default=True, help=ATTACK_HELP, shell_complete=ATTACK_NAMES)
@click.argument("spec", required=False, type=PathName(), metavar="[SPEC.toml]")
@click.pass_context
def run(
    context: click.Context,
    /,
    spec: Path | None,
    attack: str,
    out: Path | None,
    download: bool,
    form: str,
    fail_under: float | None,
    **settings: Any,
) -> None:
    """Attack a model and print a table.

    Without options: the bundled adversarially trained CIFAR-10 network, 100 images, at eps 8/255. A run can also be
    described in a TOML file, with these options' names (and `attacks`, a list). It is stored as it goes: whatever ends
    it, `parsimon resume` goes on from the last reply.

    \b
    parsimon run --model standard --eps 4/255 --attack thrift
    parsimon run --model model.onnx --data images.npz --budget 10000
    parsimon run --model mypackage.models:build --data images.npz --targets random
    parsimon run --attack parsimonious,behaviour=published,block=8
    parsimon run experiment.toml --out results
    parsimon run --model model.onnx --data images.npz --attack thrift --images all --fail-under 0.30
    """
    means = {**means_of(settings), "track": settings.pop("track")}
    if spec is None:
        described = Spec(attacks=(attack,), **settings)
    else:
        _refuse_both(context, spec)
        described = Spec.read(spec)
    _store_and_show(described, out, download, form, fail_under, means)


@click.command()
@options(*HOW_TO_ATTACK, DOWNLOAD, *MEANS, _TRACK, *_WHAT_TO_SAY)
@click.option(
    "--relative-to",
    metavar="ATTACK",
    shell_complete=ATTACK_NAMES,
    help="Average queries over the images that this one fooled, too. [default: nes]",
)
@click.argument("attacks", nargs=-1, metavar="[ATTACK]...", shell_complete=ATTACK_NAMES)
def compare(
    attacks: tuple[str, ...], out: Path | None, download: bool, form: str, fail_under: float | None, **settings: Any
) -> None:
    """Several attacks on the same images of the same model, in one table.

    Without arguments those of the paper: parsimonious, bandits, nes, and pgd as the white-box line. An ATTACK is one of
    parsimonious, thrift, bandits, nes, square, signhunter, simba, random, pgd; with a published experiment's settings
    after a colon, and settings of your own after commas.

    \b
    parsimon compare
    parsimon compare parsimonious square signhunter --budget 5000
    parsimon compare bandits bandits,strict=true nes:imagenet-0.05 --model model.onnx --data images.npz
    """
    means = {**means_of(settings), "track": settings.pop("track")}
    _store_and_show(Spec(attacks=attacks or _OF_THE_PAPER, **settings), out, download, form, fail_under, means)


@click.command()
@options(*MEANS, _TRACK, *_WHAT_TO_SAY)
@click.argument("folder", type=PathName())
def resume(folder: Path, form: str, fail_under: float | None, **means: Any) -> None:
    """Go on with a run where it was left off, in the middle of an image if need be.

    No query that was answered is asked again. A run that is over is shown again.
    """
    finish(_tracked(partial(runs.resume, folder), runs.spec_of(folder), folder, means), folder, form, fail_under)


def _refuse_both(context: click.Context, spec: Path) -> None:
    """A file describes the whole run: an option beside it would be lost or would make the file a lie."""
    free = {"spec", "out", "download", "form", "fail_under", "track", *ExecutionOptions.__annotations__}
    for name in context.params:
        if name not in free and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise InputError(f"{spec} describes the run, so --{name.replace('_', '-')} must be set there")


def _store_and_show(
    spec: Spec, out: Path | None, download: bool, form: str, fail_under: float | None, means: dict[str, Any]
) -> None:
    folder = _results_folder(out)
    zoo.ensure([spec.model, spec.data], download=download)
    finish(_tracked(partial(runs.run, spec, folder), spec, folder, means), folder, form, fail_under)


def _tracked(begin: Callable[..., Comparison], spec: Spec, folder: Path, means: dict[str, Any]) -> Comparison:
    """The run, and all who follow it told of it."""
    texts = means.pop("track")
    if not texts:
        return begin(**means)
    from parsimon.tracking import tracking

    with tracking(texts, folder, asdict(spec)) as told:
        comparison = begin(watch=told.step, **means)
        told.end(comparison, runs.classes_of(folder))
    return comparison


def _results_folder(out: Path | None) -> Path:
    """Where to write; found before the run, so that a bad choice costs nothing, and never over earlier results."""
    folder = out or Path("parsimon-results") / time.strftime("%Y-%m-%d-%H%M%S")
    if runs.is_run(folder):
        raise InputError(f"{folder} holds a run; choose another folder with --out, or: parsimon resume {folder}")
    if any((folder / name).exists() for name in (RESULTS, PICTURE, *TABLE_FILES.values())):
        raise InputError(f"{folder} already holds results; choose another folder with --out")
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise InputError(f"{there} is a file; choose a folder with --out")
    if not os.access(there, os.W_OK):
        raise InputError(f"{there} cannot be written to; choose another folder with --out")
    return folder

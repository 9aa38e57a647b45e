"""`parsimon run`, `compare` and `resume`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from parsimon import runs, zoo
from parsimon.cli.options import ATTACK_HELP, DOWNLOAD, FORMAT, HOW_TO_ATTACK, IN_FLIGHT, options
from parsimon.cli.show import PICTURE, RESULTS, show
from parsimon.errors import InputError
from parsimon.report.table import TABLE_FILES
from parsimon.spec import Spec

_OF_THE_PAPER = ("parsimonious", "bandits", "nes", "pgd")


@click.command()
@options(*HOW_TO_ATTACK, DOWNLOAD, IN_FLIGHT, FORMAT)
@click.option("--attack", default="parsimonious", show_default=True, help=ATTACK_HELP)
@click.argument("spec", required=False, type=click.Path(path_type=Path), metavar="[SPEC.toml]")
@click.pass_context
def run(
    context: click.Context,
    /,
    spec: Path | None,
    attack: str,
    out: Path | None,
    download: bool,
    in_flight: int | None,
    form: str,
    **settings: Any,
) -> None:
    """Attack a model and print a table.

    Without options: the bundled adversarially trained CIFAR-10 network, 100 images, at eps 8/255. A run can also be
    described in a TOML file, with the names of these options. It is stored as it goes: whatever ends it, `parsimon
    resume` goes on from the last reply.

    \b
    parsimon run --model standard --eps 4/255
    parsimon run --model model.onnx --data images.npz --budget 10000
    parsimon run --model mypackage.models:build --data images.npz --targets random
    parsimon run --attack parsimonious,behaviour=published,block=8
    parsimon run experiment.toml --out results
    """
    if spec is None:
        described = Spec(attacks=(attack,), **settings)
    else:
        _refuse_both(context, spec)
        described = Spec.read(spec)
    _store_and_show(described, out, download, in_flight, form)


@click.command()
@options(*HOW_TO_ATTACK, DOWNLOAD, IN_FLIGHT, FORMAT)
@click.option(
    "--relative-to", metavar="ATTACK", help="Average queries over the images that this one fooled, too. [default: nes]"
)
@click.argument("attacks", nargs=-1, metavar="[ATTACK]...")
def compare(
    attacks: tuple[str, ...], out: Path | None, download: bool, in_flight: int | None, form: str, **settings: Any
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
    _store_and_show(Spec(attacks=attacks or _OF_THE_PAPER, **settings), out, download, in_flight, form)


@click.command()
@options(IN_FLIGHT, FORMAT)
@click.argument("folder", type=click.Path(path_type=Path))
def resume(folder: Path, in_flight: int | None, form: str) -> None:
    """Go on with a run where it was left off, in the middle of an image if need be.

    No query that was answered is asked again. A run that is over is shown again.
    """
    show(runs.resume(folder, in_flight=in_flight), folder, form)


def _refuse_both(context: click.Context, spec: Path) -> None:
    """A file describes the whole run: an option beside it would be lost or would make the file a lie."""
    free = {"spec", "out", "download", "in_flight", "form"}
    for name in context.params:
        if name not in free and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise InputError(f"{spec} describes the run, so --{name.replace('_', '-')} must be set there")


def _store_and_show(spec: Spec, out: Path | None, download: bool, in_flight: int | None, form: str) -> None:
    folder = _results_folder(out)
    zoo.ensure([spec.model, spec.data], download=download)
    show(runs.run(spec, folder, in_flight=in_flight), folder, form)


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

"""The command `parsimon`."""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
from rich.console import Console
from rich.markup import escape

import parsimon
from parsimon import checks, zoo
from parsimon.attacks import ATTACKS
from parsimon.data import arrays, cifar10
from parsimon.errors import InputError, ParsimonError
from parsimon.launch import DEFAULT_BUDGET, as_images
from parsimon.oracles import as_oracle
from parsimon.report.picture import Example, save_examples
from parsimon.result import Result
from parsimon.threat import Loss, Scores, Threat

_EXAMPLES = 6
_RESULTS, _PICTURE = "results.csv", "examples.png"
_TABLES = {"markdown": "table.md", "latex": "table.tex"}
_OF_THE_PAPER = ("parsimonious", "bandits", "nes", "pgd")
_BAD_INPUT = 2  # as click has it
_INTERRUPTED = 130  # as shells report Ctrl-C


def _radius(text: str) -> float:
    """A number or a fraction."""
    try:
        return float(Fraction(text))
    except (ValueError, ArithmeticError):
        raise click.BadParameter(f"{text!r} is not a number or a fraction such as 8/255") from None


Function = Callable[..., None]
Decorator = Callable[[Function], Function]


def _choice(literal: Any) -> click.Choice[str]:
    return click.Choice(get_args(literal))


_SCORES = click.option(
    "--scores", type=_choice(Scores), default="logits", show_default=True, help="What the model returns."
)
_DATA = click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="An .npz file with images (n, channels, rows, columns), float32 in [0, 1], and labels. "
    "[default: the bundled CIFAR-10 test images]",
)
_MODEL = click.option(
    "--model",
    default="robust",
    show_default=True,
    help="A bundled network (robust, standard), the path of an ONNX file, or package.module:function, a "
    "function without arguments that returns a torch module or a function of numpy images.",
)
_HOW_TO_ATTACK = (
    _MODEL,
    _DATA,
    _SCORES,
    click.option(
        "--images",
        "at_most",
        default=100,
        show_default=True,
        help="Attack the first so many that are classified right.",
    ),
    click.option(
        "--eps",
        type=_radius,
        metavar="RADIUS",
        default="8/255",
        show_default=True,
        help="Radius of the L-infinity ball, for images in [0, 1]: a number or a fraction.",
    ),
    click.option("--budget", default=DEFAULT_BUDGET, show_default=True, help="Queries allowed for each image."),
    click.option(
        "--targeted", is_flag=True, help="Reach the class after the true one instead of leaving the true one."
    ),
    click.option("--loss", type=_choice(Loss), help="The loss to climb. [default: the attack's own]"),
    click.option("--eight-bit", is_flag=True, help="Show the model only images whose pixels are k / 255."),
    click.option("--seed", default=0, show_default=True),
    click.option("--batch-size", type=int, help="Images in a model call. [default: 64 on a CPU, 256 elsewhere]"),
    click.option("--in-flight", type=int, help="Images attacked at once; sets the memory used. [default: 256 or more]"),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        help="Folder for what is written. [default: a new one in parsimon-results]",
    ),
)
_ATTACK_HELP = (
    f"{', '.join(ATTACKS)}; with a published experiment's settings after a colon (bandits:imagenet-0.05), and settings "
    "of your own after commas (nes,samples=50,strict=true)."
)


def _options(*options: Decorator) -> Decorator:
    def decorate(command: Function) -> Function:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(parsimon.__version__, prog_name="parsimon")
def command() -> None:
    """How robust is an image classifier to someone who can only query it?

    For models that you own or are permitted to test.
    """


@command.command()
@_options(*_HOW_TO_ATTACK)
@click.option("--attack", default="parsimonious", show_default=True, help=_ATTACK_HELP)
def run(data: Path | None, out: Path | None, targeted: bool, **settings: Any) -> None:
    """Attack a model and print a table.

    Without options: the bundled adversarially trained CIFAR-10 network, 100 images, at eps 8/255.

    \b
    parsimon run --model standard --eps 4/255
    parsimon run --model model.onnx --data images.npz --budget 10000
    parsimon run --model mypackage.models:build --data images.npz --targeted
    parsimon run --attack parsimonious,behaviour=published,block=8
    """
    folder = _results_folder(out, _RESULTS, _PICTURE)
    pixels, labels = _read_data(data)
    result = parsimon.attack(images=pixels, labels=labels, targets="next" if targeted else None, **settings)
    folder.mkdir(parents=True, exist_ok=True)
    _write_results({type(result.attack).__name__: result}, folder / _RESULTS)
    if result.summary.successes:
        named = data is None and result.prepared.classes == len(cifar10.CLASSES)
        _write_examples(result, folder / _PICTURE, cifar10.CLASSES if named else None)
    Console().print(result.table().rich())
    print(f"Every image: {folder / _RESULTS}")
    if result.summary.successes:
        print(f"Examples:    {folder / _PICTURE}")
    if result.summary.unfinished:
        sys.exit(_INTERRUPTED)


@command.command()
@_options(*_HOW_TO_ATTACK)
@click.option(
    "--relative-to", metavar="ATTACK", help="Average queries over the images that this one fooled, too. [default: nes]"
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "latex"]),
    default="text",
    show_default=True,
    help="What to print; Markdown and LaTeX are written to files in any case.",
)
@click.argument("attacks", nargs=-1, metavar="[ATTACK]...")
def compare(
    attacks: tuple[str, ...],
    relative_to: str | None,
    form: str,
    data: Path | None,
    out: Path | None,
    targeted: bool,
    **settings: Any,
) -> None:
    """Several attacks on the same images of the same model, in one table.

    Without arguments those of the paper: parsimonious, bandits, nes, and pgd as the white-box line. An ATTACK is one of
    parsimonious, bandits, nes, square, signhunter, simba, random, pgd; with a published experiment's settings after a
    colon, and settings of your own after commas.

    \b
    parsimon compare
    parsimon compare parsimonious square signhunter --budget 5000
    parsimon compare bandits bandits,strict=true nes:imagenet-0.05 --model model.onnx --data images.npz
    """
    folder = _results_folder(out, _RESULTS, *_TABLES.values())
    pixels, labels = _read_data(data)
    comparison = parsimon.compare(
        images=pixels,
        labels=labels,
        attacks=attacks or _OF_THE_PAPER,
        relative_to=relative_to,
        targets="next" if targeted else None,
        **settings,
    )
    folder.mkdir(parents=True, exist_ok=True)
    _write_results(comparison.results, folder / _RESULTS)
    table = comparison.table()
    texts = {"markdown": table.markdown(), "latex": table.latex()}
    for kind, name in _TABLES.items():
        (folder / name).write_text(texts[kind] + "\n")
    if form == "text":
        Console().print(table.rich())
    else:
        print(texts[form])
    names = ", ".join(str(folder / name) for name in _TABLES.values())
    # Not on standard output, which may go straight into a paper.
    print(f"Every image: {folder / _RESULTS}\nThe table:   {names}", file=sys.stderr)
    if comparison.unfinished:
        sys.exit(_INTERRUPTED)


@command.command()
@_options(_MODEL, _DATA, _SCORES)
@click.option("--batch-size", default=64, show_default=True, help="Images in a model call.")
def check(model: str, data: Path | None, scores: Scores, batch_size: int) -> None:
    """Check a model and its data before attacking it: ranges, labels, determinism, batches, accuracy."""
    pixels, labels = _read_data(data)
    oracle = as_oracle(model)
    threat = Threat(1 / 255, scores=scores)
    source = as_images(pixels)
    marks = {"ok": "[green]ok  [/]", "note": "[yellow]note[/]", "error": "[red]error[/]"}
    failed = False
    for finding in checks.inspect(oracle, source, checks.check_labels(labels, len(source)), threat, batch_size):
        Console().print(
            f"{marks[finding.verdict]} [bold]{finding.name}[/]: {escape(finding.sentence)}", highlight=False
        )
        failed |= finding.verdict == "error"
    sys.exit(_BAD_INPUT if failed else 0)


def _read_data(data: Path | None) -> tuple[Any, Any]:
    return zoo.images() if data is None else arrays.read_npz(data)


def _results_folder(out: Path | None, *names: str) -> Path:
    """Where to write; found before the run, so that a bad choice costs nothing, and never over earlier results."""
    folder = out or Path("parsimon-results") / time.strftime("%Y-%m-%d-%H%M%S")
    if any((folder / name).exists() for name in names):
        raise InputError(f"{folder} already holds results; choose another folder with --out")
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise InputError(f"{there} is a file; choose a folder with --out")
    if not os.access(there, os.W_OK):
        raise InputError(f"{there} cannot be written to; choose another folder with --out")
    return folder


def _write_results(results: Mapping[str, Result], path: Path) -> None:
    counts = ("queries", "uncharged", "outside", "gradients")
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["attack", "image", "label", "success", *counts, "ended", "predicted"])
        for name, result in results.items():
            for each in result.outcomes:
                predicted = "" if each.predicted is None else each.predicted
                counted = [getattr(each, count) for count in counts]
                row = [name, each.index, result.labels[each.index], int(each.success), *counted, each.ended, predicted]
                table.writerow(row)


def _write_examples(result: Result, path: Path, names: tuple[str, ...] | None) -> None:
    """The first few successes."""
    examples = []
    for each in [each for each in result.outcomes if each.success][:_EXAMPLES]:
        before, after = int(result.labels[each.index]), int(each.predicted or 0)
        classes = (names[before], f"seen as {names[after]}") if names else (f"class {before}", f"seen as {after}")
        queries = f"{each.queries:,} {'query' if each.queries == 1 else 'queries'}"
        original = np.asarray(result.images[each.index])
        examples.append(Example(original, result.draw(each), (*classes, queries)))
    save_examples(examples, result.threat.eps, path)


def main() -> None:
    """The command, with every expected error as one sentence."""
    # Threads that spin while they wait slow a torch model down a hundredfold beside any other busy process; torch
    # reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        command()
    except ParsimonError as error:
        Console(stderr=True).print(f"[red]error[/]: {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(_BAD_INPUT)

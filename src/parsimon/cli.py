"""The command `parsimon`."""

from __future__ import annotations

import csv
import os
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
from rich.console import Console
from rich.markup import escape

import parsimon
from parsimon import checks, zoo
from parsimon.api import DEFAULT_BUDGET, Result, as_images
from parsimon.attacks.parsimonious import Behaviour
from parsimon.data import arrays, cifar10
from parsimon.errors import InputError, ParsimonError
from parsimon.oracles import as_oracle
from parsimon.report.picture import Example, save_examples
from parsimon.threat import Loss, Scores, Threat

_EXAMPLES = 6
_RESULTS, _PICTURE = "results.csv", "examples.png"
_BAD_INPUT = 2  # as click has it
_INTERRUPTED = 130  # as shells report Ctrl-C


def _radius(text: str) -> float:
    """A number or a fraction."""
    try:
        return float(Fraction(text))
    except (ValueError, ArithmeticError):
        raise click.BadParameter(f"{text!r} is not a number or a fraction such as 8/255") from None


def _choice(literal: Any) -> click.Choice[str]:
    return click.Choice(get_args(literal))


def _model_and_data(command: Any) -> Any:
    """The options that `run` and `check` share."""
    for option in (
        click.option(
            "--scores", type=_choice(Scores), default="logits", show_default=True, help="What the model returns."
        ),
        click.option(
            "--data",
            type=click.Path(path_type=Path),
            help="An .npz file with images (n, channels, rows, columns), float32 in [0, 1], and labels. "
            "[default: the bundled CIFAR-10 test images]",
        ),
        click.option(
            "--model",
            default="robust",
            show_default=True,
            help="A bundled network (robust, standard), the path of an ONNX file, or package.module:function, a "
            "function without arguments that returns a torch module or a function of numpy images.",
        ),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(parsimon.__version__, prog_name="parsimon")
def command() -> None:
    """How robust is an image classifier to someone who can only query it?

    For models that you own or are permitted to test.
    """


@command.command()
@_model_and_data
@click.option("--images", default=100, show_default=True, help="Attack the first so many correctly classified ones.")
@click.option(
    "--eps",
    type=_radius,
    metavar="RADIUS",
    default="8/255",
    show_default=True,
    help="Radius of the L-infinity ball, for images in [0, 1]: a number or a fraction.",
)
@click.option("--budget", default=DEFAULT_BUDGET, show_default=True, help="Queries allowed for each image.")
@click.option(
    "--behaviour",
    type=_choice(Behaviour),
    default="paper",
    show_default=True,
    help="The paper's algorithms, or its authors' code query for query.",
)
@click.option("--block", type=int, help="Side of the first blocks. [default: about an eighth of the image]")
@click.option("--targeted", is_flag=True, help="Reach the class after the true one instead of leaving the true one.")
@click.option("--loss", type=_choice(Loss), default="cross-entropy", show_default=True)
@click.option("--eight-bit", is_flag=True, help="Show the model only images whose pixels are k / 255.")
@click.option("--seed", default=0, show_default=True)
@click.option("--batch-size", type=int, help="Images in a model call. [default: 64 on a CPU, 256 elsewhere]")
@click.option("--in-flight", type=int, help="Images attacked at once; sets the memory used. [default: 256 or more]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for results.csv and examples.png. [default: a new one in parsimon-results]",
)
def run(
    model: str,
    data: Path | None,
    scores: Scores,
    images: int,
    eps: float,
    budget: int,
    behaviour: Behaviour,
    block: int | None,
    targeted: bool,
    loss: Loss,
    eight_bit: bool,
    seed: int,
    batch_size: int | None,
    in_flight: int | None,
    out: Path | None,
) -> None:
    """Attack a model and print a table.

    Without options: the bundled adversarially trained CIFAR-10 network, 100 images, at eps 8/255.

    \b
    parsimon run --model standard --eps 4/255
    parsimon run --model model.onnx --data images.npz --budget 10000
    parsimon run --model mypackage.models:build --data images.npz --targeted
    """
    folder = _results_folder(out)
    pixels, labels = _read_data(data)
    result = parsimon.attack(
        model,
        pixels,
        labels,
        eps,
        attack=parsimon.Parsimonious(behaviour=behaviour, block=block),
        budget=budget,
        targets="next" if targeted else None,
        loss=loss,
        scores=scores,
        eight_bit=eight_bit,
        at_most=images,
        seed=seed,
        batch_size=batch_size,
        in_flight=in_flight,
    )
    folder.mkdir(parents=True, exist_ok=True)
    _write_results(result, folder / _RESULTS)
    if result.summary.successes:
        named = data is None and result.prepared.classes == len(cifar10.CLASSES)
        _write_examples(result, folder / _PICTURE, cifar10.CLASSES if named else None)
    Console().print(result.table())
    print(f"Every image: {folder / _RESULTS}")
    if result.summary.successes:
        print(f"Examples:    {folder / _PICTURE}")
    if result.summary.unfinished:
        sys.exit(_INTERRUPTED)


@command.command()
@_model_and_data
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


def _results_folder(out: Path | None) -> Path:
    """Where to write; found before the run, so that a bad choice costs nothing, and never over earlier results."""
    folder = out or Path("parsimon-results") / time.strftime("%Y-%m-%d-%H%M%S")
    if (folder / _RESULTS).exists() or (folder / _PICTURE).exists():
        raise InputError(f"{folder} already holds results; choose another folder with --out")
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise InputError(f"{there} is a file; choose a folder with --out")
    if not os.access(there, os.W_OK):
        raise InputError(f"{there} cannot be written to; choose another folder with --out")
    return folder


def _write_results(result: Result, path: Path) -> None:
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "label", "success", "queries", "ended", "predicted"])
        for each in result.outcomes:
            predicted = "" if each.predicted is None else each.predicted
            row = [each.index, result.labels[each.index], int(each.success), each.queries, each.ended, predicted]
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

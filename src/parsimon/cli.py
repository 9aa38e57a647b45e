"""The command `parsimon`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
from rich.console import Console
from rich.markup import escape

import parsimon
from parsimon import checks, runs
from parsimon.attacks import ATTACKS
from parsimon.data import open_data, open_preprocess
from parsimon.data.named import FORMS
from parsimon.errors import InputError, ParsimonError
from parsimon.oracles import as_oracle
from parsimon.protocol import Outcome
from parsimon.report.export import write_results
from parsimon.report.page import write_page
from parsimon.report.picture import Example, save_examples
from parsimon.result import Comparison, Result
from parsimon.spec import Spec
from parsimon.threat import Loss, Scores, Targets, Threat

_EXAMPLES = 6
_RESULTS, _PICTURE = "results.csv", "examples.png"
_TABLES = {"markdown": "table.md", "latex": "table.tex"}
_OF_THE_PAPER = ("parsimonious", "bandits", "nes", "pgd")
_BAD_INPUT = 2  # as click has it
_INTERRUPTED = 130  # as shells report Ctrl-C


Function = Callable[..., None]
Decorator = Callable[[Function], Function]


def _choice(literal: Any) -> click.Choice[str]:
    return click.Choice(get_args(literal))


_SCORES = click.option(
    "--scores", type=_choice(Scores), default="logits", show_default=True, help="What the model returns."
)
_DATA = click.option(
    "--data",
    default=Spec.data,
    show_default=True,
    help="; ".join(f"{form}: {what}" for form, what in FORMS.items()) + ".",
)
_MODEL = click.option(
    "--model",
    default="robust",
    show_default=True,
    help="A bundled network (robust, standard), the path of an ONNX file, or package.module:function, a "
    "function without arguments that returns a torch module or a function of numpy images.",
)
_PREPROCESS = click.option(
    "--preprocess", help="For pictures: resize=256,crop=224,interpolation=bicubic, as the model's card says."
)
_HOW_TO_ATTACK = (
    _MODEL,
    _DATA,
    _PREPROCESS,
    _SCORES,
    click.option(
        "--images", default=Spec.images, show_default=True, help="Attack the first so many that are classified right."
    ),
    click.option("--sample", type=int, help="Attack a random sample of them instead, with this seed."),
    click.option(
        "--eps",
        metavar="RADIUS",
        default=Spec.eps,
        show_default=True,
        help="Radius of the L-infinity ball, for images in [0, 1]: a number or a fraction.",
    ),
    click.option("--budget", default=Spec.budget, show_default=True, help="Queries allowed for each image."),
    click.option(
        "--targets",
        type=_choice(Targets),
        help="Reach a class instead of leaving the true one: the one after it, or one drawn for each image.",
    ),
    click.option("--loss", type=_choice(Loss), help="The loss to climb. [default: the attack's own]"),
    click.option("--eight-bit", is_flag=True, help="Show the model only images whose pixels are k / 255."),
    click.option("--seed", default=Spec.seed, show_default=True),
    click.option("--batch-size", type=int, help="Images in a model call. [default: 64 on a CPU, 256 elsewhere]"),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        help="Folder for the run and what is made of it. [default: a new one in parsimon-results]",
    ),
)
_IN_FLIGHT = click.option(
    "--in-flight", type=int, help="Images attacked at once; sets the memory used. [default: 256 or more]"
)
_FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "latex"]),
    default="text",
    show_default=True,
    help="What to print; Markdown and LaTeX are written to files in any case.",
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
@_options(*_HOW_TO_ATTACK, _IN_FLIGHT, _FORMAT)
@click.option("--attack", default="parsimonious", show_default=True, help=_ATTACK_HELP)
@click.argument("spec", required=False, type=click.Path(path_type=Path), metavar="[SPEC.toml]")
@click.pass_context
def run(
    context: click.Context,
    /,
    spec: Path | None,
    attack: str,
    out: Path | None,
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
    _store_and_show(described, out, in_flight, form)


@command.command()
@_options(*_HOW_TO_ATTACK, _IN_FLIGHT, _FORMAT)
@click.option(
    "--relative-to", metavar="ATTACK", help="Average queries over the images that this one fooled, too. [default: nes]"
)
@click.argument("attacks", nargs=-1, metavar="[ATTACK]...")
def compare(attacks: tuple[str, ...], out: Path | None, in_flight: int | None, form: str, **settings: Any) -> None:
    """Several attacks on the same images of the same model, in one table.

    Without arguments those of the paper: parsimonious, bandits, nes, and pgd as the white-box line. An ATTACK is one of
    parsimonious, bandits, nes, square, signhunter, simba, random, pgd; with a published experiment's settings after a
    colon, and settings of your own after commas.

    \b
    parsimon compare
    parsimon compare parsimonious square signhunter --budget 5000
    parsimon compare bandits bandits,strict=true nes:imagenet-0.05 --model model.onnx --data images.npz
    """
    _store_and_show(Spec(attacks=attacks or _OF_THE_PAPER, **settings), out, in_flight, form)


@command.command()
@_options(_IN_FLIGHT, _FORMAT)
@click.argument("folder", type=click.Path(path_type=Path))
def resume(folder: Path, in_flight: int | None, form: str) -> None:
    """Go on with a run where it was left off, in the middle of an image if need be.

    No query that was answered is asked again. A run that is over is shown again.
    """
    _show(runs.resume(folder, in_flight=in_flight), folder, form)


@command.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The page. [default: report.html in the first run's folder]"
)
def report(folders: tuple[Path, ...], out: Path | None) -> None:
    """Write one page about runs: table, curves, gallery, spec. It needs no network to open.

    \b
    parsimon report parsimon-results/2026-11-16-024905
    parsimon report before after --out both.html
    """
    path = out or folders[0] / "report.html"
    comparisons = {str(folder): runs.load(folder) for folder in folders}
    write_page(comparisons, path, facts={str(folder): runs.facts_of(folder) for folder in folders})
    print(path)


def _refuse_both(context: click.Context, spec: Path) -> None:
    """A file describes the whole run: an option beside it would be lost or would make the file a lie."""
    free = {"spec", "out", "in_flight", "form"}
    for name in context.params:
        if name not in free and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise InputError(f"{spec} describes the run, so --{name.replace('_', '-')} must be set there")


def _store_and_show(spec: Spec, out: Path | None, in_flight: int | None, form: str) -> None:
    folder = _results_folder(out)
    _show(runs.run(spec, folder, in_flight=in_flight), folder, form)


def _show(comparison: Comparison, folder: Path, form: str) -> None:
    """Print the table, and write what can be made of the run beside it."""
    write_results(comparison.results, folder / _RESULTS)
    table = comparison.table()
    texts = {"markdown": table.markdown(), "latex": table.latex()}
    for kind, name in _TABLES.items():
        (folder / name).write_text(texts[kind] + "\n")
    pictured = _write_examples(comparison, folder / _PICTURE, runs.classes_of(folder))
    if form == "text":
        Console().print(table.rich())
    else:
        print(texts[form])
    # What is to go straight into a paper is alone on standard output.
    say = partial(print, file=sys.stdout if form == "text" else sys.stderr)
    say(f"Every image: {folder / _RESULTS}")
    say(f"The table:   {', '.join(str(folder / name) for name in _TABLES.values())}")
    if pictured:
        say(f"Examples:    {folder / _PICTURE}")
    if comparison.unfinished:
        say(f"Unfinished:  parsimon resume {folder}")
        sys.exit(_INTERRUPTED)


@command.command()
@_options(_MODEL, _DATA, _PREPROCESS, _SCORES)
@click.option("--batch-size", default=64, show_default=True, help="Images in a model call.")
def check(model: str, data: str, preprocess: str | None, scores: Scores, batch_size: int) -> None:
    """Check a model and its data before attacking it: ranges, labels, determinism, batches, accuracy."""
    opened = open_data(data, None if preprocess is None else open_preprocess(preprocess))
    oracle = as_oracle(model)
    threat = Threat(1 / 255, scores=scores)
    marks = {"ok": "[green]ok  [/]", "note": "[yellow]note[/]", "error": "[red]error[/]"}
    failed = False
    for finding in checks.inspect(oracle, opened.images, opened.labels.astype(np.intp), threat, batch_size):
        Console().print(
            f"{marks[finding.verdict]} [bold]{finding.name}[/]: {escape(finding.sentence)}", highlight=False
        )
        failed |= finding.verdict == "error"
    sys.exit(_BAD_INPUT if failed else 0)


def _results_folder(out: Path | None) -> Path:
    """Where to write; found before the run, so that a bad choice costs nothing, and never over earlier results."""
    folder = out or Path("parsimon-results") / time.strftime("%Y-%m-%d-%H%M%S")
    if runs.is_run(folder):
        raise InputError(f"{folder} holds a run; choose another folder with --out, or: parsimon resume {folder}")
    if any((folder / name).exists() for name in (_RESULTS, _PICTURE, *_TABLES.values())):
        raise InputError(f"{folder} already holds results; choose another folder with --out")
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise InputError(f"{there} is a file; choose a folder with --out")
    if not os.access(there, os.W_OK):
        raise InputError(f"{there} cannot be written to; choose another folder with --out")
    return folder


def _write_examples(comparison: Comparison, path: Path, names: tuple[str, ...] | None) -> bool:
    """The first few successes of the first attack that has any; whether there are some."""
    for result in comparison.results.values():
        fooled = [outcome for outcome in result.outcomes if outcome.success][:_EXAMPLES]
        if fooled:
            save_examples([_example(result, outcome, names) for outcome in fooled], result.threat.eps, path)
            return True
    return False


def _example(result: Result, outcome: Outcome, names: tuple[str, ...] | None) -> Example:
    before, after = int(result.labels[outcome.index]), int(outcome.predicted or 0)
    named = names is not None and result.prepared.classes == len(names)
    classes = (names[before], f"seen as {names[after]}") if named and names else (f"class {before}", f"seen as {after}")
    queries = f"{outcome.queries:,} {'query' if outcome.queries == 1 else 'queries'}"
    return Example(np.asarray(result.images[outcome.index]), result.draw(outcome), (*classes, queries))


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

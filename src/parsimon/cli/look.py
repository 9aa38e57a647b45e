"""`parsimon show`, `report` and `plot`: display stored runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from parsimon import runs
from parsimon.cli import evaluate
from parsimon.cli.options import FORMAT, PathName, options
from parsimon.cli.output import JSON, Exit, answer, counted
from parsimon.cli.present import FAIL_UNDER, GATE, Output
from parsimon.cli.show import shown
from parsimon.errors import InputError
from parsimon.report import figures
from parsimon.report.page import PAGE, write_report
from parsimon.results.evaluation import EvaluationGrid
from parsimon.results.result import RANDOM_BUDGETS
from parsimon.runs.evaluation import cell_folder, evaluation_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTHS = {"column": figures.COLUMN, "page": figures.PAGE}


@click.command()
@click.argument("folder", type=PathName(), metavar="RUN")
@options(FORMAT, FAIL_UNDER, GATE, JSON)
def show(folder: Path, **settings: Any) -> None:
    """Print the verdict and the table of a finished or unfinished run or evaluation.

    \b
    parsimon show parsimon-results/2026-11-16-024905
    parsimon show results --json
    """
    output = Output.of(settings)
    if runs.is_evaluation(folder):
        view = evaluate.shown(runs.load_evaluation(folder), folder)
    else:
        view = shown(runs.load(folder), folder)
    sys.exit(Exit.DONE if view.present(output) else Exit.BELOW_GATE)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=PathName(), metavar="RUN...")
@click.option("--out", type=PathName(), help="File to write. [default: report.html in the first folder]")
@JSON
def report(folders: tuple[Path, ...], out: Path | None) -> None:
    """Write an HTML page about runs or about an evaluation: verdict, tables, charts, gallery. It works offline.

    Several runs share one table and one chart.

    \b
    parsimon report parsimon-results/2026-11-16-024905
    parsimon report before after --out both.html
    """
    path = out or folders[0] / PAGE
    write_report(folders, path)
    answer(lambda: {"page": str(path)}, lambda: print(path))


@click.command()
@click.argument("folders", nargs=-1, required=True, type=PathName(), metavar="RUN...")
@click.option(
    "--out",
    type=PathName(),
    help="File to write: .pdf, .svg or .png. [default: curves.pdf in the first folder]",
)
@click.option(
    "--against",
    type=click.Choice(["radius", "queries"]),
    help="Horizontal axis of an evaluation's figure. [default: radius if there are several, or for a random model]",
)
@click.option("--log", is_flag=True, help="Use a logarithmic axis for queries.")
@click.option(
    "--width",
    type=click.Choice(list(_WIDTHS)),
    default="column",
    show_default=True,
    help="Width of the figure: one column of a two-column page, or the whole page.",
)
@JSON
def plot(folders: tuple[Path, ...], out: Path | None, against: str | None, log: bool, width: str) -> None:
    """Plot the success curves of runs, or the robust accuracy of an evaluation, with 95 % intervals.

    White-box attacks are dashed lines. With several runs, labels name the run, an attack keeps its colour, and all
    curves end at the smallest budget. A random model has no curves against queries. Requires matplotlib: pip install
    'parsimon[plot]'.

    \b
    parsimon plot parsimon-results/2026-11-16-024905
    parsimon plot robust standard --log --width page --out both.svg
    parsimon plot evaluation --against queries
    """
    path = out or folders[0] / "curves.pdf"
    evaluations = [folder for folder in folders if runs.is_evaluation(folder)]
    if evaluations and len(folders) > 1:
        config = evaluation_config(evaluations[0])
        first, *_ = config.cells(config.models[0])
        raise InputError(
            f"a figure is about one evaluation or about runs; {evaluations[0]} is one of several folders: plot it "
            f"alone, or name runs in it, such as {cell_folder(evaluations[0], config, first)}"
        )
    if evaluations:
        grid = runs.load_evaluation(folders[0])
        if grid.unfinished == len(grid.models) * len(grid.radii):
            raise InputError(
                f"no model at any radius of {folders[0]} is finished, so there is nothing to plot yet. First: parsimon "
                f"resume {folders[0]}"
            )
        figure = _evaluation_figure(grid, against, log, _WIDTHS[width])
    elif against == "radius":
        raise InputError("a run has one radius: --against radius is for an evaluation (parsimon evaluate)")
    else:
        figure = _run_figure(folders, log, _WIDTHS[width])
    figures.save(figure, path)
    answer(lambda: {"figure": str(path)}, lambda: print(path))


def _evaluation_figure(grid: EvaluationGrid, against: str | None, log: bool, width: float) -> Figure:
    if grid.unfinished:
        verb = "is" if grid.unfinished == 1 else "are"
        print(f"note: {counted(grid.unfinished, 'evaluation')} {verb} unfinished and not drawn", file=sys.stderr)
    several = len(grid.radii) > 1 or grid.any_evaluation.random  # which has no curve against queries
    if (against or ("radius" if several else "queries")) == "radius":
        return figures.accuracy_against_radius(grid, width=width)
    return figures.accuracy_against_queries(grid, log=log, width=width)


def _run_figure(folders: tuple[Path, ...], log: bool, width: float) -> Figure:
    # The last part of a path suffices if it is unique.
    last = [folder.resolve().name for folder in folders]
    names = last if len(set(last)) == len(last) else [str(folder) for folder in folders]
    comparisons = {name: runs.load(folder) for name, folder in zip(names, folders, strict=True)}
    for name, comparison in comparisons.items():
        if comparison.unfinished:
            left = counted(comparison.unfinished, "unfinished image")
            note = f"note: {name} has {left}: curves end where one stopped"
            print(note, file=sys.stderr)
    exact = {name: comparison for name, comparison in comparisons.items() if not comparison.first.random}
    for name in (set(comparisons) - set(exact)) if exact else ():
        print(f"note: {name} is left out: {RANDOM_BUDGETS}", file=sys.stderr)
    comparisons = exact or comparisons
    return figures.comparison_curves(comparisons, log=log, width=width)

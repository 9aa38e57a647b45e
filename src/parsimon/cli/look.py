"""`parsimon show`, `report` and `plot`: display stored runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from parsimon import runs
from parsimon.cli.options import FORMAT, PathName, options
from parsimon.cli.output import JSON, Exit, answer
from parsimon.cli.show import FAIL_UNDER, display
from parsimon.report import figures
from parsimon.report.page import write_page

_WIDTHS = {"column": figures.COLUMN, "page": figures.PAGE}


@click.command()
@click.argument("folder", type=PathName(), metavar="RUN")
@options(FORMAT, FAIL_UNDER, JSON)
def show(folder: Path, form: str, fail_under: float | None) -> None:
    """Print the table of a finished or unfinished run.

    \b
    parsimon show parsimon-results/2026-11-16-024905
    parsimon show results --json
    """
    passes = display(runs.load(folder), folder, form, fail_under)
    sys.exit(Exit.DONE if passes else Exit.BELOW_GATE)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=PathName(), metavar="RUN...")
@click.option("--out", type=PathName(), help="File to write. [default: report.html in the first run's folder]")
@JSON
def report(folders: tuple[Path, ...], out: Path | None) -> None:
    """Write an HTML page about runs: table, curves, gallery, configuration. The page works offline.

    \b
    parsimon report parsimon-results/2026-11-16-024905
    parsimon report before after --out both.html
    """
    path = out or folders[0] / "report.html"
    comparisons = {str(folder): runs.load(folder) for folder in folders}
    write_page(comparisons, path, facts={str(folder): runs.facts_of(folder) for folder in folders})
    answer(lambda: {"page": str(path)}, lambda: print(path))


@click.command()
@click.argument("folders", nargs=-1, required=True, type=PathName(), metavar="RUN...")
@click.option(
    "--out",
    type=PathName(),
    help="File to write: .pdf, .svg or .png. [default: curves.pdf in the first run's folder]",
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
def plot(folders: tuple[Path, ...], out: Path | None, log: bool, width: str) -> None:
    """Plot the success curves of runs, each with its 95 % confidence band.

    White-box attacks are dashed lines. With several runs, labels name the run, and all curves end at the smallest
    budget. Requires matplotlib: pip install 'parsimon[plot]'.

    \b
    parsimon plot parsimon-results/2026-11-16-024905
    parsimon plot robust standard --log --width page --out both.svg
    """
    path = out or folders[0] / "curves.pdf"
    # The last part of a path suffices if it is unique.
    last = [folder.resolve().name for folder in folders]
    names = last if len(set(last)) == len(last) else [str(folder) for folder in folders]
    comparisons = {name: runs.load(folder) for name, folder in zip(names, folders, strict=True)}
    figures.save(figures.comparison_curves(comparisons, log=log, width=_WIDTHS[width]), path)
    for name, comparison in comparisons.items():
        if comparison.unfinished:
            note = f"note: {name} has {comparison.unfinished:,} unfinished images: curves end where one stopped"
            print(note, file=sys.stderr)
    answer(lambda: {"figure": str(path)}, lambda: print(path))

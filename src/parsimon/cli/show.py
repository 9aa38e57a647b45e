"""What a command leaves of a run: the table on the terminal, and files beside the run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from parsimon import runs
from parsimon.protocol import Outcome
from parsimon.report.export import write_results
from parsimon.report.picture import Example, save_examples
from parsimon.report.table import Table, write_tables
from parsimon.result import Comparison, Result

INTERRUPTED = 130  # the exit code with which shells report Ctrl-C
RESULTS, PICTURE = "results.csv", "examples.png"

_EXAMPLES = 6


def show(comparison: Comparison, folder: Path, form: str) -> None:
    """Print the tables, and write what can be made of the run beside it."""
    write_results(comparison.results, folder / RESULTS)
    tables = comparison.tables()
    written = write_tables(tables, folder)
    pictured = _write_examples(comparison, folder / PICTURE, runs.classes_of(folder))
    print_tables(tables, form)
    # What is to go straight into a paper is alone on standard output.
    say = partial(print, file=sys.stdout if form == "text" else sys.stderr)
    say(f"Every image: {folder / RESULTS}")
    say(f"The table:   {', '.join(map(str, written))}")
    if pictured:
        say(f"Examples:    {folder / PICTURE}")
    if comparison.unfinished:
        say(f"Unfinished:  parsimon resume {folder}")
        sys.exit(INTERRUPTED)


def print_tables(tables: Sequence[Table], form: str) -> None:
    """As text for a terminal, as Markdown or as LaTeX."""
    console = Console()
    for number, table in enumerate(tables):
        console.line(min(1, number))
        if form == "text":
            console.print(table.rich())
        else:
            print(getattr(table, form)())


def _write_examples(comparison: Comparison, path: Path, names: tuple[str, ...] | None) -> bool:
    """The first few successes of the first attack that has any; whether there are some."""
    for result in comparison.results.values():
        fooled = [outcome for outcome in result.outcomes if outcome.success][:_EXAMPLES]
        if fooled:
            save_examples([_example(result, outcome, names) for outcome in fooled], result.threat.eps, path)
            return True
    return False


def _example(result: Result, outcome: Outcome, names: tuple[str, ...] | None) -> Example:
    known = names if names is not None and result.prepared.classes == len(names) else None

    def seen(number: int, confidence: float) -> str:
        return f"{known[number] if known else f'class {number}'} {confidence:.0%}"

    before = seen(int(result.labels[outcome.index]), result.prepared.confidence[outcome.index])
    after = f"as {seen(outcome.predicted or 0, outcome.confidence or 0)}"
    queries = f"{outcome.queries:,} {'query' if outcome.queries == 1 else 'queries'}"
    return Example(np.asarray(result.images[outcome.index]), result.draw(outcome), (before, after, queries))

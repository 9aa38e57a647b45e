"""Print the tables of a run, and write result files beside it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, get_args

import click
from rich.console import Console
from rich.markup import escape

from parsimon import runs
from parsimon.cli.baseline import Against
from parsimon.cli.output import Exit, answer, as_json
from parsimon.report.export import write_results
from parsimon.report.page import refresh
from parsimon.report.picture import save_examples
from parsimon.results.headline import advice, headline
from parsimon.results.result import Comparison, Result
from parsimon.results.table import TABLE_FILES, Table, write_tables
from parsimon.results.verdict import Gate

RESULTS, PICTURE = "results.csv", "examples.png"


class Share(click.FloatRange):
    """A number from 0 to 1; click alone would accept nan."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        share = super().convert(value, parameter, context)
        if math.isnan(share):
            self.fail("nan is not in the range 0<=x<=1.", parameter, context)
        return share


FAIL_UNDER = click.option(
    "--fail-under",
    type=Share(0, 1),
    metavar="ACCURACY",
    help="Exit with code 3 if accuracy under attack is below this: the fraction of all images that are classified "
    "correctly and that no attack fooled. An unfinished run never passes.",
)

GATE = click.option(
    "--gate",
    type=click.Choice(get_args(Gate)),
    default="estimate",
    show_default=True,
    help="What a gate compares: the value itself, or the lower end of its 95 % interval.",
)

_EXAMPLES = 6


def finish(
    comparison: Comparison,
    folder: Path,
    form: str,
    fail_under: float | None,
    gate: Gate = "estimate",
    against: Against | None = None,
) -> NoReturn:
    """Print the tables, write the result files, and exit with the code for scripts."""
    write_results(comparison.results, folder / RESULTS)
    tables = comparison.tables()
    written = [folder / RESULTS, *write_tables(tables, folder)]
    if write_examples(comparison.results.values(), folder / PICTURE, runs.classes_of(folder)):
        written.append(folder / PICTURE)
    refresh(folder)
    passes = display(comparison, folder, form, fail_under, written, gate, against)
    if comparison.unfinished:
        print(
            f"Unfinished:  parsimon resume {folder}",
            file=sys.stdout if form == "text" and not as_json() else sys.stderr,
        )
        sys.exit(Exit.INTERRUPTED)
    sys.exit(Exit.DONE if passes else Exit.BELOW_GATE)


def display(
    comparison: Comparison,
    folder: Path,
    form: str,
    fail_under: float | None,
    written: Sequence[Path] = (),
    gate: Gate = "estimate",
    against: Against | None = None,
) -> bool:
    """Print the tables and the paths of the files, or all as JSON; return whether the gates are passed."""
    found = None if against is None else against.compare(folder)

    def text() -> None:
        if form == "text":
            print_headline(headline(comparison), advice(comparison), comparison.warnings)
        print_tables([*comparison.tables(), *([] if found is None else [found.table()])], form)
        # Markdown and LaTeX stay alone on standard output, to be piped into a paper.
        say = partial(print, file=sys.stdout if form == "text" else sys.stderr)
        by_name = {path.name: path for path in written}
        if by_name:
            say(f"Every image: {by_name[RESULTS]}")
            say(f"The table:   {', '.join(str(by_name[name]) for name in TABLE_FILES.values())}")
        if PICTURE in by_name:
            say(f"Examples:    {by_name[PICTURE]}")

    passes = fail_under is None or comparison.verdict.passes(fail_under, gate)
    result = None if fail_under is None else {"fail_under": fail_under, "by": gate, "passed": passes}
    document = {"files": [*map(str, written)], "gate": result}
    if against is not None and found is not None:
        document["baseline"] = against.described(found)
    answer(lambda: {**described(comparison, folder), **document}, text)
    if not passes:
        print(f"gate not passed: {_compared(comparison, gate)}; at least {fail_under} is required", file=sys.stderr)
    return passes and (against is None or found is None or against.passes(found))


def _compared(comparison: Comparison, gate: Gate) -> str:
    """Return what a gate compared."""
    verdict = comparison.verdict
    if verdict.interval is None:
        so_far = f"robust accuracy is at most {verdict.value:.4f} so far"
        return f"{so_far}, with {comparison.unfinished:,} unfinished attacks"
    if gate == "lower":
        return f"the lower end of the interval of robust accuracy is {verdict.interval[0]:.4f}"
    return f"{'estimated ' * (verdict.kind == 'estimate')}robust accuracy is {verdict.value:.4f}"


def print_headline(line: str, below: str | None, warnings: Iterable[str]) -> None:
    """Print the headline, what to mind about it, and the warnings."""
    console = Console(highlight=False)
    console.print(f"[bold]{escape(line)}[/]", soft_wrap=True)
    if below is not None:
        console.print(escape(below), soft_wrap=True)
    for warning in warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}", soft_wrap=True)
    console.line()


def described(comparison: Comparison, folder: Path) -> dict[str, Any]:
    """Return the results of a run as a JSON document."""
    first = next(iter(comparison.results.values()))
    paired = comparison.paired() if len(comparison.tables()) > 1 else {}
    return {
        "run": str(folder),
        "finished": not comparison.unfinished,
        "images": len(first.labels),
        "correct": int(first.clean.correct.sum()),
        "attacked": len(first.outcomes),
        "clean_accuracy": first.clean.accuracy,
        "robust_accuracy": comparison.verdict.as_dict(),
        "warnings": list(comparison.warnings),
        "attacks": [_attack(name, result) for name, result in comparison.results.items()],
        "paired": [{"against": name, **_finite(asdict(pair))} for name, pair in paired.items()],
    }


def _attack(name: str, result: Result) -> dict[str, Any]:
    summary = result.summary
    return {
        "name": name,
        "white_box": result.attack.white_box,
        "loss": result.threat.loss,
        "successes": summary.successes,
        "success_rate": summary.success_rate,
        "success_at_least": summary.success_at_least,
        "success_interval": summary.interval,
        "unfinished": summary.unfinished,
        "queries": summary.queries,
        "mean": summary.mean,
        "mean_interval": summary.mean_interval,
        "median": summary.median,
        "median_interval": summary.median_interval,
        "mean_of_all": None if result.attack.white_box else summary.mean_of_all,
        "uncharged": summary.uncharged,
        "outside": summary.outside,
        "out_of_range": summary.out_of_range,
        "gradients": summary.gradients,
        "verified": None if result.verification is None else asdict(result.verification),
        "traffic": None if result.traffic is None else asdict(result.traffic),
    }


def _finite(facts: dict[str, Any]) -> dict[str, Any]:
    """Replace infinite numbers, which JSON lacks, by None."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in facts.items()
    }


def print_tables(tables: Sequence[Table], form: str) -> None:
    """Print tables as text for a terminal, as Markdown or as LaTeX."""
    console = Console()
    for number, table in enumerate(tables):
        console.line(min(1, number))
        if form == "text":
            console.print(table.rich(console.width))
        else:
            print(getattr(table, form)())


def write_examples(results: Iterable[Result], path: Path, names: tuple[str, ...] | None) -> bool:
    """Save examples of the first attack that succeeded; return whether there is one."""
    for result in results:
        fooled = [outcome for outcome in result.outcomes if outcome.success][:_EXAMPLES]
        if fooled:
            save_examples(result, fooled, names, path)
            return True
    return False

"""Present the results of runs and evaluations: headline, tables, files, gates, and the exit code."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args

import click
from rich.console import Console
from rich.markup import escape

from parsimon.cli.baseline import Against
from parsimon.cli.output import Exit, answer, as_json
from parsimon.cli.streams import print_rich, print_sentence
from parsimon.errors import InputError
from parsimon.report.page import PAGE
from parsimon.report.picture import save_examples
from parsimon.results.result import Result
from parsimon.results.table import TABLE_FILES, Table
from parsimon.results.verdict import Gate, Verdict

RESULTS, PICTURE = "results.csv", "examples.png"
BLACK_BOX_ONLY = " (black-box attacks only)"  # what a gate compares where there are white-box attacks, too

_FILES = {"Page": (PAGE,), "Images": (RESULTS, PICTURE), "Table": tuple(TABLE_FILES.values())}
_EXAMPLES = 6


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


def check_gate(gate: Gate, **thresholds: float | None) -> None:
    """Refuse a gate that compares nothing; `thresholds` are those that the command has."""
    if gate == "lower" and all(each is None for each in thresholds.values()):
        flags = " or ".join(f"--{name.replace('_', '-')}" for name in thresholds)
        raise InputError(f"--gate lower compares nothing without a threshold: add {flags}, or leave it out")


@dataclass(frozen=True)
class Output:
    """The output options of a command: the format, and the gates.

    Attributes:
        form: Format of the tables.
        fail_under: The least robust accuracy; None: any.
        gate: What is compared with it.
        against: A baseline, and how much worse than it the model may be.
    """

    form: str
    fail_under: float | None
    gate: Gate
    against: Against | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Output:
        """Take the options of a command, before it starts."""
        names = [name for name in ("fail_under", "no_worse_than") if name in settings]
        check_gate(settings["gate"], **{name: settings[name] for name in names})
        return cls(settings["form"], settings["fail_under"], settings["gate"])


@dataclass(frozen=True)
class Headline:
    """The first lines of an output: the verdict, what it rests on, and the reasons to doubt it."""

    line: str
    below: str | None
    warnings: Iterable[str]

    def print(self) -> None:
        """Print the lines."""
        console = Console(highlight=False)
        print_sentence(console, f"[bold]{escape(self.line)}[/]")
        if self.below is not None:
            print_sentence(console, escape(self.below))
        for warning in self.warnings:
            print_sentence(console, f"[yellow]warning:[/] {escape(warning)}")
        console.line()


@dataclass(frozen=True)
class Shown:
    """The content of a command's output about a run or an evaluation.

    Attributes:
        folder: Where it is stored.
        headlines: One for each model.
        tables: Its tables.
        document: Its JSON document.
        verdicts: Robust accuracies that a gate compares, by what they are about.
        unfinished: Whether images are unfinished, or Ctrl-C ended the command.
    """

    folder: Path
    headlines: Sequence[Headline]
    tables: Sequence[Table]
    document: Mapping[str, Any]
    verdicts: Mapping[str, Verdict]
    unfinished: bool

    def present(self, output: Output, written: Sequence[Path] = ()) -> bool:
        """Print everything, or one JSON document; return whether the gates are passed."""
        found = None if output.against is None else output.against.compare(self.folder)
        failures = self._failures(output)
        result = {"fail_under": output.fail_under, "by": output.gate, "passed": not failures}
        document = {**self.document, "files": [*map(str, written)]}
        document["gate"] = None if output.fail_under is None else result
        if output.against is not None and found is not None:
            document["baseline"] = output.against.described(found)

        def text() -> None:
            if output.form == "text":
                for headline in self.headlines:
                    headline.print()
            print_tables([*self.tables, *([] if found is None else [found.table()])], output.form)
            _print_files(written, output.form)

        answer(lambda: document, text)
        for failure in failures:
            print(f"gate not passed: {failure}; at least {output.fail_under} is required", file=sys.stderr)
        return not failures and (output.against is None or found is None or output.against.passes(found))

    def leave(self, output: Output, written: Sequence[Path]) -> NoReturn:
        """Print everything, and exit with the code for scripts."""
        passes = self.present(output, written)
        if self.unfinished:
            _say(f"Unfinished: parsimon resume {self.folder}", output.form)
            sys.exit(Exit.INTERRUPTED)
        sys.exit(Exit.DONE if passes else Exit.BELOW_GATE)

    def _failures(self, output: Output) -> list[str]:
        """Return what a gate compared, for each verdict that does not pass."""
        least, gate = output.fail_under, output.gate
        if least is None:
            return []
        failing = {name: verdict for name, verdict in self.verdicts.items() if not verdict.passes(least, gate)}
        if self.unfinished and not failing:
            return ["the evaluation is unfinished"]
        return [f"{_compared(verdict, gate)}{name}" for name, verdict in failing.items()]


def _compared(verdict: Verdict, gate: Gate) -> str:
    """Return what a gate compared."""
    if verdict.interval is None:
        return f"robust accuracy is at most {verdict.value:.4f} so far, and the run is unfinished"
    if gate == "lower":
        return f"the lower end of the interval of robust accuracy is {verdict.interval[0]:.4f}"
    return f"{'estimated ' * (verdict.kind == 'estimate')}robust accuracy is {verdict.value:.4f}"


def _print_files(written: Sequence[Path], form: str) -> None:
    by_name = {path.name: path for path in written}
    for what, names in _FILES.items():
        if there := [str(by_name[name]) for name in names if name in by_name]:
            _say(f"{f'{what}:':8}{', '.join(there)}", form)


def _say(line: str, form: str) -> None:
    """Print a line for people. Markdown and LaTeX stay alone on standard output, to be piped into a paper."""
    print(line, file=sys.stdout if form == "text" and not as_json() else sys.stderr)


def print_tables(tables: Sequence[Table], form: str) -> None:
    """Print tables as text for a terminal, as Markdown or as LaTeX."""
    console = Console()
    for number, table in enumerate(tables):
        console.line(min(1, number))
        if form == "text":
            print_rich(console, table.rich(console.width))
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

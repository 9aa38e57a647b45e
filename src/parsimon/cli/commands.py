"""The command `parsimon` with all its subcommands."""

from __future__ import annotations

import click

import parsimon
from parsimon.cli import output
from parsimon.cli.attacks import attacks
from parsimon.cli.check import check
from parsimon.cli.completion import completion
from parsimon.cli.defend import defences, defend
from parsimon.cli.diff import diff
from parsimon.cli.evaluate import evaluate
from parsimon.cli.export import export
from parsimon.cli.init import init
from parsimon.cli.look import plot, report, show
from parsimon.cli.reproduce import reproduce
from parsimon.cli.resume import resume
from parsimon.cli.run import compare, run
from parsimon.cli.verify import verify
from parsimon.cli.view import view
from parsimon.cli.zoo import command as zoo


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=output.EXIT_CODES)
@click.version_option(parsimon.__version__, prog_name="parsimon")
def command() -> None:
    """Measure how robust an image classifier is to an attacker who can only query it.

    Test only models that you own or are permitted to test.
    """


for part in (
    evaluate,
    run,
    compare,
    defend,
    resume,
    show,
    view,
    report,
    plot,
    reproduce,
    zoo,
    check,
    diff,
    verify,
    export,
    attacks,
    defences,
    init,
    completion,
):
    command.add_command(part)

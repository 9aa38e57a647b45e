"""The command `parsimon`: a module for each of its parts."""

from __future__ import annotations

import os
import sys

import click
from rich.console import Console
from rich.markup import escape

import parsimon
from parsimon.cli.check import BAD_INPUT, check
from parsimon.cli.look import plot, report
from parsimon.cli.reproduce import reproduce
from parsimon.cli.run import compare, resume, run
from parsimon.cli.view import view
from parsimon.cli.zoo import command as zoo
from parsimon.errors import OutageError, ParsimonError

TRY_LATER = 75  # a failure that may be over later, as sysexits.h has it


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(parsimon.__version__, prog_name="parsimon")
def command() -> None:
    """How robust is an image classifier to someone who can only query it?

    For models that you own or are permitted to test.
    """


for part in (run, compare, resume, view, report, plot, reproduce, zoo, check):
    command.add_command(part)


def main() -> None:
    """The command, with every expected error as one sentence."""
    # Threads that spin while they wait slow a torch model down a hundredfold beside any other busy process; torch
    # reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        command()
    except ParsimonError as error:
        Console(stderr=True).print(f"[red]error[/]: {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(TRY_LATER if isinstance(error, OutageError) else BAD_INPUT)

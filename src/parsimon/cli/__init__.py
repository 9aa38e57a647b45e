"""The command `parsimon`: a module for each of its parts."""

from __future__ import annotations

import os
import sys

import click

import parsimon
from parsimon.cli import output
from parsimon.cli.check import check
from parsimon.cli.completion import completion
from parsimon.cli.look import plot, report, show
from parsimon.cli.reproduce import reproduce
from parsimon.cli.run import compare, resume, run
from parsimon.cli.view import view
from parsimon.cli.zoo import command as zoo


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=output.EXIT_CODES)
@click.version_option(parsimon.__version__, prog_name="parsimon")
def command() -> None:
    """How robust is an image classifier to someone who can only query it?

    For models that you own or are permitted to test.
    """


for part in (run, compare, resume, show, view, report, plot, reproduce, zoo, check, completion):
    command.add_command(part)


def main() -> None:
    """The command, as a process."""
    # Threads that spin while they wait slow a torch model down a hundredfold beside any other busy process; torch
    # reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(output.run(command))

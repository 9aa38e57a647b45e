"""`parsimon view`."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from parsimon.cli.options import PathName
from parsimon.cli.output import JSON, answer
from parsimon.view.server import Viewer


@click.command()
@click.argument("folder", type=PathName(file_okay=False), metavar="RUN")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port of the page; 0 chooses a free one.",
)
@click.option("--open/--no-open", "show", default=None, help="Open a browser. [default: only in a terminal]")
@JSON
def view(folder: Path, port: int, show: bool | None) -> None:
    """Watch a run in a browser: progress, curves and gallery are updated live.

    The page can also attack a picture of yours step by step, with any black-box attack. The model is a bundled network
    or the run's own. The page is served to this machine only, at the printed address. RUN may be a folder where a run
    starts later, or a finished run. Ctrl-C stops the page, not the run.

    \b
    parsimon run --out results &
    parsimon view results
    """
    with Viewer(folder, port) as viewer, suppress(KeyboardInterrupt):
        text = f"The page: {viewer.address}\nCtrl-C stops it."
        answer(lambda: {"run": str(folder), "address": viewer.address}, partial(print, text, flush=True))
        if sys.stdout.isatty() if show is None else show:
            webbrowser.open(viewer.address)
        viewer.serve_forever()

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
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Of the page; 0: any that is free."
)
@click.option(
    "--open/--no-open", "show", default=None, help="Whether to open a browser. [default: if this is a terminal]"
)
@JSON
def view(folder: Path, port: int, show: bool | None) -> None:
    """Watch a run in a browser while it goes on: progress, curves growing, the gallery filling.

    On the same page, a picture of your own is attacked step by step on a bundled network, with the blocks drawn. The
    page is for this machine alone, and for whoever has the address that is printed. RUN may be a folder in which a run
    is yet to begin, or one whose run is over. Ctrl-C ends the page, and never the run.

    \b
    parsimon run --out results &
    parsimon view results
    """
    with Viewer(folder, port) as viewer, suppress(KeyboardInterrupt):
        words = f"The page: {viewer.address}\nCtrl-C ends it."
        answer(lambda: {"run": str(folder), "address": viewer.address}, partial(print, words, flush=True))
        if sys.stdout.isatty() if show is None else show:
            webbrowser.open(viewer.address)
        viewer.serve_forever()

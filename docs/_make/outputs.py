"""Write the output that pages show: run what stands above it.

    python docs/_make/outputs.py [README.md docs/guides/evaluate.md ...]      # all pages by default

A comment before a fenced `text` block says where its text comes from:

    <!-- run: parsimon run --images 8 --out small -->            runs, shows nothing
    <!-- output: parsimon show small -->                         a shell command, both streams
    <!-- output: python -->                                      what the `python` block above it prints

All commands and code of a page run in one empty folder, in order. Python blocks know the names `model`, `images` and
`labels`: the bundled `standard` network and its first 100 images. A page without such comments is not run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from parsimon import zoo

ROOT = Path(__file__).parents[2]
WIDTH = 88
IMAGES = 100

_PART = re.compile(
    r"^```python\n(?P<python>.*?)^```$"
    r"|^<!-- run: (?P<run>[^\n]*) -->$"
    r"|^<!-- output: (?P<output>[^\n]*) -->\n\n?```text\n(?P<shown>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_PROGRESS = re.compile(r"[\d,]+ of [\d,]+ images, .* per second")  # printed only if a command takes long


def pages() -> list[Path]:
    """Return the pages that show output."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if "<!-- output: " in page.read_text()]


def refreshed(page: Path) -> str:
    """Return the text of a page with its output made anew."""
    images, labels = (array[:IMAGES] for array in zoo.images())
    names: dict[str, Any] = {"model": zoo.path("standard"), "images": images, "labels": labels}
    printed = ""

    def refresh(part: re.Match[str]) -> str:
        nonlocal printed
        if part["python"] is not None:
            printed = _printed_by(part["python"], page, names)
        elif part["run"] is not None:
            _output_of(part["run"])
        else:
            text = printed if part["output"] == "python" else _output_of(part["output"])
            before = part[0][: part.start("shown") - part.start()]
            return f"{before}{_tidy(text)}\n```"
        return part[0]

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return _PART.sub(refresh, page.read_text())


def _printed_by(code: str, page: Path, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        exec(compile(code, str(page), "exec"), names)
    return out.getvalue()


def _output_of(command: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ran.stdout


def _tidy(text: str) -> str:
    lines = (line.rstrip() for line in text.strip("\n").splitlines())
    return "\n".join(line for line in lines if not _PROGRESS.search(line))


if __name__ == "__main__":
    os.environ["COLUMNS"] = str(WIDTH)
    for page in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        page.write_text(refreshed(page))
        print(page.relative_to(ROOT), flush=True)

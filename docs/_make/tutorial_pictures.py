"""Make the pictures of docs/tutorial.md: run its evaluation, keep the examples, and photograph the report.

python docs/_make/tutorial_pictures.py [FOLDER]      # by default docs/pictures; it needs the extra onnx, and Chromium
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import PIL.Image
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parents[1]
WIDTH, HEIGHT, SCALE = 1000, 900, 1.5  # of the photograph, in pixels of the page, and pixels of the picture for each
COLOURS = 32  # enough for text


def evaluation() -> list[str]:
    """Return the command by which the tutorial evaluates a model."""
    found = re.search(r"^\$ parsimon (evaluate .*)$", (DOCS / "tutorial.md").read_text(), flags=re.MULTILINE)
    assert found, "docs/tutorial.md evaluates nothing"
    return shlex.split(found[1])


def photograph(report: Path, path: Path) -> None:
    """Write the top of a report as a picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE)
        page.goto(report.as_uri())
        page.screenshot(path=path)
        browser.close()
    PIL.Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        command = [sys.executable, "-m", "parsimon", *evaluation()]
        subprocess.run(command, cwd=made, stdout=subprocess.DEVNULL, check=True)
        (report,) = Path(made).glob("*/report.html")
        shutil.copy(report.parent / "examples.png", folder / "tutorial-examples.png")
        photograph(report, folder / "tutorial-report.png")
    for path in sorted(folder.glob("tutorial-*.png")):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "pictures")

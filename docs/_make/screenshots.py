"""Take the pictures of docs/guides: a report, the live page of a run, and a figure.

python docs/_make/screenshots.py [FOLDER]      # by default docs/pictures; needs the extras onnx and plot, and Chromium

Everything in them is real: the script runs attacks on the bundled network, and opens what parsimon makes of them.

    report.png, curves.png    parsimon compare thrift square parsimonious --images 200 --budget 500 --out results
    live-page.png             parsimon compare thrift square parsimonious --images 60 --budget 2000 --out results
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import PIL.Image
from playwright.sync_api import Browser, Page, sync_playwright

PICTURES = Path(__file__).parents[1] / "pictures"
WIDTH, SCALE = 900, 1.5  # of the page in its pixels, and pixels of the picture for each
COLOURS = 256
MOST_BYTES = 200_000

_FINISHED = "compare thrift square parsimonious --images 200 --budget 500 --out results"
_LIVE = (
    "compare thrift square parsimonious --images 60 --budget 2000 --out results"  # docs/guides/live-page.md names it
)
_MINUTES = 5  # of patience with the run of the live page


def parsimon(arguments: str, folder: Path) -> subprocess.Popen[str]:
    """Start the command in a folder."""
    command = [sys.executable, "-m", "parsimon", *arguments.split()]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def shrink(path: Path) -> None:
    """Make a picture small enough for the site: with as many colours as a palette holds, if need be."""
    picture = PIL.Image.open(path).convert("RGB")
    picture.save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        picture.quantize(COLOURS, PIL.Image.Quantize.FASTOCTREE, dither=PIL.Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes; at most {MOST_BYTES:,} are allowed")
    print(f"{path}: {path.stat().st_size:,} bytes")


def opened(browser: Browser, address: str, height: int) -> Page:
    """Open a page in a light window of this height."""
    page = browser.new_page(
        viewport={"width": WIDTH, "height": height}, device_scale_factor=SCALE, color_scheme="light"
    )
    page.goto(address)
    return page


def photograph(page: Page, top: str, path: Path) -> None:
    """Photograph what a window shows when it is scrolled to an element."""
    page.locator(top).first.evaluate("element => window.scrollBy(0, element.getBoundingClientRect().top - 24)")
    page.wait_for_timeout(500)
    page.screenshot(path=path)


def photograph_report(browser: Browser, made: Path, path: Path) -> None:
    """Photograph the curves and the first images of the report of a finished run."""
    parsimon(_FINISHED, made).communicate()
    parsimon("report results", made).communicate()
    page = opened(browser, (made / "results" / "report.html").as_uri(), 1200)
    page.select_option("select[name=class]", label="automobile")  # on these, all attacks can be told from each other
    photograph(page, ".curves", path)
    page.close()
    shrink(path)


@contextmanager
def ending(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """End a process when the block is left."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def photograph_live_page(browser: Browser, made: Path, path: Path) -> None:
    """Photograph the live page while its run is under way: the first attack has ended, the second is running."""
    folder = made / "live"
    folder.mkdir()
    running = parsimon(_LIVE, folder)
    viewing = parsimon("view results --no-open --json", folder)
    with ending(running), ending(viewing):
        assert viewing.stdout is not None, "it has a pipe"
        document = ""
        while "}" not in document:
            document += viewing.stdout.readline()
        page = opened(browser, json.loads(document)["address"], 1100)
        bar = page.locator(".attacks li").nth(1).locator(".bar")
        for _ in range(_MINUTES * 60):
            if bar.count() and int(bar.get_attribute("aria-valuenow") or 0) >= 10:
                break
            page.wait_for_timeout(1000)
        assert page.locator(".state").inner_text() == "Running", "the run ended too soon, or takes too long"
        photograph(page, ".headlines", path)
        page.close()
    shrink(path)


def draw_curves(made: Path, path: Path) -> None:
    """Draw what docs/guides/figures.md describes: the success curves of the same run."""
    parsimon("plot results --out curves.png", made).communicate()
    shutil.copy(made / "curves.png", path)
    print(f"{path}: {path.stat().st_size:,} bytes")


def main(folder: Path) -> None:
    """Take all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        made = Path(place)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        photograph_report(browser, made, folder / "report.png")
        draw_curves(made, folder / "curves.png")
        photograph_live_page(browser, made, folder / "live-page.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)

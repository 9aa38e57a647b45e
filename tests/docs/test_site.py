"""The site, built and opened in a browser: nothing is cut off on a desk or on a phone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import narrow_tables

ROOT = Path(__file__).parents[2]
WIDTHS = (1280, 390)  # pixels: a desk and a phone

# An element is cut off if its content is wider than what is shown of it, by itself or by an element around it.
CUT_OFF = """() => {
    const found = [];
    const page = document.documentElement;
    if (page.scrollWidth > page.clientWidth + 1) found.push(`the page: ${page.scrollWidth} of ${page.clientWidth}`);
    for (const each of document.querySelectorAll('.md-content pre, .md-content pre > code, .md-content table')) {
        for (let at = each; !at.classList.contains('md-content'); at = at.parentElement) {
            if (at.scrollWidth > at.clientWidth + 1 && getComputedStyle(at).overflowX !== 'visible') {
                found.push(`${each.innerText.slice(0, 60)}: ${at.scrollWidth} of ${at.clientWidth}`);
                break;
            }
        }
    }
    return found;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    settings = ["build", "--strict", "--quiet", "--no-directory-urls", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([sys.executable, "-m", "mkdocs", *settings], cwd=ROOT, env=environment, check=True)
    return folder


@pytest.mark.parametrize("width", WIDTHS)
def test_no_code_and_no_table_is_cut_off(site: Path, browser: Any, width: int) -> None:
    pages = sorted(path for path in site.rglob("*.html") if path.name != "404.html")
    assert len(pages) > 50
    page = browser.new_page(viewport={"width": width, "height": 900})
    cut_off = {}
    for path in pages:
        page.goto(path.as_uri())
        if found := page.evaluate(CUT_OFF):
            cut_off[path.relative_to(site).as_posix()] = found
    page.close()
    assert cut_off == {}


def test_what_is_cut_off_is_found(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.set_content(f"<div class=md-content><div style='overflow:auto'><pre>{'x' * 200}</pre></div></div>")
    assert len(page.evaluate(CUT_OFF)) == 1
    page.close()


def test_pages_can_be_copied_from_edited_and_left(site: Path) -> None:
    page = (site / "guides" / "evaluate.html").read_text()
    for part in ("content.code.copy", "edit/main/docs/guides/evaluate.md", 'rel="next"', 'rel="prev"'):
        assert part in page


def test_a_copied_command_comes_without_its_prompt(site: Path, browser: Any) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto((site / "tutorial.html").as_uri())
    page.locator("pre", has_text="pip install").locator("..").locator("button").click()
    copied = page.wait_for_function("() => navigator.clipboard.readText()").json_value()
    context.close()
    lines = ["python3 -m venv venv", ". venv/bin/activate", 'pip install "parsimon[onnx]"']
    assert copied.splitlines() == lines


def test_cells_name_their_column() -> None:
    table = "<table><tr><th>a</th><th>b <code>c</code></th></tr><tr><td></td><td style='x'>2</td></tr></table>"
    assert narrow_tables.on_page_content(table) == (
        "<table><tr><th>a</th><th>b <code>c</code></th></tr>"
        '<tr><td data-label="a"></td><td style=\'x\' data-label="b c"><div>2</div></td></tr></table>'
    )

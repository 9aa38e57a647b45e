"""The site, built and opened in a browser: it can be read on a desk and on a phone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import narrow_pages
import narrow_tables

ROOT = Path(__file__).parents[2]
WIDTHS = (1280, 390)  # pixels: a desk and a phone
SMALLEST = 9.5  # pixels of the smallest letters

# An element is cut off if its content is wider than what is shown of it, by itself or by an element around it.
# On a phone, printed output and tables of short cells may scroll in themselves.
CUT_OFF = """() => {
    const phone = document.documentElement.clientWidth < 700;
    const scrolls = at => phone && at.matches('.language-text code, table[data-narrow]');
    const found = [];
    const page = document.documentElement;
    if (page.scrollWidth > page.clientWidth + 1) found.push(`the page: ${page.scrollWidth} of ${page.clientWidth}`);
    for (const each of document.querySelectorAll('.md-content pre, .md-content pre > code, .md-content table')) {
        for (let at = each; !at.classList.contains('md-content'); at = at.parentElement) {
            if (scrolls(at)) break;
            if (at.scrollWidth > at.clientWidth + 1 && getComputedStyle(at).overflowX !== 'visible') {
                found.push(`${each.innerText.slice(0, 60)}: ${at.scrollWidth} of ${at.clientWidth}`);
                break;
            }
        }
    }
    return found;
}"""


# The lines of code that a copy button covers, and the options that are broken between lines.
COVERED_OR_BROKEN = """() => {
    const found = [];
    const lines = node => {
        const range = document.createRange();
        range.selectNodeContents(node);
        return [...range.getClientRects()];
    };
    for (const code of document.querySelectorAll('.md-content pre > code')) {
        const button = code.parentElement.querySelector('.md-code__button');
        if (!button || !button.checkVisibility()) continue;
        const place = button.getBoundingClientRect();
        const covered = lines(code).some(line => line.width && line.right > place.left + 1 && line.left < place.right
            && line.bottom > place.top + 1 && line.top < place.bottom - 1);
        if (covered) found.push(`covered: ${code.innerText.slice(0, 60)}`);
    }
    const texts = document.createTreeWalker(document.querySelector('.md-content'), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode;
        if (!text.parentElement.closest('code') || text.parentElement.closest('.doc-signature')) continue;
        for (const option of text.data.matchAll(/(?<![\\w.])--?[A-Za-z][\\w-]*/g)) {
            const range = document.createRange();
            range.setStart(text, option.index);
            range.setEnd(text, option.index + option[0].length);
            const tops = new Set([...range.getClientRects()].map(line => Math.round(line.top)));
            if (tops.size > 1) found.push(`broken: ${option[0]}`);
        }
    }
    return found;
}"""

# Visible text in smaller letters than these, with the size of its letters.
SMALLER = """smallest => {
    const found = new Set();
    const texts = document.createTreeWalker(document.querySelector('.md-content'), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const around = texts.currentNode.parentElement;
        const size = parseFloat(getComputedStyle(around).fontSize);
        if (texts.currentNode.data.trim() && around.checkVisibility() && size < smallest) {
            found.add(`${size}: ${around.innerText.slice(0, 40)}`);
        }
    }
    return [...found];
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    settings = ["build", "--strict", "--quiet", "--no-directory-urls", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([sys.executable, "-m", "mkdocs", *settings], cwd=ROOT, env=environment, check=True)
    return folder


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_can_be_read(site: Path, browser: Any, width: int) -> None:
    """No code and no table is cut off, no button covers code, no option is broken, and no letter is tiny."""
    pages = sorted(path for path in site.rglob("*.html") if path.name != "404.html")
    assert len(pages) > 50
    page = browser.new_page(viewport={"width": width, "height": 900})
    faults = {}
    for path in pages:
        page.goto(path.as_uri())
        found = [*page.evaluate(CUT_OFF), *page.evaluate(COVERED_OR_BROKEN), *page.evaluate(SMALLER, SMALLEST)]
        if found:
            faults[path.relative_to(site).as_posix()] = found
    page.close()
    assert faults == {}


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


def table_of(headings: list[str], *cells: str) -> str:
    names = "".join(f"<th>{name}</th>" for name in headings)
    return f"<table><tr>{names}</tr><tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr></table>"


def test_a_table_of_short_cells_stays_one() -> None:
    prepared = narrow_tables.on_page_content(table_of(["a", "b", "c"], "net-one", "2", "a text that needs two lines"))
    assert '<table data-narrow="compact" style="--columns: 3; --first: 7">' in prepared
    assert '<th class="long">c</th>' in prepared


@pytest.mark.parametrize(
    "table",
    [
        table_of(["a", "b"], "1", "2"),
        table_of(["a", "b", "c"], "1", "2", "prose " * 6),
        table_of(["a", "b", "c"], "1", "words and more words", "words and more words"),
        table_of(["a", "b", "meaning"], "1", "2", "3"),
    ],
    ids=["two columns", "prose", "two columns of words", "meaning"],
)
def test_other_tables_become_cards(table: str) -> None:
    assert "data-narrow" not in narrow_tables.on_page_content(table)


def test_columns_of_the_setting_come_last_in_a_wide_table() -> None:
    headings = ["network", "data", "eps", "b", "c", "d", "e", "ratio"]
    prepared = narrow_tables.on_page_content(table_of(headings, *"12345678"))
    assert prepared.count('class="setting"') == 4
    assert '<th class="setting">eps</th>' in prepared


@pytest.mark.parametrize(
    ("html", "prepared"),
    [
        (
            '<div class="language-text highlight">one\n&lt;three&gt;</div>',
            '<div class="language-text highlight" style="--columns: 7">one\n&lt;three&gt;</div>',
        ),
        (
            '<div class="language-console highlight">$ run --out x-y</div>',
            '<div class="language-console highlight">$ run <span class="whole">--out</span> x-y</div>',
        ),
        ("<code>white-box</code>", '<code class="whole">white-box</code>'),
        ("<code>run --out x</code>", '<code>run <span class="whole">--out</span> x</code>'),
        (f"<code>{'x-' * 20}</code>", f"<code>{'x-' * 20}</code>"),
        ("<pre><code>a-b</code></pre>", "<pre><code>a-b</code></pre>"),
        ('<a href="x"><code>a-b</code></a>', '<a href="x"><code class="whole">a-b</code></a>'),
        (
            '<img src="a.png" width="9">',
            '<a class="picture" href="a.png" title="Open the picture in full size"><img src="a.png" width="9"></a>',
        ),
        ('<a href="b"><img src="a.png"></a>', '<a href="b"><img src="a.png"></a>'),
        ('<img class="wide" src="a.svg">', '<img class="wide" src="a.svg">'),
    ],
)
def test_parts_of_a_page_are_prepared(html: str, prepared: str) -> None:
    assert narrow_pages.on_page_content(html) == prepared

"""Write docs/llms.txt: the pages of the site with one line each, for language models (https://llmstxt.org).

    python docs/_make/llms.py

Sections and order come from the navigation in mkdocs.yml, titles and descriptions from the pages: the first heading,
and the first sentence of prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = DOCS / "llms.txt"

_SOURCE = "https://raw.githubusercontent.com/parsimon-dev/parsimon/main"
_OPTIONAL = ("Research", "Decisions")  # what a reader who is short of space may leave out, under the name that says so
_LONGEST = 200  # characters of a description
_FACTS = """\
- Install: `pip install "parsimon[onnx]"`, `"parsimon[torch]"` for torch modules, `parsimon` for numpy functions.
- Python: `parsimon.evaluate(model, images, labels, eps=8 / 255)` returns the robust accuracy with its interval.
- Shell: `parsimon evaluate model.onnx --data images.npz --eps 8/255`; every command has `--help` and `--json`.
- Images are float32 arrays (number, channels, rows, columns) in [0, 1]. The model normalises its input itself.
- Perturbations are bounded in the L-infinity norm. Test only models that you own or are permitted to test."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads mkdocs.yml, whose own tags mean nothing here."""


_Loader.add_multi_constructor("!", lambda *_: None)


def page() -> str:
    """Return the text of llms.txt."""
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)
    sections: dict[str, list[str]] = {}
    for heading, path in _pages(settings["nav"], ()):
        sections.setdefault(heading, []).append(_line(path))
    parts = [f"# {settings['site_name']}", f"> {settings['site_description']}", _FACTS]
    last = sections.pop("Optional", [])
    for heading, lines in [*sections.items(), ("Optional", last)]:
        parts.append(f"## {heading}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _pages(entries: list[Any], above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the section and the path of each page in the navigation."""
    for entry in entries:
        title, content = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        if isinstance(content, list):
            yield from _pages(content, (*above, title))
        else:
            optional = any(name in _OPTIONAL for name in above)
            yield "Optional" if optional else ": ".join(above) or "Start", content


def _line(path: str) -> str:
    """Return the entry of a page."""
    path = f"docs/{path}"
    if included := re.fullmatch(r'--8<-- "(.+)"\s*', (ROOT / path).read_text()):
        path = included[1]
    text = (ROOT / path).read_text()
    heading = re.search(r"^# (.+)$", text, flags=re.MULTILINE)
    title = _plain(heading[1]) if heading else path
    sentence = first_sentence(text)
    return f"- [{title}]({_SOURCE}/{path})" + (f": {sentence}" if sentence else "")


def first_sentence(text: str) -> str:
    """Return the first sentence of prose of a Markdown page; nothing if it has none."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", text):
        prose = paragraph.strip()
        if not prose or re.match(r"#|\||<|!|:::|--8<--|[-*+] |\d+\. |Guides?: ", prose):
            continue
        prose = _plain(prose).removeprefix("Decision. ")
        sentence = re.sub(r":$", ".", re.split(r"(?<=[.!?])\s+(?=[A-Z`]|parsimon\b)", prose)[0])
        return sentence if len(sentence) <= _LONGEST else f"{sentence[: _LONGEST - 3].rsplit(' ', 1)[0]}..."
    return ""


def _plain(text: str) -> str:
    """Return Markdown in one line, without links and emphasis."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)(\{[^}]*\})?", r"\1", " ".join(text.split()))
    return re.sub(r"\*\*(.+?)\*\*|(?<!\w)\*(.+?)\*(?!\w)", lambda match: match[1] or match[2], text)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE.relative_to(ROOT))

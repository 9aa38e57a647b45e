"""Fail if a built site loads anything from another host: `python docs/_make/offline.py site`.

Links for readers are allowed; external stylesheets, scripts, pictures, frames, fonts and imports are not.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

_LOADS = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "object": ("data",),
    "embed": ("src",),
    "link": ("href",),
}
_ONLY_NAMED = {"canonical", "next", "prev", "edit", "author", "license"}  # links that load nothing
_ELSEWHERE = re.compile(r"^\s*(https?:)?//", re.IGNORECASE)
_OF_CSS = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^"')\s;]+)""", re.IGNORECASE)


class _Loads(HTMLParser):
    """Collect what a page loads from other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._in_style = tag == "style"
        if tag == "link" and set((given.get("rel") or "").lower().split()) <= _ONLY_NAMED:
            return
        for name in _LOADS.get(tag, ()):
            places = (given.get(name) or "").split(",") if name == "srcset" else [given.get(name) or ""]
            self.found += [place.strip() for place in places if _ELSEWHERE.match(place)]
        self.found += _OF_CSS.findall(given.get("style") or "")

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.found += _OF_CSS.findall(data)


def loads(path: Path) -> list[str]:
    """Return what a file of the site loads from other hosts."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".css":
        return _OF_CSS.findall(text)
    page = _Loads()
    page.feed(text)
    return page.found


def main(site: Path) -> None:
    files = sorted([*site.rglob("*.html"), *site.rglob("*.css")])
    if not files:
        sys.exit(f"{site} holds no site: build it with `make docs`")
    found = [f"{path.relative_to(site)} loads {place}" for path in files for place in loads(path)]
    if found:
        sys.exit("\n".join([*found, "The site must work offline: bundle these files, or remove them."]))
    print(f"{len(files)} files of {site} load nothing from other hosts.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

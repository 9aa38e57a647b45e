"""Prepare code, printed output and pictures for narrow screens. A hook of MkDocs.

The style sheet cannot count characters, so this script does: options and names of code stay whole, and printed output
names its longest line. Each picture links to its file, where its letters can be enlarged.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

LONGEST = 30  # characters of a word that stays whole

_PARTS = re.compile(
    r'<div class="language-(?P<language>text|console) highlight">(?P<block>.*?)</div>'
    r"|<pre.*?</pre>|<a\s.*?</a>"
    r"|<code>(?P<code>[^<]*)</code>"
    r"|<img(?P<picture>[^>]*)>",
    re.DOTALL,
)
_TAG = re.compile(r"<[^>]+>")
_OPTION = re.compile(r"(?<=[\s>])--?[A-Za-z][\w-]*(?![^<>]*>)")
_SOURCE = re.compile(r'\ssrc="([^"]+)"')


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with its parts prepared."""
    return _PARTS.sub(_prepare, html)


def _prepare(part: re.Match[str]) -> str:
    match part["language"]:
        case "text":
            columns = max(map(len, unescape(_TAG.sub("", part["block"])).splitlines()))
            return part[0].replace(">", f' style="--columns: {columns}">', 1)
        case "console":
            return part[0].replace(part["block"], _OPTION.sub(_whole, part["block"]))
    if part["code"] is not None:
        return _inline(part["code"])
    if part["picture"] is not None:
        return _linked(part[0])
    if part[0].startswith("<a"):  # a link may show code; a picture in it has its link
        return re.sub(r"<code>([^<]*)</code>", lambda code: _inline(code[1]), part[0])
    return part[0]


def _inline(code: str) -> str:
    """Return inline code whose short words stay whole."""
    if " " not in code and len(unescape(code)) <= LONGEST:
        return f'<code class="whole">{code}</code>'
    words = re.sub(r"\S*-\S*", lambda word: _whole(word) if len(unescape(word[0])) <= LONGEST else word[0], code)
    return f"<code>{words}</code>"


def _whole(word: re.Match[str]) -> str:
    return f'<span class="whole">{word[0]}</span>'


def _linked(picture: str) -> str:
    """Return a picture that links to its file, unless it has a narrow version."""
    classes = re.search(r'class="([^"]*)"', picture)
    source = _SOURCE.search(picture)
    if source is None or (classes and {"wide", "narrow"} & set(classes[1].split())):
        return picture
    return f'<a class="picture" href="{source[1]}" title="Open the picture in full size">{picture}</a>'

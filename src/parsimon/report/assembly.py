"""A page from its parts: a fixed template, style and script, and one block of data.

Whatever came from a run lies in the data alone, and the script puts it on the page as text: a class that is named like
a tag stays a name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

_HERE = "parsimon.report"
_SECTIONS = ("table", "curves", "gallery", "counting")  # what several pages have


def page_file(name: str, package: str = _HERE) -> str:
    """A file of the folder `page` of a package."""
    return (files(package) / "page" / name).read_text(encoding="utf-8")


def assembled(template: str, styles: Sequence[str], scripts: Sequence[str], data: Any, sources: str) -> tuple[str, str]:
    """The page, and the policy that it states, for a server to state too.

    One pass: what a part holds is never looked at again. Of sources the policy allows those given, such as
    `img-src data:`, and no other.
    """
    style, script = "".join(styles), "".join(scripts)
    # Hashes allow exactly this style and this script: nothing that a run may have smuggled in can act.
    policy = (
        f"default-src 'none'; {sources}; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = {name: page_file(f"{name}.html").rstrip() for name in _SECTIONS}
    parts = {**sections, "policy": policy, "style": style, "script": script, "data": script_json(data)}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template), policy


def script_json(data: Any) -> str:
    """JSON that can stand in a script element: no character in it can end the element or begin another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # everything beyond ASCII is escaped already
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

"""The report: one HTML file that shows whole runs and works without a network.

A page is a fixed template, style and script with one block of data. Everything that comes from a run is in that block,
and the script inserts it as text, so that a class named like a tag stays a name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Outcome
from parsimon.errors import InputError
from parsimon.report.content import Data, card_of, curves_of, facts_shown, sentence_of, tables_of
from parsimon.report.picture import png, triptych
from parsimon.results.result import Comparison, Result

_PICTURES = 24_000_000  # characters of pictures in one file; with many more, browsers take seconds to open it
_SCRIPTS = ("parts.js", "plot.js", "gallery.js", "page.js")
_SECTIONS = ("table", "curves", "gallery", "counting")  # shared by the report and the live page


def write_page(
    comparisons: Mapping[str, Comparison], path: Path, *, facts: Mapping[str, Mapping[str, Any]] = {}
) -> None:
    """Write a self-contained HTML report. The same comparisons and facts always give the same bytes.

    Args:
        comparisons: Comparisons by their names on the page, usually the folders of their runs.
        path: Where to write it.
        facts: Facts of each comparison, by the same names. Optional keys are `spec` and `environment`, each a mapping,
            and `classes`, the names of the classes by number.
    """
    if not comparisons or not all(comparison.results for comparison in comparisons.values()):
        raise InputError("a report needs at least one run, and each at least one attack; got none")
    if unknown := sorted(set(facts) - set(comparisons)):
        raise InputError(f"facts must be of the runs {', '.join(comparisons)}; got some of {unknown[0]!r}")
    space, runs = _PICTURES, []
    for name, comparison in comparisons.items():
        known = facts.get(name, {})
        gallery, space = _gallery(comparison, known.get("classes"), space)
        runs.append(
            {
                "name": name,
                "sentence": sentence_of(comparison, known.get("spec", {})),
                "tables": tables_of(comparison),
                "curves": curves_of(comparison),
                "gallery": gallery,
                "facts": facts_shown(known),
            }
        )
    scripts = [page_file(name) for name in _SCRIPTS]
    page, _ = assemble(page_file("page.html"), [page_file("page.css")], scripts, {"runs": runs}, "img-src data:")
    path.write_text(page, encoding="utf-8", newline="\n")


def _gallery(comparison: Comparison, classes: Sequence[str] | None, space: int) -> tuple[Data, int]:
    """Return a card per attack and attacked image, and the characters left for pictures."""
    results = list(comparison.results.values())
    by_image: dict[int, list[tuple[int, Outcome]]] = {}
    for attack, result in enumerate(results):
        for outcome in result.outcomes:
            by_image.setdefault(outcome.index, []).append((attack, outcome))
    originals: dict[int, str] = {}
    cards: list[Data] = []
    for index in sorted(by_image):
        new = [card_of(results[attack], outcome, attack) for attack, outcome in by_image[index]]
        if space:
            original = _text(np.asarray(results[0].images[index]))
            pictures = [_pictures(results[attack], outcome) for attack, outcome in by_image[index]]
            size = len(original) + sum(len(text) for each in pictures for text in each.values())
            space = max(0, space - size)  # after the first image without space, no image has pictures
        if space:
            originals[index] = original
            new = [{**card, **each} for card, each in zip(new, pictures, strict=True)]
        cards += new
    gallery = {
        "attacks": list(comparison.results),
        "classes": [str(name) for name in classes or ()],
        "side": max(np.asarray(results[0].images[0]).shape[1:]),
        "originals": originals,
        "cards": cards,
    }
    return gallery, space


def _pictures(result: Result, outcome: Outcome) -> dict[str, str]:
    if outcome.point is None:
        return {}
    pictures = triptych(result, outcome)
    return {"perturbation": _text(pictures.perturbation), "adversarial": _text(pictures.adversarial)}


def _text(image: NDArray[np.floating]) -> str:
    return base64.b64encode(png(image)).decode()


def page_file(name: str, package: str = "parsimon.report") -> str:
    """Return the text of a file in a package's folder `page`."""
    return (files(package) / "page" / name).read_text(encoding="utf-8")


def assemble(template: str, styles: Sequence[str], scripts: Sequence[str], data: Any, sources: str) -> tuple[str, str]:
    """Return a page, and its content security policy.

    The policy allows only the given sources, such as `img-src data:`, and exactly this style and script.
    """
    style, script = "".join(styles), "".join(scripts)
    policy = (
        f"default-src 'none'; {sources}; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = {name: page_file(f"{name}.html").rstrip() for name in _SECTIONS}
    parts = {**sections, "policy": policy, "style": style, "script": script, "data": _script_json(data)}
    # One pass, so that a placeholder in the data is never filled in.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template), policy


def _script_json(data: Any) -> str:
    """Return JSON without any character that could end its script element or begin another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # escapes everything beyond ASCII
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

"""The report: one HTML file that shows whole runs, opens without a network and asks nobody for anything."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Image, Outcome
from parsimon.errors import InputError
from parsimon.report.assembly import assembled, page_file
from parsimon.report.content import Data, curves_of, digits, ending_of, facts_shown, sentence_of, tables_of
from parsimon.report.picture import perturbation_of, png
from parsimon.results.result import Comparison, Result

_PICTURES = 24_000_000  # characters of pictures in one file; with many more, browsers take seconds to open it
_SCRIPTS = ("parts.js", "plot.js", "gallery.js", "page.js")


def write_page(
    comparisons: Mapping[str, Comparison], path: Path, *, facts: Mapping[str, Mapping[str, Any]] = {}
) -> None:
    """Write a self-contained HTML report. The same comparisons and facts always give the same bytes.

    Args:
        comparisons: By the names that they are to have on the page: those of the folders of their runs.
        path: Where to write it.
        facts: Of each comparison, by the same names, what there is of: `spec` and `environment`, each a mapping, and
            `classes`, the names of the classes in the order of their numbers.
    """
    if not comparisons or not all(comparison.results for comparison in comparisons.values()):
        raise InputError("a report needs at least one run, and each at least one attack; got none")
    if unknown := sorted(set(facts) - set(comparisons)):
        raise InputError(f"facts must be of the runs {', '.join(comparisons)}; got some of {unknown[0]!r}")
    room = _Room(_PICTURES)
    runs = [_run(name, comparison, facts.get(name, {}), room) for name, comparison in comparisons.items()]
    scripts = [page_file(name) for name in _SCRIPTS]
    page, _ = assembled(page_file("page.html"), [page_file("page.css")], scripts, {"runs": runs}, "img-src data:")
    path.write_text(page, encoding="utf-8", newline="\n")


def _run(name: str, comparison: Comparison, facts: Mapping[str, Any], room: _Room) -> Data:
    return {
        "name": name,
        "sentence": sentence_of(comparison, facts.get("spec", {})),
        "tables": tables_of(comparison),
        "curves": curves_of(comparison),
        "gallery": _gallery(comparison, facts.get("classes"), room),
        "facts": facts_shown(facts),
    }


class _Room:
    """What is left for pictures. Once something does not fit, nothing more is taken: no image is shown in part."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, pictures: Iterable[str]) -> bool:
        size = sum(map(len, pictures))
        self.left = self.left - size if size <= self.left else 0
        return self.left > 0


def _gallery(comparison: Comparison, classes: Sequence[str] | None, room: _Room) -> Data:
    """What every attack made of every image that was attacked."""
    results = list(comparison.results.values())
    by_index = [{outcome.index: outcome for outcome in result.outcomes} for result in results]
    images = []
    for index in sorted(set().union(*by_index)):
        original = np.asarray(results[0].images[index]) if room.left else None
        outcomes = [outcomes.get(index) for outcomes in by_index]
        pictures = None if original is None else _pictures(original, results, outcomes)
        if pictures is not None and not room.take(text for pair in pictures for text in pair):
            pictures = None
        images.append(
            {
                "number": index,
                "label": int(results[0].labels[index]),
                "before": digits(results[0].clean.confidence[index]),
                "original": pictures[0][0] if pictures else None,
                "attacks": [
                    None if outcome is None else [*ending_of(outcome), *(pictures[1 + number] if pictures else ())]
                    for number, outcome in enumerate(outcomes)
                ],
            }
        )
    return {
        "attacks": list(comparison.results),
        "classes": [str(name) for name in classes or ()],
        "side": max(np.asarray(results[0].images[0]).shape[1:]),
        "images": images,
    }


def _pictures(original: Image, results: Sequence[Result], outcomes: Sequence[Outcome | None]) -> list[tuple[str, ...]]:
    """The original, and the perturbation and the adversarial image of each attack that fooled the model."""
    pictures: list[tuple[str, ...]] = [(_text(original),)]
    for result, outcome in zip(results, outcomes, strict=True):
        if outcome is None or outcome.point is None:
            pictures.append(())
            continue
        adversarial = result.draw(outcome)
        perturbation = perturbation_of(original, adversarial, result.threat.eps)
        pictures.append((_text(perturbation), _text(adversarial)))
    return pictures


def _text(image: NDArray[np.floating]) -> str:
    """A picture in base64."""
    return base64.b64encode(png(image)).decode()

"""The report: one HTML file that shows whole runs, opens without a network and asks nobody for anything.

The file is a fixed page (page/page.html with its style and script) and one block of data. Whatever came from a run
lies in the data alone, and the script puts it on the page as text: a class that is named like a tag stays a name.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from parsimon.errors import InputError
from parsimon.protocol import Image, Outcome
from parsimon.report.picture import as_bytes
from parsimon.report.style import marks
from parsimon.report.table import Table
from parsimon.result import Comparison, Result
from parsimon.statistics import band, curve

Data = dict[str, Any]

_PICTURES = 24_000_000  # characters of pictures in one file; with many more, browsers take seconds to open it
_LEVELS = 33  # of a perturbation, one of them no change: enough for the eye, and half the bytes of 256
_WHITE_BOX_DASHES: tuple[list[float], ...] = ([6, 4], [2, 3], [10, 3, 2, 3])


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
    path.write_text(_assembled({"runs": runs}), encoding="utf-8", newline="\n")


def _assembled(data: Data) -> str:
    """The page with its parts put in. One pass: what a part holds is never looked at again."""
    template, style = _read("page.html"), _read("page.css")
    script = "".join(_read(name) for name in ("page.js", "plot.js", "gallery.js"))
    # Hashes allow exactly this style and this script: nothing that a run may have smuggled in can act.
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "data": script_json(data)}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def _read(name: str) -> str:
    return (files("parsimon.report") / "page" / name).read_text(encoding="utf-8")


def script_json(data: Any) -> str:
    """JSON that can stand in a script element: no character in it can end the element or begin another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # everything beyond ASCII is escaped already
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _run(name: str, comparison: Comparison, facts: Mapping[str, Any], room: _Room) -> Data:
    return {
        "name": name,
        "sentence": _sentence(comparison, facts.get("spec", {})),
        # Of one attack alone there is no second table.
        "tables": [_table(*each) for each in zip(("Results", "Paired"), comparison.tables(), strict=False)],
        "curves": _curves(comparison),
        "gallery": _gallery(comparison, facts.get("classes"), room),
        "facts": [
            {"title": title, "rows": list(_flat(facts[key]))}
            for key, title in (("spec", "Spec"), ("environment", "Environment"))
            if facts.get(key)
        ],
    }


def _sentence(comparison: Comparison, spec: Mapping[str, Any]) -> str:
    """What was measured."""
    first = next(iter(comparison.results.values()))
    count, images = len(comparison.results), len(first.outcomes)
    attacks = f"Each of {count} attacks" if count > 1 else "An attack"
    model = f"the model {spec['model']}" if spec.get("model") else "the model"
    source = f" (data: {spec['data']})" if spec.get("data") else ""
    goal = f"make {model} see a chosen other class in" if first.threat.targeted else f"fool {model} on"
    return (
        f"{attacks} tried to {goal} {images:,} images that it classifies correctly{source}, with at most "
        f"{first.budget:,} queries an image, changing no pixel by more than {first.threat.eps * 255:.4g}/255."
    )


def _table(heading: str, table: Table) -> Data:
    return {
        "heading": heading,
        "title": table.title,
        "headers": list(table.headers),
        "groups": [[[cell._asdict() for cell in row] for row in group] for group in table.groups],
        "notes": list(table.notes),
        "markdown": table.markdown(),
        "latex": table.latex(),
    }


def _curves(comparison: Comparison) -> Data:
    """Where each curve rises, to how many images, and Wilson's interval from there on."""
    seen = [name for name, result in comparison.results.items() if not result.attack.white_box]
    looks = marks(seen) if seen else {}
    lines: list[Data] = []
    for name, result in comparison.results.items():
        if not result.outcomes:
            continue
        found = curve(result.outcomes, result.budget)
        at = np.concatenate([[0], found.queries])
        low, high = band(found, at)
        line: Data = {
            "name": name,
            "images": found.images,
            "queries": at.tolist(),
            "fooled": found.count_at(at).tolist(),
            "low": low.round(5).tolist(),
            "high": high.round(5).tolist(),
            "white_box": result.attack.white_box,
        }
        if result.attack.white_box:
            dashes = _WHITE_BOX_DASHES[sum(other["white_box"] for other in lines) % len(_WHITE_BOX_DASHES)]
            lines.append({**line, "colour": None, "dashes": dashes})
        else:
            # Steps are easiest to follow where they are solid: dashes only tell apart what shares a colour.
            shared = any(other["colour"] == looks[name].colour for other in lines)
            dashes = [3 * length for length in looks[name].dashes[1]] if shared else []
            lines.append({**line, "colour": looks[name].colour, "dashes": dashes})
    return {"budget": max(result.budget for result in comparison.results.values()), "lines": lines}


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
                "before": _digits(results[0].prepared.confidence[index]),
                "original": pictures[0][0] if pictures else None,
                "attacks": [
                    None if outcome is None else [*_ending(outcome), *(pictures[1 + number] if pictures else ())]
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


def _ending(outcome: Outcome) -> tuple[str, int, int | None, float | None]:
    """How it ended, after how many queries, which class the model saw then, if it was fooled, and how confidently."""
    state = "fooled" if outcome.success else "unfinished" if outcome.ended == "interrupted" else "withstood"
    confidence = None if outcome.confidence is None else _digits(outcome.confidence)
    return state, outcome.queries, outcome.predicted, confidence


def _digits(confidence: float) -> float:
    """As many as are shown."""
    return round(float(confidence), 3)


def _pictures(original: Image, results: Sequence[Result], outcomes: Sequence[Outcome | None]) -> list[tuple[str, ...]]:
    """The original, and the perturbation and the adversarial image of each attack that fooled the model."""
    pictures: list[tuple[str, ...]] = [(_png(original),)]
    for result, outcome in zip(results, outcomes, strict=True):
        if outcome is None or outcome.point is None:
            pictures.append(())
            continue
        adversarial = result.draw(outcome)
        stretched = 0.5 + (adversarial - original) / (2 * result.threat.eps)  # -eps is black, +eps white
        pictures.append((_png(np.rint(stretched * (_LEVELS - 1)) / (_LEVELS - 1)), _png(adversarial)))
    return pictures


def _png(image: NDArray[np.floating]) -> str:
    """A picture at its natural size, in base64."""
    file = io.BytesIO()
    Pillow.fromarray(as_bytes(image)).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Facts as lines of text; of what is nested, the names are joined."""
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key} ")
        elif isinstance(value, list | tuple):
            texts = [str(each) for each in value]
            yield f"{prefix}{key}", shlex.join(texts) if key == "command" else ", ".join(texts)
        elif value is not None:
            yield f"{prefix}{key}", str(value).lower() if isinstance(value, bool) else str(value)

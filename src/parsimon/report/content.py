"""What a page shows of a run, as plain data: the sentence, the tables, the curves, how each image ended, the facts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parsimon.core.types import Outcome
from parsimon.report.style import marks
from parsimon.results.result import Comparison
from parsimon.results.statistics import band, curve
from parsimon.results.table import Table

Data = dict[str, Any]

_WHITE_BOX_DASHES: tuple[list[float], ...] = ([6, 4], [2, 3], [10, 3, 2, 3])


def sentence_of(comparison: Comparison, spec: Mapping[str, Any]) -> str:
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


def tables_of(comparison: Comparison) -> list[Data]:
    """Of one attack alone there is no second table."""
    return [_table(*each) for each in zip(("Results", "Paired"), comparison.tables(), strict=False)]


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


def curves_of(comparison: Comparison) -> Data:
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


def ending_of(outcome: Outcome) -> tuple[str, int, int | None, float | None]:
    """How it ended, after how many queries, which class the model saw then, if it was fooled, and how confidently."""
    state = "fooled" if outcome.success else "unfinished" if outcome.ended == "interrupted" else "withstood"
    confidence = None if outcome.confidence is None else digits(outcome.confidence)
    return state, outcome.queries, outcome.predicted, confidence


def digits(confidence: float) -> float:
    """As many as are shown."""
    return round(float(confidence), 3)


def facts_shown(facts: Mapping[str, Any]) -> list[Data]:
    """Spec and environment, each as lines of text."""
    return [
        {"title": title, "rows": list(_flat(facts[key]))}
        for key, title in (("spec", "Spec"), ("environment", "Environment"))
        if facts.get(key)
    ]


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

"""The content of a page, as plain data: sentence, tables, curves, cards of the gallery, facts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parsimon.core.types import Outcome
from parsimon.report.style import marks
from parsimon.results.result import Comparison, Result
from parsimon.results.statistics import curve, wilson_interval

Data = dict[str, Any]

_WHITE_BOX_DASHES: tuple[list[float], ...] = ([6, 4], [2, 3], [10, 3, 2, 3])
_CONFIDENCE_DIGITS = 3  # as many as are shown


def sentence_of(comparison: Comparison, spec: Mapping[str, Any]) -> str:
    """Return a sentence that says what was measured."""
    first, count = comparison.first, len(comparison.results)
    attacks = f"Each of {count} attacks" if count > 1 else "An attack"
    model = f"the model {spec['model']}" if spec.get("model") else "the model"
    source = f" (data: {spec['data']})" if spec.get("data") else ""
    goal = f"make {model} predict a chosen other class for" if first.threat.targeted else f"fool {model} on"
    return (
        f"{attacks} tried to {goal} {len(first.outcomes):,} images that it classifies correctly{source}, with at most "
        f"{first.budget:,} queries per image, changing no pixel by more than {first.threat.eps * 255:.4g}/255."
    )


def tables_of(comparison: Comparison) -> list[Data]:
    """Return the table of results and, if there is one, the table of paired attacks."""
    return [
        {
            "heading": heading,
            "title": table.title,
            "headers": list(table.headers),
            "groups": [[[cell._asdict() for cell in row] for row in group] for group in table.groups],
            "notes": list(table.notes),
            "markdown": table.markdown(),
            "latex": table.latex(),
        }
        for heading, table in zip(("Results", "Paired"), comparison.tables(), strict=False)
    ]


def curves_of(comparison: Comparison) -> Data:
    """Return each attack's success curve with its Wilson interval at every step."""
    looks = marks(comparison.black_box) if comparison.black_box else {}
    lines: list[Data] = []
    for name, result in comparison.results.items():
        if not result.outcomes:
            continue
        found = curve(result.outcomes, result.budget)
        at = np.concatenate([[0], found.queries])
        fooled = [0, *found.fooled.tolist()]
        low, high = np.array([wilson_interval(count, found.images) for count in fooled]).T
        if result.attack.white_box:
            colour = None
            dashes = _WHITE_BOX_DASHES[sum(other["white_box"] for other in lines) % len(_WHITE_BOX_DASHES)]
        else:
            colour = looks[name].colour
            # Solid steps are the easiest to follow, so dashes only separate lines of the same colour.
            shared = any(other["colour"] == colour for other in lines)
            dashes = [3 * length for length in looks[name].dashes[1]] if shared else []
        lines.append(
            {
                "name": name,
                "images": found.images,
                "queries": at.tolist(),
                "fooled": fooled,
                "known": found.known,
                "low": low.round(5).tolist(),
                "high": high.round(5).tolist(),
                "white_box": result.attack.white_box,
                "colour": colour,
                "dashes": dashes,
            }
        )
    return {"budget": max(result.budget for result in comparison.results.values()), "lines": lines}


def card_of(result: Result, outcome: Outcome, attack: int) -> Data:
    """Return a card of the gallery: the outcome of the attack of that number on one image."""
    state = "fooled" if outcome.success else "unfinished" if outcome.ended == "interrupted" else "robust"
    return {
        "attack": attack,
        "number": outcome.index,
        "label": int(result.labels[outcome.index]),
        "before": round(float(result.clean.confidence[outcome.index]), _CONFIDENCE_DIGITS),
        "state": state,
        "queries": outcome.queries,
        "predicted": outcome.predicted,
        "after": None if outcome.confidence is None else round(float(outcome.confidence), _CONFIDENCE_DIGITS),
    }


def facts_shown(facts: Mapping[str, Any]) -> list[Data]:
    """Return spec and environment as lines of text."""
    return [
        {"title": title, "rows": list(_flat(facts[key]))}
        for key, title in (("spec", "Spec"), ("environment", "Environment"))
        if facts.get(key)
    ]


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each fact as name and text; names of nested facts are joined."""
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key} ")
        elif isinstance(value, list | tuple):
            texts = [str(each) for each in value]
            yield f"{prefix}{key}", shlex.join(texts) if key == "command" else ", ".join(texts)
        elif value is not None:
            yield f"{prefix}{key}", str(value).lower() if isinstance(value, bool) else str(value)

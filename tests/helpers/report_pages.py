"""Reports for tests: of a real comparison, and of one in which every name is hostile."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import parsimon
from parsimon.report.page import write_page
from parsimon.results.evaluation import EvaluationGrid
from parsimon.results.result import Comparison
from small_model import IMAGES, LABELS, linear

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><!-- & {{data}} \u2028 \ud800"
CLASSES = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FACTS = {
    "spec": {"model": "robust", "data": "bundled", "attacks": ("a", "b"), "targeted": False, "loss": None},
    "environment": {"packages": {"numpy": "2.0"}, "command": ["parsimon", "compare", "two words"]},
    "classes": CLASSES,
}


@cache
def small() -> Comparison:
    """A real comparison, in which some images are fooled and some withstand."""
    return parsimon.compare(linear, IMAGES, LABELS, 0.05, ["square", "random", "parsimonious"], budget=40)


@cache
def evaluated() -> EvaluationGrid:
    """A real evaluation of two models at two radii."""

    def other(images: Any) -> Any:
        return linear(images) / 2 + 5 * images.mean((1, 2, 3))[:, None] * np.arange(10) / 10

    return parsimon.evaluate({"one": linear, "two": other}, IMAGES, LABELS, [0.02, 0.05], budget=[20, 60])


def written(folder: Path, comparisons: dict[str, Comparison], **facts: Any) -> Path:
    path = folder / "report.html"
    write_page(comparisons, path, **facts)
    return path


def hostile(comparison: Comparison) -> tuple[dict[str, Comparison], dict[str, dict[str, Any]]]:
    """A comparison in which everything that has a name has a hostile one."""
    name = HOSTILE[:-1]  # attacks are named in text that was read, so that half a character is none of theirs
    results = {f"{name}{number}": result for number, result in enumerate(comparison.results.values())}
    facts = {"spec": {HOSTILE: HOSTILE}, "environment": {HOSTILE: [HOSTILE]}, "classes": [HOSTILE] * 10}
    return {HOSTILE: Comparison(results)}, {HOSTILE: facts}

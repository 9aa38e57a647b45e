"""The code in the documentation runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsimon import zoo
from parsimon.attacks import ATTACKS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_python_blocks_run_one_after_another(page: Path) -> None:
    images, labels = (array[:4] for array in zoo.images())
    model = zoo.path("standard")
    names: dict[str, Any] = {"model": model, "images": images, "labels": labels, "targets": (labels + 1) % 10}
    for block in blocks(page):
        # The pages speak of users' models and full budgets; here each is small enough for a test.
        block = re.sub(r"budget=[\d_]+", "budget=20", block.replace('scores="probabilities"', 'scores="logits"'))
        exec(compile(block, str(page), "exec"), names)
    if "found" in names:
        assert np.flatnonzero(names["found"].members).tolist() == [0, 2]


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_attacks_names_every_attack_and_every_preset() -> None:
    page = (ROOT / "docs" / "attacks.md").read_text()
    for name, attack in ATTACKS.items():
        for word in (name, attack.__name__, *attack.presets):
            assert f"`{word}`" in page

"""The code in the documentation runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import parsimon
from parsimon import zoo
from parsimon.attacks import ATTACKS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


PEERS = [page for page in PAGES if page.name.startswith("from-")]  # whose code is scripts of other libraries


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page) and page not in PEERS], ids=lambda page: page.name
)
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


@pytest.mark.parametrize("page", PEERS, ids=lambda page: page.name)
def test_a_script_of_another_library_works_when_the_shown_lines_are_changed(page: Path) -> None:
    """Theirs runs; ours runs with at most three lines changed, and finds what `parsimon.attack` finds."""
    pytest.importorskip(page.stem.removeprefix("from-"))
    before, *further = blocks(page)
    (changes,) = re.findall(r"^```diff\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = changes.splitlines()
    removed, added = ([line[1:] for line in lines if line.startswith(sign)] for sign in "-+")
    assert len(removed) == len(added) <= 3
    after = before
    for old, new in zip(removed, added, strict=True):
        assert after.splitlines().count(old) == 1
        after = after.replace(old, new)

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10)).eval()
    images = zoo.images()[0][:6]
    labels = module(torch.from_numpy(images)).argmax(dim=1).numpy()
    for script in (before, after):
        script = re.sub(r"(budget|max_iter|n_queries)=[\d_]+", r"\1=20", script)
        tensors = {"images": torch.from_numpy(images), "labels": torch.from_numpy(labels)}
        names: dict[str, Any] = {"model": module, "x": images, "y": labels, **tensors}
        exec(compile(script, str(page), "exec"), names)
    for block in further:
        exec(compile(re.sub(r"budget=[\d_]+", "budget=20", block), str(page), "exec"), names)

    attack = names["attack"]
    found = attack.results[-1] if hasattr(attack, "results") else attack.result
    expected = parsimon.attack(module, images, labels, 8 / 255, attack=found.attack, budget=20)
    assert type(attack).__module__.startswith("parsimon.adapters")
    assert found.outcomes == expected.outcomes


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_attacks_names_every_attack_and_every_preset() -> None:
    page = (ROOT / "docs" / "attacks.md").read_text()
    for name, attack in ATTACKS.items():
        for word in (name, attack.__name__, *attack.presets):
            assert f"`{word}`" in page

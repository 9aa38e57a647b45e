"""Every page keeps the rules of style: short sentences, few numbers, lines of code that fit."""

from __future__ import annotations

from pathlib import Path

import pytest

import prose

ROOT = Path(__file__).parents[2]
AT_THE_TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in AT_THE_TOP), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_keeps_the_rules(page: Path) -> None:
    assert prose.faults(page) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("one " * 26 + ".", "26 words"),
        ("It took 3 queries, 4 batches and 5.5 seconds.", "3 numbers"),
        ("The oracle knows.", "'oracle'"),
        (f"```python\n{'x' * 89}\n```", "89 characters"),
        (f"- An item.\n- {'one ' * 26}", "26 words"),
    ],
)
def test_what_breaks_a_rule_is_found(text: str, found: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    (fault,) = prose.faults(page)
    assert fault.startswith(found)


@pytest.mark.parametrize(
    "text",
    [
        "CIFAR-10 and ResNet-50 are names, 2019 is a year, and `1 2 3` is code.",
        "one " * 20 + ". " + "One " * 20 + ".",
        "| 1 | 2 | 3 | 4 |\n|---|---|---|---|",
        f"```\n{'word ' * 15}\n```",
    ],
)
def test_what_keeps_the_rules_passes(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert prose.faults(page) == []

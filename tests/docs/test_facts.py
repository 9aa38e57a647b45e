"""Facts that several pages state are those of the project's files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import parsimon
from parsimon.attacks import ATTACKS
from parsimon.defences import DEFENCES

ROOT = Path(__file__).parents[2]
NUMBERS = {1: "One line changes", 2: "Two lines change"}


def read(name: str) -> str:
    """Return a file, with its line breaks as spaces."""
    return " ".join((ROOT / name).read_text().split())


def target(name: str) -> str:
    """Return the commands of a target of the Makefile."""
    (commands,) = re.findall(rf"^{name}:[^\n]*\n((?:\t[^\n]*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert isinstance(commands, str)
    return commands


def test_contributing_names_what_the_targets_run() -> None:
    page = read("CONTRIBUTING.md")
    scripts = re.findall(r"benchmarks/(\w+\.py)", target("bench"))
    (listed,) = re.findall(r"`make bench` runs these scripts.*?(?=\. |## |$)", page)
    table = page[page.index(listed) :]
    rows = re.findall(r"\| `(\w+\.py)` \|", table)
    assert rows[: len(scripts)] == scripts
    for name in re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE):
        assert f"`make {name}`" in page


def test_contributing_names_what_must_pass() -> None:
    for command in re.findall(r"^make [^\n]+", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE):
        assert f"`{command}`" in read("CONTRIBUTING.md")


@pytest.mark.parametrize("library", ["foolbox", "art", "torchattacks"])
def test_a_migration_changes_as_many_lines_as_its_page_says(library: str) -> None:
    name = f"docs/guides/from-{library}.md"
    (changes,) = re.findall(r"^```diff\n(.*?)^```", (ROOT / name).read_text(), flags=re.DOTALL | re.MULTILINE)
    removed = sum(line.startswith("-") for line in changes.splitlines())
    assert NUMBERS[removed] in read(name)
    assert "one or two lines" in read("README.md")
    assert "one or two lines" in read("docs/comparison.md")


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == parsimon.__version__
    assert f"version-{parsimon.__version__}-blue" in read("README.md")
    assert f">- parsimon {parsimon.__version__} ·" in read("mkdocs.yml")  # at the foot of every page
    dated = f"## {citation['version']} ({citation['date-released']})"
    released = re.findall(r"^## .*$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert released[0] == dated
    assert all(re.fullmatch(r"## \d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", each) for each in released)


def test_the_readme_counts_the_attacks() -> None:
    black_box = [name for name, attack in ATTACKS.items() if not attack().white_box]
    assert f"One engine, {len(black_box)} attacks." in read("README.md")
    label_only = [name for name in black_box if ATTACKS[name].needs == "label"]
    assert f"| label-only attacks | {len(label_only)} |" in read("README.md")


@pytest.mark.parametrize(("name", "listed"), [("docs/attacks.md", ATTACKS), ("docs/guides/defences.md", DEFENCES)])
def test_every_paper_is_linked(name: str, listed: Mapping[str, Any]) -> None:
    links = [each.paper.link for each in listed.values() if each.paper is not None]
    assert len(links) > 5
    assert [link for link in links if link not in read(name)] == []

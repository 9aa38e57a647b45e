"""A result behind a defence names it wherever the result is shown: nobody may read it as that of the bare model."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from parsimon.cli.commands import command

DEFENCE = "bit-depth,bits=5"
BEHIND = f"ehind {DEFENCE}"
SMALL = ["--images", "4", "--budget", "10", "--quiet"]


def said(*words: str) -> str:
    ran = CliRunner().invoke(command, words)
    assert ran.exit_code == 0, ran.output
    return " ".join(ran.stdout.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two attacks and an evaluation, each of the bare model and behind a defence."""
    folder = tmp_path_factory.mktemp("named")
    for name, options in (("bare", []), ("defended", ["--defence", DEFENCE])):
        text = said("compare", "thrift", "square", *SMALL, "--out", str(folder / name), *options)
        assert text.count(BEHIND) == (3 if options else 0)  # the headline and the titles of two tables
        text = said("evaluate", *SMALL, "--out", str(folder / f"{name} evaluation"), *options)
        assert (f"robust behind {DEFENCE}: robust accuracy" in text) == bool(options)
        assert f"Behind {DEFENCE}: eps 8/255" in text or not options
    return folder


@pytest.mark.parametrize("kind", ["", " evaluation"])
def test_files_and_show_name_it(folder: Path, kind: str) -> None:
    for name in ("bare", "defended"):
        place, named = folder / f"{name}{kind}", name == "defended"
        for file in ("table.md", "table.tex"):
            text = (place / file).read_text().replace("\\", "")
            assert (BEHIND in text) == named
            assert ("ehind" in text) == named
        with (place / "results.csv").open(newline="") as table:
            assert {row["defence"] for row in csv.DictReader(table)} == {DEFENCE if named else ""}
        assert (BEHIND in said("show", str(place))) == named
        assert json.loads(said("show", str(place), "--json"))["defence"] == ([DEFENCE] if named else None)


def headlines(path: Path) -> list[str]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    data: Any = json.loads(found)
    tops = [*data["runs"], *([data["overview"]] if data["overview"] else [])]
    return [headline["what"] for each in tops for headline in each["headlines"]]


@pytest.mark.parametrize("kind", ["", " evaluation"])
def test_the_page_names_it(folder: Path, kind: str, tmp_path: Path) -> None:
    for name, what in (("bare", "Robust accuracy"), ("defended", f"Robust accuracy behind {DEFENCE}")):
        said("report", str(folder / f"{name}{kind}"), "--out", str(tmp_path / "page.html"))
        assert set(headlines(tmp_path / "page.html")) == {what}


@pytest.mark.parametrize("kind", ["", " evaluation"])
def test_a_difference_names_both_sides(folder: Path, kind: str) -> None:
    bare, defended = (str(folder / f"{name}{kind}") for name in ("bare", "defended"))
    text = said("diff", bare, defended)
    assert "without a defence ->" in text
    assert BEHIND in text
    document = json.loads(said("diff", bare, defended, "--json"))
    assert (document["old_defence"], document["new_defence"]) == (None, [DEFENCE])
    assert "ehind" not in said("diff", bare, bare)

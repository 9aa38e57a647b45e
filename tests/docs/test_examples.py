"""The examples run, each by itself, in an empty folder."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import matplotlib.pyplot
import pytest

import pictures

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_cell_by_cell(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its code is plain Python, so that no kernel is needed; what printed when it was stored prints again."""
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, {cell['id']}", "exec"), names)
            stored = {output["output_type"] for output in cell["outputs"]}
            assert bool(capsys.readouterr().out) == ("stream" in stored), cell["id"]
            assert "error" not in stored
    matplotlib.pyplot.close("all")


def test_notebooks_are_small_and_show_what_they_found() -> None:
    for path in NOTEBOOKS:
        assert path.stat().st_size < 300_000
        cells = json.loads(path.read_text())["cells"]
        assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.get("outputs", []))


def test_the_pictures_of_the_algorithm_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller than those of the documentation, which a test need not wait for."""
    monkeypatch.setattr(pictures, "BUDGET", 120)
    monkeypatch.setattr(pictures, "LAZY_IMAGES", 1)
    pictures.main(tmp_path)
    page = (EXAMPLES.parent / "docs" / "algorithm.md").read_text()
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == set(re.findall(r"\]\(pictures/([^)]+)\)", page))
    for name in drawn:
        assert (EXAMPLES.parent / "docs" / "pictures" / name).stat().st_size < 150_000


def test_lazy_insertion_asks_for_less_and_finds_about_as_much() -> None:
    (number,) = pictures.right_ones(1)
    phases = pictures.lazily_and_naively(number)
    assert phases.lazy[-1] < phases.naive[-1] / 5
    assert abs(phases.lazy_value - phases.naive_value) < 0.01
    assert phases.naive[:2] == [1 + 64, 1 + 64 + 63]  # the empty set, then every block that is left

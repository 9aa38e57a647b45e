"""The examples run, each by itself, in an empty folder."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import matplotlib
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
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

"""`parsimon report` and `plot` of evaluations, and what `resume` does with a report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from bundled_images import Bundled
from command import refused, run
from parsimon import runs
from parsimon.runs.config import RunConfig
from parsimon.runs.evaluation import EvaluationConfig


@pytest.fixture(scope="module")
def place(bundled: Bundled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and an evaluation."""
    place = tmp_path_factory.mktemp("look")
    np.savez(place / "data.npz", images=bundled.images, labels=bundled.labels)
    spec = {"data": str(place / "data.npz"), "images": 4}
    runs.run(RunConfig.of({**spec, "budget": 5}), place / "run")
    runs.evaluate(EvaluationConfig.of({**spec, "budget": [5], "eps": ["4/255", "8/255"]}), place / "evaluation")
    return place


def test_an_evaluation_is_drawn_against_radius_or_queries(place: Path) -> None:
    drawn = {}
    for against in ("default", "queries"):  # the default is the radius, if there are several
        out = ["--out", f"{against}.svg"]
        ran = run(place, "plot", "evaluation", *out, *(["--against", against] if against != "default" else []))
        assert (ran.returncode, ran.stdout) == (0, f"{against}.svg\n"), ran.stderr
        drawn[against] = (place / f"{against}.svg").read_bytes()
    assert b"adius" in drawn["default"] != drawn["queries"]


def test_a_run_has_no_radii_to_be_drawn_against(place: Path) -> None:
    assert "a run has one radius" in refused(run(place, "plot", "run", "--against", "radius"))
    said = refused(run(place, "plot", "run", "evaluation"))
    assert "one evaluation or about runs" in said
    (named,) = re.findall(r"name runs in it, such as (\S+)", said)
    assert run(place, "plot", "run", named, "--out", "both.png").returncode == 0


def test_an_evaluation_is_reported(place: Path) -> None:
    ran = run(place, "report", "evaluation", "--json")
    assert json.loads(ran.stdout) == {"page": str(Path("evaluation/report.html"))}
    assert "Robust accuracy against queries, radius 4/255" in (place / "evaluation" / "report.html").read_text()


def test_resume_writes_a_stale_report_again(place: Path) -> None:
    page = place / "run" / "report.html"
    assert run(place, "resume", "run").returncode == 0
    assert not page.exists()
    page.write_text("stale")
    assert run(place, "resume", "run").returncode == 0
    assert "Success against queries" in page.read_text()

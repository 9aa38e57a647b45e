"""The report of an evaluation, and reports that are written from folders."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bundled_images import Bundled
from parsimon import runs
from parsimon.errors import InputError
from parsimon.report import page
from parsimon.results.statistics import wilson_interval
from parsimon.runs.config import RunConfig
from parsimon.runs.evaluation import EvaluationConfig
from report_pages import CLASSES, evaluated
from small_model import IMAGES


def data_of(path: Path) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(found)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluation") / "page.html"
    page.write_evaluation_page(evaluated(), path, name="mine", facts={"spec": {"data": "d.npz"}, "classes": CLASSES})
    return path


@pytest.fixture(scope="module")
def data(path: Path) -> Any:
    return data_of(path)


def test_each_model_has_a_headline_at_its_largest_radius(data: Any) -> None:
    expected = []
    for model, row in evaluated().evaluations.items():
        robust = int((row[-1].fooled_after == np.inf).sum())
        interval = "{:.1f} to {:.1f}".format(*(100 * end for end in wilson_interval(robust, 6)))
        expected.append((model, f"{100 * robust / 6:.1f}\N{NO-BREAK SPACE}%", interval))
    assert [(each["name"], each["value"], each["interval"]) for each in data["overview"]["headlines"]] == expected
    assert "at radius 12.75/255" in data["overview"]["headlines"][0]["about"]
    assert data["title"] == data["overview"]["name"] == "mine"


def test_the_table_is_the_grids(data: Any) -> None:
    (table,) = data["overview"]["tables"]
    assert table["markdown"] == evaluated().table().markdown()


def test_the_chart_against_radius_begins_with_the_clean_accuracy(data: Any) -> None:
    chart = data["overview"]["radii"]
    assert [each["text"] for each in chart["radii"]] == ["0", "5.1/255", "12.75/255"]
    for line, (model, row) in zip(chart["lines"], evaluated().evaluations.items(), strict=True):
        assert line["name"] == model
        expected = [row[0].correct.mean(), *(each.robust.mean() for each in row)]
        assert [point["rate"] for point in line["points"]] == pytest.approx(expected)


def test_the_charts_against_queries_fall_where_an_image_is_first_fooled(data: Any) -> None:
    charts = data["overview"]["curves"]
    assert [chart["name"] for chart in charts] == ["5.1/255", "12.75/255"]
    assert "exact at 20 and 60 queries" in charts[0]["hint"]
    for place, chart in enumerate(charts):
        for line, row in zip(chart["lines"], evaluated().evaluations.values(), strict=True):
            after = row[place].fooled_after
            steps = sorted(after[np.isfinite(after)])
            assert line["queries"] == [0, *np.unique(steps)]
            assert line["rates"] == pytest.approx([(6 - sum(after <= at)) / 6 for at in line["queries"]], abs=1e-5)
            assert (line["known"], line["bound"]) == (60, "")


def test_each_run_has_its_sections_and_the_evaluations_accuracy(data: Any) -> None:
    cells = [(model, each) for model, row in evaluated().evaluations.items() for each in row]
    names = [f"{model}, {255 * each.eps:.4g}/255" for model, each in cells]
    assert [run["name"] for run in data["runs"]] == names
    for run, (_, evaluation) in zip(data["runs"], cells, strict=True):
        assert run["headlines"][0]["value"] == f"{100 * evaluation.robust.mean():.1f}\N{NO-BREAK SPACE}%"
        assert run["tables"][0]["markdown"] == evaluation.table().markdown()
        attacked = {each.index for result in evaluation.results.values() for each in result.outcomes}
        assert {card["number"] for card in run["gallery"]["cards"]} == attacked
    assert len(attacked) < len(IMAGES)  # one was fooled at the smaller radius


def test_a_reader_chooses_radius_and_run(browser: Any, path: Path) -> None:
    for width in (390, 1280):
        shown = browser.new_context(viewport={"width": width, "height": 800}).new_page()
        complaints: list[str] = []
        shown.on("console", lambda message, into=complaints: into.append(message.text))
        shown.on("pageerror", lambda error, into=complaints: into.append(str(error)))
        shown.goto(path.as_uri())
        assert shown.locator(".radii polyline.line").count() == 2
        shown.locator(".which select").first.select_option("5.1/255")
        assert shown.locator(".curves h3").first.text_content().endswith("radius 5.1/255")
        shown.locator("#choose select").select_option("two, 12.75/255")
        assert shown.locator(".name:visible").all_text_contents() == ["mine", "two, 12.75/255"]
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert complaints == []
        shown.context.close()


@pytest.fixture(scope="module")
def folders(bundled: Bundled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and an evaluation, stored."""
    place = tmp_path_factory.mktemp("stored")
    np.savez(place / "data.npz", images=bundled.images, labels=bundled.labels)
    spec = {"data": str(place / "data.npz"), "images": 4}
    runs.run(RunConfig.of({**spec, "budget": 5}), place / "run")
    runs.evaluate(EvaluationConfig.of({**spec, "budget": [5], "eps": ["4/255", "8/255"]}), place / "evaluation")
    return place


def test_a_folder_is_reported_as_what_it_holds(folders: Path, tmp_path: Path) -> None:
    page.write_report([folders / "run"], tmp_path / "run.html")
    assert data_of(tmp_path / "run.html")["overview"] is None
    page.write_report([folders / "evaluation"], tmp_path / "evaluation.html")
    shown = data_of(tmp_path / "evaluation.html")
    assert [run["name"] for run in shown["runs"]] == ["robust, 4/255", "robust, 8/255"]
    assert ["eps", "4/255, 8/255"] in shown["overview"]["facts"][0]["rows"]
    with pytest.raises(InputError, match="one evaluation or about runs"):
        page.write_report([folders / "run", folders / "evaluation"], tmp_path / "both.html")


def test_a_stale_report_is_written_again_and_a_missing_one_is_not(folders: Path) -> None:
    for name in ("run", "evaluation"):
        stale = folders / name / page.PAGE
        page.refresh(folders / name)
        assert not stale.exists()
        stale.write_text("stale")
        page.refresh(folders / name)
        assert data_of(stale)["runs"]

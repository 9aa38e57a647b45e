"""The chart of median radii against queries: its numbers, on the page, on the live page, and as a figure."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parsimon
from parsimon import InputError
from parsimon.core.types import Outcome
from parsimon.report import figures
from parsimon.report.charts import radius_chart
from parsimon.report.page import write_page
from parsimon.results.result import Comparison
from parsimon.results.statistics import median_radii
from report_pages import small
from small_model import IMAGES, LABELS, linear

BUDGET = 40


@cache
def compared() -> Comparison:
    attacks = ["rays", "square", "signflip"]
    return parsimon.compare(linear, IMAGES, LABELS, 0.05, attacks, budget=BUDGET, until_budget=True, progress=False)


@st.composite
def outcomes(draw: st.DrawFn) -> list[Outcome]:
    """Draw images with falling radii, some without any, some unfinished."""
    made = []
    for index in range(draw(st.integers(1, 6))):
        queries = sorted(draw(st.sets(st.integers(1, 20), max_size=5)))
        radii = sorted(draw(st.sets(st.integers(1, 50), min_size=len(queries), max_size=len(queries))), reverse=True)
        ended: Any = draw(st.sampled_from(["budget", "budget", "interrupted"]))
        count = 20 if ended == "budget" else max([5, *queries])
        made.append(Outcome(index, False, count, ended, radii=tuple(zip(queries, radii, strict=True))))
    return made


@settings(max_examples=100)
@given(outcomes())
def test_the_median_is_that_of_all_images_after_each_query(drawn: list[Outcome]) -> None:
    found = dict(median_radii(drawn, 20))
    known = min(each.queries for each in drawn)
    now = np.inf
    for query in range(1, 21):
        closest = [min([radius for at, radius in each.radii if at <= query], default=np.inf) for each in drawn]
        if query <= known:
            now = found.get(query, now)
            assert now == np.median(closest)
        else:
            assert query not in found


def test_only_label_only_attacks_have_a_line() -> None:
    chart = radius_chart({"run": compared()})
    assert chart is not None
    assert [line["name"] for line in chart["lines"]] == ["RayS", "SignFlip"]
    assert (chart["budget"], chart["eps"]) == (BUDGET, 0.05)
    for line in chart["lines"]:
        summary = compared().results[line["name"]].summary
        assert line["radii"][-1] == pytest.approx(summary.median_radius, rel=1e-4)
    assert radius_chart({"run": small()}) is None


def test_lines_of_several_runs_name_theirs() -> None:
    chart = radius_chart({"a": compared(), "b": compared(), "c": small()})
    assert chart is not None
    assert [line["name"] for line in chart["lines"]] == ["RayS, a", "SignFlip, a", "RayS, b", "SignFlip, b"]


def test_the_page_shows_the_chart_and_the_radius_of_each_image(browser: Any, tmp_path: Path) -> None:
    write_page({"run": compared()}, tmp_path / "report.html")
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    try:
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((tmp_path / "report.html").as_uri())
        lines = page.locator(".closest polyline.line")
        assert lines.evaluate_all("lines => lines.map(line => line.dataset.name)") == ["RayS", "SignFlip"]
        rays = compared().results["RayS"]
        assert f"{rays.summary.median_radius:.4f}" in page.locator(".closest .legend").inner_text()
        cards = page.locator("figure[data-attack='0'] .radius").all_inner_texts()
        assert sorted(cards) == sorted(f"radius {each.radius:.4f}" for each in rays.outcomes)
        assert page.locator("figure[data-attack='1'] .radius").count() == 0
        assert errors == []
    finally:
        page.close()


def test_the_page_of_other_attacks_has_no_such_chart(browser: Any, tmp_path: Path) -> None:
    write_page({"run": small()}, tmp_path / "report.html")
    page = browser.new_page()
    try:
        page.goto((tmp_path / "report.html").as_uri())
        assert page.locator(".curves").count() == 1
        assert page.locator(".closest").count() == 0
    finally:
        page.close()


def test_the_figure_has_the_lines_of_the_chart() -> None:
    axes = figures.radius_curves({"run": compared()}).axes[0]
    rays = axes.lines[0]
    expected = median_radii(compared().results["RayS"].outcomes, BUDGET)
    assert np.asarray(rays.get_xydata())[:-1].tolist() == [list(pair) for pair in expected]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    with pytest.raises(InputError, match="needs a label-only attack"):
        figures.radius_curves({"run": small()})

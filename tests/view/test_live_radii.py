"""The live page of a label-only attack shows its median radius."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from parsimon import runs
from parsimon.runs.config import RunConfig
from stored_runs import OLD
from viewing import serving


@pytest.mark.parametrize(("attack", "names"), [("rays", ["RayS"]), ("square", [])])
def test_only_label_only_attacks_have_a_chart_of_radii(
    attack: str, names: list[str], browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data.npz", "sine_model.py"):
        shutil.copy(OLD / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = RunConfig(attacks=(attack,), model="sine_model:build", data="data.npz", eps="0.05", budget=40)
    result = next(iter(runs.run(config, tmp_path / "run", progress=False).results.values()))
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        with serving(tmp_path / "run") as viewer:
            page.goto(viewer.address)
            page.locator(".curves polyline.line").first.wait_for(state="attached")
            lines = page.locator(".closest polyline.line")
            assert lines.evaluate_all("lines => lines.map(line => line.dataset.name)") == names
            assert page.locator(".closest").is_visible() == bool(names)
            if names:
                legend = page.locator(".closest .legend").inner_text()
                assert f"{result.summary.median_radius:.4f}" in legend
    finally:
        page.close()
    assert errors == []

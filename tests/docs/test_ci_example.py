"""The shell steps of the workflow for pull requests, run as they are, with small budgets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundled_runs import data_file
from parsimon import zoo

WORKFLOW = Path(__file__).parents[2] / "examples" / "github-action-baseline.yml"


def run_steps(folder: Path, old: str, new: str) -> dict[str, Any]:
    """Run each `run` step in a shell; after a failure only those with `if: always()`. Return the exit codes."""
    job = yaml.safe_load(WORKFLOW.read_text())["jobs"]["gate"]
    for side, network in (("old", old), ("new", new)):
        (folder / side).mkdir()
        shutil.copy(zoo.path(network), folder / side / job["env"]["MODEL"])
    shutil.copy(data_file(folder), folder / "new" / job["env"]["IMAGES"])
    settings = {**job["env"], "SETTINGS": job["env"]["SETTINGS"].replace("500", "30")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **settings, "PATH": path, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    codes: dict[str, Any] = {}
    for step in job["steps"]:
        failed = any(codes.values())
        if "run" in step and not step["run"].startswith("pip ") and (not failed or step.get("if") == "always()"):
            ran = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, env=environment, capture_output=True)
            codes[step["name"]] = ran.returncode
    return codes


def test_a_less_robust_model_fails_the_pull_request(tmp_path: Path) -> None:
    assert [*run_steps(tmp_path, "robust", "standard").values()] == [0, 3, 0]
    summary = (tmp_path / "summary.md").read_text()
    assert "| model, eps" in summary
    assert (tmp_path / "after" / "report.html").exists()


def test_the_same_model_passes(tmp_path: Path) -> None:
    assert [*run_steps(tmp_path, "robust", "robust").values()] == [0, 0, 0]


@pytest.mark.parametrize("name", ["github-action.yml", "github-action-baseline.yml"])
def test_a_workflow_has_steps_that_github_understands(name: str) -> None:
    job = yaml.safe_load((WORKFLOW.parent / name).read_text())["jobs"]["gate"]
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])

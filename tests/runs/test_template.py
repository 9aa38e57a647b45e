"""The files of `parsimon init` describe the defaults, with every setting."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from bundled_runs import data_file
from parsimon import runs
from parsimon.cli.commands import command
from parsimon.errors import InputError
from parsimon.runs.config import ExecutionOptions, RunConfig
from parsimon.runs.evaluation import EvaluationConfig
from parsimon.runs.template import evaluation_template, run_template


def test_the_file_of_a_run_is_the_default_run() -> None:
    assert RunConfig.of(tomllib.loads(run_template())) == RunConfig()


def test_the_file_of_an_evaluation_is_the_default_evaluation() -> None:
    assert EvaluationConfig.of(tomllib.loads(evaluation_template())) == EvaluationConfig()


def test_the_file_of_a_run_names_every_setting_with_a_comment_above() -> None:
    lines = run_template().splitlines()
    for name in (*RunConfig.__struct_fields__, *ExecutionOptions.__struct_fields__):
        if name != "execution":
            (place,) = (number for number, line in enumerate(lines) if line.removeprefix("# ").startswith(f"{name} ="))
            assert lines[place - 1].startswith("# ")


@pytest.mark.parametrize("template", [run_template, evaluation_template])
def test_comments_name_what_can_be_typed(template: Callable[[], str]) -> None:
    """Whoever edits a file need not know Python: no name of a class or of a module is in the comments."""
    comments = "\n".join(line for line in template().splitlines() if line.startswith("#"))
    words = re.findall(r"`([^`]+)`", comments)
    assert "parsimon run --help" in " ".join(" ".join(words).split())
    assert not [word for word in words if re.search(r"\.[A-Z]+$|^[A-Z][a-z]+$", word)]
    assert "None" not in comments


def test_run_accepts_the_file_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(command, ["init"]).exit_code == 0
    small = ["--data", str(data_file(tmp_path)), "--images", "2", "--budget", "5", "--out", "results"]
    ran = CliRunner().invoke(command, ["run", "run.toml", *small])
    assert ran.exit_code == 0, ran.output
    assert runs.config_of(Path("results")).attacks == RunConfig().attacks


def test_evaluate_accepts_the_file_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(command, ["init", "--evaluation"]).exit_code == 0
    small = ["--data", str(data_file(tmp_path)), "--images", "2", "--budget", "5", "--out", "results"]
    ran = CliRunner().invoke(command, ["evaluate", "evaluation.toml", *small])
    assert ran.exit_code == 0, ran.output


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("mine")
    ran = CliRunner().invoke(command, ["init", str(path)])
    assert isinstance(ran.exception, InputError)
    assert path.read_text() == "mine"

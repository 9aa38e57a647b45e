"""Tests of what scripts rely on: JSON on standard output, exit codes, the gate, completion, the workflow."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import parsimon
from command import USERS_MODULE, coloured_images, run
from parsimon import runs, zoo
from parsimon.attacks import ATTACKS
from parsimon.cli.commands import command
from parsimon.core.engine import Step
from parsimon.experiments import exhibits
from parsimon.results.statistics import wilson_interval
from parsimon.runs.config import RunConfig
from small_model import IMAGES, LABELS, changed, linear

ROOT = Path(__file__).parents[2]
DATA = ["--model", "mine:function", "--data", "data.npz"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of which one is misclassified, and a run of two attacks, which fool some of the others."""
    place = tmp_path_factory.mktemp("scripts")
    images, labels = coloured_images(20)
    np.savez(place / "data.npz", images=images, labels=changed(labels, 3, (labels[3] + 1) % 3))
    (place / "mine.py").write_text(USERS_MODULE)
    options = ["--images", "all", "--eps", "0.04", "--budget", "40", "--out", "both", "--json"]
    ran = run(place, "compare", "parsimonious", "random", *DATA, *options)
    assert ran.returncode == 0, ran.stderr
    (place / "both.json").write_text(ran.stdout)
    return place


def document(ran: Any) -> Any:
    """All of standard output, which must be one JSON document."""
    return json.loads(ran.stdout)


def counted(place: Path) -> tuple[Fraction, Fraction]:
    """Clean accuracy and accuracy under attack, counted from the file of outcomes."""
    with (place / "both" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    attacked = {row["image"] for row in rows}
    fooled = {row["image"] for row in rows if row["success"] == "1"}
    assert 0 < len(fooled) < len(attacked) == 19
    return Fraction(19, 20), Fraction(len(attacked) - len(fooled), 20)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["plot", "both", "--out", "nosuch/curves.png"], "nosuch/curves.png"),
        (["report", "both", "--out", "nosuch/page.html"], "nosuch/page.html"),
        (["report", "both", "--out", "both"], "both"),
    ],
)
def test_a_file_that_cannot_be_written_is_a_sentence_and_a_document(place: Path, words: list[str], named: str) -> None:
    ran = run(place, *words, "--json")
    assert ran.returncode == 2
    assert document(ran)["exit_code"] == 2
    assert f"{named} cannot be used: " in document(ran)["error"]
    assert ran.stderr.startswith("error: ")


def test_a_run_prints_one_json_document(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    told = json.loads((place / "both.json").read_text())
    clean, robust = counted(place)
    assert (told["run"], told["finished"], told["gate"]) == ("both", True, None)
    assert (told["images"], told["correct"], told["attacked"]) == (20, 19, 19)
    accuracy = told["robust_accuracy"]
    assert (told["clean_accuracy"], accuracy["value"], accuracy["at_most"]) == (float(clean), *[float(robust)] * 2)
    assert (accuracy["kind"], *accuracy["interval"]) == ("measured", *wilson_interval(int(20 * robust), 20))
    assert [attack["name"] for attack in told["attacks"]] == ["Parsimonious", "RandomCorners"]
    stored = parsimon.runs.load(place / "both")
    for attack, result in zip(told["attacks"], stored.results.values(), strict=True):
        summary = result.summary
        assert (attack["successes"], attack["queries"], attack["mean"]) == (
            summary.successes,
            summary.queries,
            summary.mean,
        )
        assert tuple(attack["success_interval"]) == summary.interval
    assert [pair["against"] for pair in told["paired"]] == ["RandomCorners"]
    assert {Path(path).name for path in told["files"]} == {"results.csv", "table.md", "table.tex", "examples.png"}
    shown = document(run(place, "show", "both", "--json"))
    assert shown == {**told, "files": []}
    assert document(run(place, "resume", "both", "--json")) == told


def test_other_commands_print_one_json_document_each(place: Path) -> None:
    assert document(run(place, "report", "both", "--json")) == {"page": "both/report.html"}
    assert document(run(place, "plot", "both", "--out", "curves.svg", "--json")) == {"figure": "curves.svg"}
    checked = document(run(place, "check", *DATA, "--json"))
    assert checked["attackable"] is True
    assert checked["findings"][0] == {
        "name": "images",
        "verdict": "ok",
        "sentence": "20 of shape (3, 8, 8), float32 in [0, 1]",
    }
    listed = document(run(place, "reproduce", "--json"))
    assert [each["name"] for each in listed["exhibits"]] == list(exhibits())
    for words in (["zoo", "--json"], ["zoo", "list", "--json"], ["zoo", "--json", "list"]):
        entries = document(run(place, *words))["entries"]
        assert {each["name"] for each in entries} > {"robust", "standard", "resnet-50", "cifar10"}
    assert document(run(place, "zoo", "show", "robust", "--json")) == zoo.card("robust")
    assert document(run(place, "zoo", "install", "robust", "--json"))["entries"][0]["installed"] is True
    assert document(run(place, "completion", "bash", "--json"))["shell"] == "bash"


def test_every_command_has_json() -> None:
    parts = [*command.commands.values(), *command.commands["zoo"].commands.values()]  # type: ignore[attr-defined]
    assert len(parts) > 12
    for part in parts:
        assert "--json" in [name for parameter in part.params for name in parameter.opts], part.name


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["show", "nosuch"], "nosuch holds no run: there is no spec.toml in it"),
        (["run", "--eps", "nothing"], "--eps must be a number or a fraction such as 8/255; got 'nothing'"),
        (["run", "--nosuch"], "No such option '--nosuch'."),
        (["run", "--fail-under", "30"], "Invalid value for '--fail-under': 30.0 is not in the range 0<=x<=1."),
        (["run", "--images", "some"], "Invalid value for '--images': 'some' is not a valid integer."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_json_documents_too(tmp_path: Path, words: list[str], sentence: str) -> None:
    ran = run(tmp_path, *words, "--json")
    assert ran.returncode == 2
    told = document(ran)
    assert told["exit_code"] == 2
    assert told["error"].startswith(sentence)
    assert " ".join(sentence.split()[:3]) in ran.stderr
    assert run(tmp_path, *words).stdout == ""


def test_a_model_that_cannot_be_attacked_is_a_finding(place: Path) -> None:
    ran = run(place, "check", "--model", "mine:broken", "--data", "data.npz", "--json")
    assert ran.returncode == 2
    assert document(ran)["attackable"] is False


# --- the gate -------------------------------------------------------------------------------------------------------


def test_the_gate_lets_its_own_value_pass_and_nothing_below(place: Path) -> None:
    _, robust = counted(place)
    cases = (("show", robust, 0), ("resume", robust + Fraction(1, 1000), 3), ("show", Fraction(1), 3))
    for word, asked, code in cases:
        ran = run(place, word, "both", "--fail-under", str(float(asked)), "--json")
        assert ran.returncode == code
        assert document(ran)["gate"] == {"fail_under": float(asked), "by": "estimate", "passed": code == 0}
        assert ("gate not passed" in ran.stderr) == bool(code)
    said = f"gate not passed: robust accuracy is {float(robust):.4f}; at least 1.0 is required"
    assert ran.stderr.splitlines()[-1] == said


def test_the_gate_can_ask_for_the_lower_end_of_the_interval(place: Path) -> None:
    _, robust = counted(place)
    low, _ = wilson_interval(int(20 * robust), 20)
    assert run(place, "show", "both", "--gate", "lower", "--fail-under", f"{low - 0.001:.4f}").returncode == 0
    ran = run(place, "show", "both", "--gate", "lower", "--fail-under", f"{float(robust):.4f}")
    assert ran.returncode == 3
    assert f"gate not passed: the lower end of the interval of robust accuracy is {low:.4f}; at least" in ran.stderr


def test_the_headline_comes_first_and_markdown_has_only_tables(place: Path) -> None:
    _, robust = counted(place)
    text, markdown = (run(place, "show", "both", "--format", form).stdout for form in ("text", "markdown"))
    assert text.startswith(f"Robust accuracy {float(robust):.1%} (")
    assert markdown.startswith("eps ")


def test_a_new_run_below_the_gate_exits_with_code_3(place: Path) -> None:
    options = ["--images", "all", "--eps", "0.3", "--budget", "5", "--fail-under", "0.9"]
    for words in (["run", "--out", "one"], ["compare", "random", "square", "--out", "two"]):
        ran = run(place, *words, *DATA, *options)
        assert ran.returncode == 3
        assert "RandomCorners" in ran.stdout or "Thrift" in ran.stdout  # the table is there all the same


def test_an_unfinished_run_never_passes(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(attack: str, images: int, step: Step) -> None:  # noqa: ARG001
        if attack == "RandomCorners":
            os.kill(os.getpid(), signal.SIGINT)

    for name in ("data.npz", "mine.py"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    both = ("parsimonious", "random")
    spec = RunConfig(attacks=both, model="mine:function", data="data.npz", images="all", eps="0.04", budget=40)
    unfinished = runs.run(spec, Path("run"), in_flight=4, watch=interrupt).unfinished
    assert unfinished > 0
    ran = run(tmp_path, "show", "run", "--fail-under", "0", "--json")
    assert ran.returncode == 3
    assert document(ran)["finished"] is False
    assert "so far, and the run is unfinished; at least 0.0 is required" in ran.stderr
    assert run(tmp_path, "show", "run").returncode == 0  # looking is not judging
    assert run(tmp_path, "resume", "run", "--fail-under", "0").returncode == 0


def test_accuracy_under_attack_of_a_sample_is_scaled_to_all_images() -> None:
    labels = changed(LABELS, 0, (LABELS[0] + 1) % 10)
    whole = parsimon.compare(linear, IMAGES, labels, 0.02, ["random", "square"], budget=10)
    some = parsimon.compare(linear, IMAGES, labels, 0.02, ["random", "square"], budget=10, at_most=3)
    for found, attacked in ((whole, 5), (some, 3)):
        fooled = np.logical_or.reduce([result.success for result in found.results.values()])
        withstood = attacked - int(fooled.sum())
        assert found.robust_accuracy == float(Fraction(5, 6) * Fraction(withstood, attacked))
        assert f"{found.robust_accuracy:.1%} under these attacks" in str(found)


# --- completion -----------------------------------------------------------------------------------------------------


def command_in(place: Path) -> dict[str, str]:
    """An environment in which the command is found by its name."""
    (place / "bin").mkdir()
    script = place / "bin" / "parsimon"
    script.write_text(f"#!{sys.executable}\nfrom parsimon.cli import main\nmain()\n")
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}


def test_bash_completes(tmp_path: Path) -> None:
    """What bash offers at the end of each line, with the script that the command prints."""
    offered = {
        "parsimon re": {"report", "reproduce", "resume"},
        "parsimon run --attack band": {"bandits", *(f"bandits:{name}" for name in ATTACKS["bandits"].presets)},
        "parsimon compare nes squ": {"square", *(f"square:{name}" for name in ATTACKS["square"].presets)},
        "parsimon run --model re": {"resnet-50"},
        "parsimon reproduce figure5": {name for name in exhibits() if name.startswith("figure5")},
        "parsimon zoo install rob": {"robust"},
        "parsimon show --f": {"--format", "--fail-under"},
    }
    asked = (
        'source <(parsimon completion bash); compopt() { :; }; for line in "$@"; do read -ra COMP_WORDS <<< "$line"; '
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _parsimon_completion parsimon; "
        'echo "${COMPREPLY[@]}"; done'
    )
    bash = ["bash", "-c", asked, "bash", *offered]
    settings = command_in(tmp_path)
    ran = subprocess.run(bash, cwd=tmp_path, env=settings, capture_output=True, text=True, check=True, timeout=300)
    assert dict(zip(offered, (set(line.split()) for line in ran.stdout.splitlines()), strict=True)) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_for_other_shells_are_printed(tmp_path: Path, shell: str) -> None:
    ran = run(tmp_path, "completion", shell)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"_PARSIMON_COMPLETE={shell}_complete" in ran.stdout


# --- documentation and the example workflow ---------------------------------------------------------------------------


def test_the_exit_codes_of_the_help_are_those_of_the_guide(tmp_path: Path) -> None:
    told = set(re.findall(r"^ +(\d+)  ", run(tmp_path, "--help").stdout, flags=re.MULTILINE))
    guide = (ROOT / "docs" / "guides" / "scripts.md").read_text()
    assert told == {"0", "2", "3", "75", "130"}
    assert set(re.findall(r"^\| (\d+) \|", guide, flags=re.MULTILINE)) == told | {"1"}


def test_the_workflow_of_the_example_runs(tmp_path: Path) -> None:
    """Its commands in their order, as the runner starts them, but for the installation, which is this one."""
    workflow = yaml.safe_load((ROOT / "examples" / "github-action.yml").read_text())
    job = workflow["jobs"]["gate"]
    images, labels = (array[:30] for array in zoo.images())
    (tmp_path / "model.onnx").write_bytes(zoo.path("robust").read_bytes())
    settings = {**command_in(tmp_path), **job["env"], "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    for name, wrong, passes in (("good", 0, True), ("bad", 24, False)):
        np.savez(tmp_path / "images.npz", images=images, labels=np.r_[(labels[:wrong] + 1) % 10, labels[wrong:]])
        codes = {}
        for step in job["steps"]:
            if "run" in step:
                words = step["run"].replace("--budget 500", "--budget 60").replace("robustness", name)
                if step["name"] == "Install":
                    assert words == 'pip install "parsimon[onnx]"'
                    continue
                ran = subprocess.run(["bash", "-e", "-c", words], cwd=tmp_path, env=settings, timeout=500, check=False)
                codes[step["name"]] = ran.returncode
        assert codes.pop("Attack it") == (0 if passes else 3)
        assert set(codes.values()) == {0}
        told = json.loads((tmp_path / f"{name}.json").read_text())
        assert told["gate"] == {"fail_under": 0.3, "by": "estimate", "passed": passes}
        assert (tmp_path / f"{name}.html").stat().st_size > 10_000
    assert (tmp_path / "summary.md").read_text().count("| attack ") == 2

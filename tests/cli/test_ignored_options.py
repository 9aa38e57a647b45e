"""Options that a command would ignore are refused, unfinished evaluations are not plotted, and counts read well."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import parsimon
from command import USERS_MODULE, coloured_images, refused, run
from parsimon import runs
from parsimon.cli.commands import command
from parsimon.cli.output import counted
from parsimon.errors import InputError
from parsimon.runs.config import RunConfig
from parsimon.runs.evaluation import EvaluationConfig
from small_model import IMAGES, LABELS, linear


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with six images, a model, and a stored run of both."""
    folder = tmp_path_factory.mktemp("ignored")
    images, labels = coloured_images(6)
    np.savez(folder / "data.npz", images=images, labels=labels)
    (folder / "mine.py").write_text(USERS_MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        runs.run(config(folder), folder / "run", progress=False)
        yield folder


def config(folder: Path, **settings: Any) -> RunConfig:
    given = {"model": "mine:function", "data": str(folder / "data.npz"), "images": "all", "budget": 3}
    return RunConfig(**{**given, **settings})


MODEL = ("--model", "mine:function", "--data", "data.npz", "--budget", "3", "--quiet")
EVALUATE = ("evaluate", "mine:function", "--data", "data.npz", "--budget", "3", "--quiet")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", *MODEL, "--gate", "lower"), "without a threshold: add --fail-under or --no-worse-than"),
        (("compare", "square", *MODEL, "--gate", "lower"), "without a threshold: add --fail-under or --no-worse-than"),
        ((*EVALUATE, "--gate", "lower"), "without a threshold: add --fail-under or --no-worse-than"),
        (("show", "run", "--gate", "lower"), "without a threshold: add --fail-under, or leave it out"),
        (("resume", "run", "--gate", "lower"), "without a threshold: add --fail-under, or leave it out"),
        (("diff", "run", "run", "--gate", "lower"), "without a threshold: add --no-worse-than, or leave it out"),
        (("run", *MODEL, "--price-per-1000", "2"), "--price-per-1000 is for the cost that --dry-run prints"),
        ((*EVALUATE, "--price-per-1000", "2"), "--price-per-1000 is for the cost that --dry-run prints"),
        (("defend", "round", *MODEL, "--flag-price", "7"), "--flag-price is the cost of a query that a detector flags"),
    ],
)
def test_an_option_without_effect_is_refused_before_anything_is_queried(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    before = sorted(folder.rglob("*"))
    assert words in refused(run(folder, *arguments))
    assert [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts] == [
        path for path in before if "__pycache__" not in path.parts
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "run", "--gate", "lower", "--fail-under", "0"),
        ("diff", "run", "run", "--gate", "lower", "--no-worse-than", "1"),
        ("run", *MODEL, "--price-per-1000", "2", "--dry-run"),
    ],
)
def test_with_what_it_needs_the_option_is_taken(folder: Path, arguments: tuple[str, ...]) -> None:
    assert run(folder, *arguments).returncode == 0


def test_in_python_a_price_of_flags_needs_a_detector_too() -> None:
    given: Any = {"budget": 2, "flag_price": 7}
    with pytest.raises(InputError, match="and round flags none: leave it out"):
        parsimon.assess_defence(linear, IMAGES, LABELS, 0.02, defence="round", **given)
    assert parsimon.assess_defence(linear, IMAGES, LABELS, 0.02, defence="blacklight", **given).flag_price == 7


@pytest.mark.parametrize("name", ["run", "evaluate", "defend"])
@pytest.mark.parametrize(("asked", "noted"), [(("--images", "1000"), True), (("--images", "6"), False), ((), False)])
def test_fewer_images_than_asked_for_are_noted(
    folder: Path, tmp_path: Path, name: str, asked: Any, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ("mine:function",) if name == "evaluate" else ("--model", "mine:function")
    settings = ("--data", "data.npz", "--budget", "2", "--out", str(tmp_path / "out"), *asked)
    monkeypatch.chdir(folder)
    ran = CliRunner().invoke(command, [name, *model, *settings, *(["round"] if name == "defend" else [])])
    assert ran.exit_code == 0, ran.output
    assert ("note: the data have only 6 images, fewer than --images 1,000\n" in ran.stderr) == noted
    assert ("the data have only" in ran.stderr) == noted


# --- plots of unfinished evaluations ----------------------------------------------------------------------------------


def cut(folder: Path, name: str, *, after: int) -> Path:
    """Store an evaluation at two radii that is interrupted after some calls of the model."""
    calls = 0

    def interrupt(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            signal.raise_signal(signal.SIGINT)

    run = config(folder, selection="any", batch_size=2).replace(progress=False)
    settings: Any = {"models": ("mine:function",), "eps": ("0.001", "0.002"), "budget": (3,), "attacks": ("square",)}
    found = runs.evaluate(EvaluationConfig(**settings, run=run), folder / name, watch=interrupt)
    assert bool(found.unfinished) == (after < 100)
    return folder / name


@pytest.fixture(scope="module")
def calls(folder: Path) -> int:
    """The calls of the model at the first radius."""
    count = 0

    def watch(*_: object) -> None:
        nonlocal count
        count += 1

    run = config(folder, selection="any", batch_size=2, eps="0.001", attacks=("square",)).replace(progress=False)
    runs.run(run, folder / "counted", watch=watch)
    return count


@pytest.mark.parametrize("against", ["radius", "queries"])
def test_an_evaluation_of_which_nothing_is_finished_is_not_plotted(folder: Path, against: str) -> None:
    place = cut(folder, f"none-{against}", after=2)
    assert runs.load_evaluation(place).unfinished == 2
    ran = run(folder, "plot", place.name, "--against", against)
    assert f"there is nothing to plot yet. First: parsimon resume {place.name}" in refused(ran)
    assert not (place / "curves.pdf").exists()


def test_what_is_finished_is_plotted_and_the_rest_is_noted(folder: Path, calls: int) -> None:
    place = cut(folder, "half", after=calls + 2)
    assert runs.load_evaluation(place).unfinished == 1
    ran = run(folder, "plot", "half")
    assert (ran.returncode, ran.stderr) == (0, "note: 1 evaluation is unfinished and not drawn\n")
    assert (place / "curves.pdf").exists()


# --- counts -----------------------------------------------------------------------------------------------------------


def test_one_thing_has_no_plural() -> None:
    assert [counted(number, "image") for number in (0, 1, 2, 1000)] == [
        "0 images",
        "1 image",
        "2 images",
        "1,000 images",
    ]


def test_exports_of_one_image_are_worded_as_such(folder: Path, tmp_path: Path) -> None:
    ran = run(folder, "export", "run", "--out", str(tmp_path / "out"), "--format", "npz")
    count = int(runs.load(folder / "run").first.success.sum())
    assert ran.stdout == f"{count} adversarial image{'s' * (count != 1)}: {tmp_path / 'out'}\n"
    described = run(folder, "export", "run", "--out", str(tmp_path / "json"), "--format", "npz", "--json").stdout
    assert json.loads(described)["missing"] == []

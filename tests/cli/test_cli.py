"""The command, run as people run it: as another process, judged by its files, its words and its exit code."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import click
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import parsimon
from bundled_images import Bundled
from command import USERS_MODULE, coloured_images, refused, run, table_of
from parsimon import zoo
from parsimon.cli import commands

LARGE = 128 / 255  # at which some images are fooled at once, whatever the bundled weights


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a user works: a module, images and their labels."""
    images, labels = coloured_images()
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    (tmp_path / "mine.py").write_text(USERS_MODULE)
    return tmp_path


# --- help -----------------------------------------------------------------------------------------------------------


def test_help_says_what_the_command_is_for_and_what_it_can_do(tmp_path: Path) -> None:
    ran = run(tmp_path, "--help")
    assert ran.returncode == 0
    for words in ("how robust", "own or are permitted to test", "run", "check", "Attack a model", "Check a model"):
        assert words in ran.stdout


def test_help_of_run_names_its_options_and_teaches(tmp_path: Path) -> None:
    text = " ".join(run(tmp_path, "run", "--help").stdout.split())
    options = (
        "--model --data --scores --images --eps --budget --attack --targets --loss --eight-bit --seed "
        "--batch-size --in-flight --out"
    )
    for option in options.split():
        assert f"{option} " in text
    for words in (
        "default: 8/255",
        "bandits:imagenet-0.05",
        "package.module:function",
        "parsimon run --model",
        "parsimon-results",
    ):
        assert words in text


@pytest.mark.parametrize("command", ["run", "compare"])
def test_help_groups_the_options_by_concern(tmp_path: Path, command: str) -> None:
    text = run(tmp_path, command, "--help").stdout
    headings = ["Model and data:", "Threat:", "Attack:", "Execution:", "Output:"]
    assert [line for line in text.splitlines() if line in headings] == headings
    sections = dict(zip(headings, re.split("|".join(headings), text)[1:], strict=True))
    for heading, options in (
        ("Model and data:", ("--model", "--data", "--scores", "--images")),
        ("Threat:", ("--eps", "--budget", "--targets")),
        ("Attack:", ("--seed",)),
        ("Execution:", ("--batch-size", "--workers", "--track")),
        ("Output:", ("--out", "--json", "--quiet", "--help")),
    ):
        assert all(re.search(rf"^  (?:-h, )?{option}\b", sections[heading], re.MULTILINE) for option in options)
    for parameter in commands.command.commands[command].params:  # each one once
        if isinstance(parameter, click.Option):
            assert len(re.findall(rf"^  {parameter.opts[0]}\b(?!-)", text, re.MULTILINE)) == 1


def test_help_of_check_names_its_options_and_teaches(tmp_path: Path) -> None:
    text = " ".join(run(tmp_path, "check", "-h").stdout.split())
    for words in ("--model", "--data", "--scores", "--batch-size", "FILE.npz", "cifar10:FOLDER", "determinism"):
        assert words in text


def test_the_console_script_is_the_same_command(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "parsimon"
    ran = run(tmp_path, "--version", command=[str(script)])
    assert ran.stdout == f"parsimon, version {parsimon.__version__}\n"
    assert run(tmp_path, "--version").stdout == ran.stdout


# --- run ------------------------------------------------------------------------------------------------------------


def test_run_writes_what_the_python_function_returns(tmp_path: Path) -> None:
    """On the bundled network and images."""
    options = ["--images", "5", "--budget", "20", "--eps", "128/255", "--seed", "3", "--out", "results"]
    ran = run(tmp_path, "run", *options)
    assert (ran.returncode, ran.stderr) == (0, "")
    images, labels = zoo.images()
    result = parsimon.attack(zoo.path("robust"), images, labels, LARGE, budget=20, at_most=5, seed=3)
    assert result.success.any()
    rows = table_of(tmp_path / "results")
    assert [int(row["image"]) for row in rows] == np.flatnonzero(result.attacked).tolist()
    for row, outcome in zip(rows, result.outcomes, strict=True):
        assert int(row["label"]) == labels[outcome.index]
        assert int(row["success"]) == outcome.success
        assert int(row["queries"]) == outcome.queries
        assert row["ended"] == outcome.ended
        assert row["predicted"] == ("" if outcome.predicted is None else str(outcome.predicted))
    printed = [line.rstrip() for line in ran.stdout.splitlines()]
    table = [line.rstrip() for line in str(result).splitlines()]
    begin = printed.index(table[0])
    assert printed[begin : begin + len(table)] == table
    assert result.headline().startswith(printed[0])
    files = " ".join(printed[begin + len(table) :])
    assert all(f"results/{name}" in files for name in ("results.csv", "table.md", "table.tex", "examples.png"))


def test_the_picture_shows_original_perturbation_and_adversarial_image(folder: Path) -> None:
    assert run(folder, "run", "--model", "mine:function", "--data", "data.npz", "--out", "out").returncode == 0
    successes = [row for row in table_of(folder / "out") if row["success"] == "1"]
    with Image.open(folder / "out" / "examples.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    height, width, _ = pixels.shape
    assert len(successes) >= 2
    assert height > 3 * 100
    assert width > len(successes) * 100
    colours = set(map(tuple, pixels.reshape(-1, 3).tolist()))
    original = np.rint(coloured_images()[0][int(successes[0]["image"])] * 255).astype(int)
    assert set(map(tuple, original.transpose(1, 2, 0).reshape(-1, 3).tolist())) <= colours
    assert {(0, 0, 0), (255, 255, 255)} <= colours  # the perturbation's corners


def test_without_a_success_there_is_no_picture(folder: Path) -> None:
    options = ["--model", "mine:function", "--data", "data.npz", "--eps", "0.00001", "--budget", "5", "--out", "out"]
    ran = run(folder, "run", *options)
    assert ran.returncode == 0
    assert (folder / "out" / "results.csv").exists()
    assert not (folder / "out" / "examples.png").exists()
    assert "examples.png" not in ran.stdout


@pytest.mark.parametrize("model", ["mine:torch_model", "mine:function"])
def test_a_function_of_the_users_own_builds_the_model(folder: Path, model: str) -> None:
    ran = run(folder, "run", "--model", model, "--data", "data.npz", "--budget", "50", "--out", "out")
    assert (ran.returncode, ran.stderr) == (0, "")
    images, labels = coloured_images()
    result = parsimon.attack(lambda images: 10 * images.mean(axis=(2, 3)), images, labels, 8 / 255, budget=50)
    assert [int(row["queries"]) for row in table_of(folder / "out")] == result.queries.tolist()


def test_a_model_file_and_data_of_the_users_own(tmp_path: Path, bundled: Bundled) -> None:
    (tmp_path / "model.onnx").write_bytes(zoo.path("robust").read_bytes())
    np.savez(tmp_path / "data.npz", images=bundled.images, labels=bundled.labels)
    options = ["--model", "model.onnx", "--data", "data.npz", "--eps", "0.5", "--budget", "10", "--out", "out"]
    assert run(tmp_path, "run", *options).returncode == 0
    result = parsimon.attack(zoo.path("robust"), bundled.images, bundled.labels, 0.5, budget=10)
    rows = table_of(tmp_path / "out")
    assert [int(row["image"]) for row in rows] == np.flatnonzero(bundled.correct).tolist()
    assert [int(row["queries"]) for row in rows] == [outcome.queries for outcome in result.outcomes]


def test_every_setting_reaches_the_attack(folder: Path) -> None:
    images = (np.random.default_rng(1).integers(0, 256, (6, 3, 8, 8)) / 255).astype(np.float32)
    labels = images.mean(axis=(2, 3)).argmax(axis=1)
    np.savez(folder / "levels.npz", images=images, labels=labels)

    def odds(images: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(images.mean(axis=(2, 3)) / images.mean(axis=(2, 3)).sum(axis=1, keepdims=True))

    options = [
        *["--model", "mine:probabilities", "--data", "levels.npz", "--scores", "probabilities", "--images", "4"],
        *["--eps", "10/255", "--budget", "77", "--attack", "parsimonious,behaviour=published,block=2"],
        *["--targets", "next", "--loss", "margin", "--eight-bit", "--seed", "9", "--batch-size", "5"],
        *["--in-flight", "2", "--out", "out"],
    ]
    ran = run(folder, "run", *options)
    assert (ran.returncode, ran.stderr) == (0, "")
    result = parsimon.attack(
        odds,
        images,
        labels,
        10 / 255,
        attack=parsimon.Parsimonious(behaviour="published", block=2),
        budget=77,
        targets="next",
        loss="margin",
        scores="probabilities",
        eight_bit=True,
        at_most=4,
        seed=9,
    )
    assert "eps 10/255, targeted, 4 images, at most 77 queries per image" in ran.stdout
    expected = [(outcome.index, outcome.queries, outcome.ended) for outcome in result.outcomes]
    rows = table_of(folder / "out")
    assert [(int(row["image"]), int(row["queries"]), row["ended"]) for row in rows] == expected


def test_results_go_to_a_new_folder_where_none_is_named(folder: Path) -> None:
    ran = run(folder, "run", "--model", "mine:function", "--data", "data.npz", "--budget", "5")
    (made,) = (folder / "parsimon-results").iterdir()
    assert len(table_of(made)) == 6
    assert str(made.relative_to(folder)) in ran.stdout


def test_a_model_of_other_classes_may_be_attacked_on_the_bundled_images(tmp_path: Path) -> None:
    """Its class 10 has no name among CIFAR-10's ten."""
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def build():\n"
        "    return lambda images: np.eye(11)[np.where(images.mean(axis=(1, 2, 3)) < 0.3, 10, 3)] * 9\n"
    )
    ran = run(tmp_path, "run", "--model", "mine:build", "--images", "3", "--eps", "0.5", "--out", "out")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert {row["predicted"] for row in table_of(tmp_path / "out")} >= {"10"}
    assert (tmp_path / "out" / "examples.png").is_file()


def test_a_module_beside_the_user_is_found_by_the_installed_command(folder: Path) -> None:
    installed = [sys.executable, "-P", "-c", "from parsimon.cli import main; main()"]  # -P: as a script elsewhere
    ran = run(folder, "check", "--model", "mine:function", "--data", "data.npz", command=installed)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_terminal_of_ascii_only_is_printed_to(folder: Path) -> None:
    options = ["--model", "mine:function", "--data", "data.npz", "--budget", "5", "--out", "out"]
    ran = run(folder, "run", *options, PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.isascii()
    assert "Thrift" in ran.stdout


# --- nothing is lost ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["results.csv", "examples.png"])
def test_a_folder_that_holds_results_is_refused_and_kept(folder: Path, name: str) -> None:
    (folder / "out").mkdir()
    (folder / "out" / name).write_text("precious")
    ran = run(folder, "run", "--model", "mine:function", "--data", "data.npz", "--out", "out")
    assert refused(ran) == "error: out already holds results; choose another folder with --out"
    assert [path.name for path in (folder / "out").iterdir()] == [name]
    assert (folder / "out" / name).read_text() == "precious"


def test_a_folder_of_other_things_is_used_and_they_are_kept(folder: Path) -> None:
    (folder / "notes.txt").write_text("precious")
    assert run(folder, "run", "--model", "mine:function", "--data", "data.npz", "--out", ".").returncode == 0
    assert (folder / "notes.txt").read_text() == "precious"
    assert len(table_of(folder)) == 6


@pytest.mark.parametrize("out", ["data.npz", "data.npz/results"])
def test_a_file_in_the_place_of_the_folder_is_refused_before_the_run(folder: Path, out: str) -> None:
    before = (folder / "data.npz").read_bytes()
    sentence = refused(run(folder, "run", "--model", "mine:broken", "--data", "data.npz", "--out", out))
    assert "data.npz is a file; choose a folder with --out" in sentence
    assert (folder / "data.npz").read_bytes() == before


def test_a_refused_run_leaves_no_folder(folder: Path) -> None:
    refused(run(folder, "run", "--model", "mine:broken", "--data", "data.npz", "--out", "out"))
    assert not (folder / "out").exists()


def test_options_replace_the_settings_of_a_file(folder: Path) -> None:
    settings = 'model = "mine:function"\ndata = "data.npz"\nbudget = 30\neps = 0.03\nattacks = ["square", "simba"]\n'
    (folder / "file.toml").write_text(settings)
    ran = run(folder, "run", "file.toml", "--budget", "7", "--eps", "8/255", "--images", "4", "--out", "out")
    assert (ran.returncode, ran.stderr) == (0, "")
    stored = tomllib.loads((folder / "out" / "spec.toml").read_text())
    assert [stored[key] for key in ("model", "data", "attacks")] == ["mine:function", "data.npz", ["square", "simba"]]
    assert [stored[key] for key in ("budget", "eps", "images")] == [7, "8/255", 4]
    assert {row["attack"] for row in table_of(folder / "out")} == {"Square", "SimBA"}
    ran = run(folder, "run", "file.toml", "--attack", "nes", "--out", "other")
    assert tomllib.loads((folder / "other" / "spec.toml").read_text())["attacks"] == ["nes"]
    assert {int(row["queries"]) <= 30 for row in table_of(folder / "other")} == {True}


def test_a_radius_in_steps_of_1_256_is_used_with_a_question(folder: Path) -> None:
    options = ["--model", "mine:function", "--data", "data.npz", "--eps", "8/256", "--budget", "5", "--out", "out"]
    ran = run(folder, "run", *options)
    assert ran.returncode == 0
    assert "did you mean 8/255?" in ran.stderr


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "0"], "budget must be a whole number, at least 1; got 0"),
        (["--images", "0"], "at least 1"),
        (["--seed", "-1"], "seed must be a whole number, at least 0; got -1"),
        (["--eps", "8"], "--eps must lie above 0 and at most 1, for images in [0, 1]; got '8': did you mean 8/255?"),
        (["--model", "nosuch"], "there is no model 'nosuch': give a bundled network (robust"),
        (["--model", "nosuch.onnx"], "there is no model file nosuch.onnx"),
        (["--model", "data.npz"], "data.npz cannot be opened as an ONNX model"),
        (["--model", "mine:nosuch"], "mine has no function 'nosuch'. Its functions: torch_model, function"),
        (["--model", "mine:nothing"], "got NoneType"),
        (["--model", "mine:broken"], "RuntimeError: [bold]no[/] such layer"),
        (["--data", "nosuch.npz"], "there is no data file nosuch.npz"),
        (["--data", "bytes.npz"], "got uint8 at image 0: use images.astype(np.float32) / 255"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_refused_in_one_sentence(folder: Path, options: list[str], words: str) -> None:
    images, labels = coloured_images()
    np.savez(folder / "bytes.npz", images=(images * 255).astype(np.uint8), labels=labels)
    given = {"--model": "mine:function", "--data": "data.npz", **dict(zip(options[::2], options[1::2], strict=True))}
    ran = run(folder, "run", *(word for pair in given.items() for word in pair))
    assert words in refused(ran)


@pytest.mark.parametrize("radius", ["abc", "1e400"])
def test_a_radius_that_is_no_number_is_refused_with_an_example(tmp_path: Path, radius: str) -> None:
    ran = run(tmp_path, "run", "--eps", radius)
    assert ran.returncode == 2
    assert f"--eps must be a number or a fraction such as 8/255; got '{radius}'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_missing_runtime_is_named_with_its_extra(tmp_path: Path) -> None:
    code = "import sys; sys.modules['onnxruntime'] = None; from parsimon.cli import main; main()"
    sentence = refused(run(tmp_path, "check", command=[sys.executable, "-c", code]))
    assert sentence == "error: this needs onnxruntime, which is not installed: pip install 'parsimon[onnx]'"


# --- check ----------------------------------------------------------------------------------------------------------


def test_check_prints_its_findings(tmp_path: Path, bundled: Bundled) -> None:
    np.savez(tmp_path / "data.npz", images=bundled.images, labels=bundled.labels)
    ran = run(tmp_path, "check", "--data", "data.npz")
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.replace("\nsingle-threaded", " single-threaded").splitlines()  # which is wrapped
    assert [line.split(":")[0] for line in lines] == [
        "ok   images",
        "ok   scores",
        "ok   determinism",
        "ok   other images",
        "ok   size of the batch",
        "ok   speed",
        "ok   clean accuracy",
    ]
    assert lines[0].endswith("10 of shape (3, 32, 32), float32 in [0, 1]")
    assert lines[-1].endswith("80.0%: 8 of 10 images can be attacked")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "mine:broken"], "RuntimeError: [bold]no[/] such layer"),
        (["--model", "mine:random_model"], "different scores from call to call"),
        (["--model", "mine:probabilities", "--scores", "logits"], "pass --scores probabilities"),
    ],
    ids=["broken", "random", "probabilities"],
)
def test_check_fails_on_what_cannot_be_attacked(folder: Path, options: list[str], words: str) -> None:
    ran = run(folder, "check", "--data", "data.npz", *options)
    assert ran.returncode == 2
    assert ran.stdout.startswith("error ")
    assert words in " ".join(ran.stdout.split())
    assert "Traceback" not in ran.stderr


def test_check_fails_on_what_cannot_be_read(folder: Path) -> None:
    assert "no data file" in refused(run(folder, "check", "--data", "nosuch.npz"))
    assert "no model file" in refused(run(folder, "check", "--data", "data.npz", "--model", "nosuch.onnx"))

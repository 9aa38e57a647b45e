"""Exported images are the adversarial images, and what the index says about the PNG files is true."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from bundled_runs import make_evaluation, make_run
from parsimon import runs
from parsimon.cli.commands import command
from parsimon.errors import InputError
from parsimon.models import as_model
from parsimon.report.adversarial import export_adversarial


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("export")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return make_run(folder, "run", attacks=("thrift", "square"))


def index_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "index.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_archive_has_the_adversarial_images(run: Path, tmp_path: Path) -> None:
    ran = CliRunner().invoke(command, ["export", str(run), "--format", "npz", "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["adversarial.npz", "index.csv"]
    results = runs.load(run).results
    with np.load(tmp_path / "out" / "adversarial.npz") as archive:
        for name, result in results.items():
            mine = archive["attacks"] == name
            fooled = np.flatnonzero(result.success)
            assert archive["numbers"][mine].tolist() == fooled.tolist()
            np.testing.assert_array_equal(archive["images"][mine], result.adversarial[fooled])
            np.testing.assert_array_equal(archive["originals"][mine], result.clean_images()[fooled])
            np.testing.assert_array_equal(archive["labels"][mine], result.labels[fooled])
            np.testing.assert_array_equal(archive["queries"][mine], result.queries[fooled])
            seen = as_model("robust")(result.adversarial[fooled]).argmax(axis=1)
            np.testing.assert_array_equal(archive["predicted"][mine], seen)


@pytest.mark.parametrize("eps", ["8/255", "17/510"])
def test_the_checks_of_png_files_are_those_of_a_reader_with_pillow(eps: str, folder: Path, tmp_path: Path) -> None:
    """A radius of 8.5 steps is rounded to 9 at some pixels, which lie outside the ball."""
    run = make_run(folder, f"run of {eps.replace('/', ' ')}", eps=eps)
    ran = CliRunner().invoke(command, ["export", str(run), "--out", str(tmp_path / "out"), "--json"])
    assert ran.exit_code == 0, ran.output
    (described,) = json.loads(ran.stdout)["exports"]
    rows = index_of(tmp_path / "out")
    result = runs.load(run).first
    levels = np.rint(result.clean_images() * 255)  # bundled images are 8-bit
    fooling = inside = 0
    for row in rows:
        pixels = np.asarray(Image.open(tmp_path / "out" / row["file"])).transpose(2, 0, 1)
        steps = np.abs(pixels - levels[int(row["image"])]).max()
        assert int(row["in_ball_as_png"]) == (steps <= 8)
        seen = as_model("robust")((pixels / np.float32(255)).astype(np.float32)[None]).argmax()
        assert int(row["fools_as_png"]) == (seen != int(row["label"]))
        fooling, inside = fooling + int(row["fools_as_png"]), inside + int(row["in_ball_as_png"])
    assert (inside, len(rows) > 0) == (len(rows) if eps == "8/255" else 0, True)
    assert (described["images"], described["in_ball_as_png"], described["fools_as_png"]) == (len(rows), inside, fooling)


def test_a_png_file_that_no_longer_fools_is_marked(run: Path, tmp_path: Path) -> None:
    result = runs.load(run).results["Square"]

    def never_fooled(images: NDArray[np.float32]) -> NDArray[np.float32]:
        clean = result.clean_images()
        nearest = [np.abs(clean - image).sum(axis=(1, 2, 3)).argmin() for image in images]
        return np.eye(10, dtype=np.float32)[result.labels[nearest]]

    rows = export_adversarial({"Square": result}, result.labels, tmp_path / "out", "png", as_model(never_fooled))
    assert rows
    assert not any(row.fools_as_png for row in rows)


def test_only_the_named_attack_is_exported(run: Path, tmp_path: Path) -> None:
    words = ["export", str(run), "--format", "npz", "--attack", "square", "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(command, words).exit_code == 0
    assert {row["attack"] for row in index_of(tmp_path / "out")} == {"Square"}
    words[words.index("square")] = "squre"
    assert "did you mean" in str(CliRunner().invoke(command, words).exception)


def test_nothing_is_overwritten(run: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    ran = CliRunner().invoke(command, ["export", str(run), "--out", str(tmp_path)])
    assert isinstance(ran.exception, InputError)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_images_of_two_channels_are_refused_as_png(run: Path, tmp_path: Path) -> None:
    result = runs.load(run).first
    narrow = replace(result, images=np.zeros((len(result.labels), 2, 4, 4), np.float32), outcomes=())
    with pytest.raises(InputError, match="1 or 3 channels"):
        export_adversarial({"Thrift": narrow}, result.labels, tmp_path / "out", "png", None)


def test_each_run_of_an_evaluation_has_its_own_folder(folder: Path, tmp_path: Path) -> None:
    evaluation = make_evaluation(folder, "evaluation", ("robust",), ("2/255", "8/255"))
    ran = CliRunner().invoke(command, ["export", str(evaluation), "--format", "npz", "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    assert len([*(tmp_path / "out").rglob("adversarial.npz")]) == 2

"""Standard output: characters that it cannot encode, a width of zero, and a model that prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command import coloured_images, run

MODELS = """
import os

print("importing")

def build():
    print("building")

    def scores(images):
        print("scoring")
        os.write(1, b"written\\n")
        return 10 * images.mean(axis=(2, 3))

    return scores
"""
PRINTING = ("--model", "talks:build", "--data", "data.npz")
SMALL = ("--images", "3", "--eps", "0.02", "--budget", "10")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("streams")
    images, labels = coloured_images()
    np.savez(place / "data.npz", images=images, labels=labels)
    (place / "talks.py").write_text(MODELS)
    return place


@pytest.mark.parametrize("words", [("defences",), ("attacks",), ("attacks", "square"), ("zoo",)])
def test_a_listing_prints_where_only_ascii_can_be_encoded(place: Path, words: tuple[str, ...]) -> None:
    ran = run(place, *words, PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.isascii()


def test_a_folder_whose_name_cannot_be_encoded_is_written_and_shown(place: Path) -> None:
    ran = run(place, "run", *PRINTING, *SMALL, "--out", "naïve/out", PYTHONIOENCODING="ascii")
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False)
    assert "na?ve/out/results.csv" in ran.stdout
    assert (place / "naïve" / "out" / "results.csv").exists()


@pytest.mark.parametrize("columns", ["0", "1", "19"])
def test_a_terminal_that_does_not_know_its_width_shows_the_listing(place: Path, columns: str) -> None:
    ran = run(place, "attacks", COLUMNS=columns)
    assert ran.returncode == 0
    assert ran.stdout == run(place, "attacks").stdout


def test_no_line_ends_in_spaces_when_piped(place: Path) -> None:
    for words in (("attacks",), ("attacks", "square"), ("zoo",), ("run", *PRINTING, *SMALL, "--out", "spaces")):
        lines = run(place, *words).stdout.splitlines()
        assert lines
        assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize(
    "words",
    [
        ("check", *PRINTING),
        ("run", *PRINTING, *SMALL, "--out", "run"),
        ("run", *PRINTING, *SMALL, "--workers", "2", "--out", "workers"),
        ("evaluate", "talks:build", "--data", "data.npz", *SMALL, "--out", "evaluation"),
        ("defend", "noise,sigma=0.02", *PRINTING, *SMALL, "--draws", "5", "--out", "defend"),
        ("check", "--model", "talks:nosuch"),
    ],
)
def test_only_the_document_is_on_standard_output_though_the_model_prints(place: Path, words: tuple[str, ...]) -> None:
    ran = run(place, *words, "--json")
    assert ("error" in json.loads(ran.stdout)) is (ran.returncode != 0)
    assert "importing" in ran.stderr

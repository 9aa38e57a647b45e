"""Ends that are no errors: Ctrl-C, a reader that has seen enough; and missing packages, told before a download."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from parsimon import runs
from parsimon.catalogue.entries import entries
from parsimon.cli import output
from parsimon.cli.commands import command
from parsimon.runs.config import RunConfig
from small_model import IMAGES, LABELS


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a finished run in `out`."""
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=LABELS)
    (tmp_path / "ended_model.py").write_text("from small_model import linear\n\ndef build():\n    return linear\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    runs.run(RunConfig(model="ended_model:build", data="data.npz", budget=20, eps=0.05), "out")
    return tmp_path


def interrupt(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


NEW = ("--model", "ended_model:build", "--data", "data.npz")
# Each command with what is under way when Ctrl-C comes.
UNDER_WAY: list[tuple[tuple[str, ...], str]] = [
    (("run", *NEW), "parsimon.runs.predictions.classify"),
    (("compare", "square", *NEW), "parsimon.runs.predictions.classify"),
    (("evaluate", "ended_model:build", "--data", "data.npz"), "parsimon.runs.predictions.classify"),
    (("resume", "out"), "parsimon.runs.predictions.classify"),
    (("check", *NEW), "parsimon.runs.predictions.classify"),
    (("show", "out"), "parsimon.runs.stored.Store"),
    (("report", "out"), "parsimon.runs.stored.Store"),
    (("plot", "out"), "parsimon.runs.stored.Store"),
    (("view", "out"), "parsimon.cli.view.Viewer"),
    (("verify", "out"), "parsimon.runs.stored.Store"),
    (("export", "out"), "parsimon.runs.stored.Store"),
    (("diff", "out", "out"), "parsimon.runs.stored.Store"),
    (("reproduce", "supplement-b3", *NEW), "parsimon.runs.predictions.classify"),
    (("zoo", "install", "cifar10"), "parsimon.zoo.installer.fetch"),
    (("zoo", "show", "robust"), "parsimon.zoo.card"),
]


@pytest.mark.parametrize(("words", "place"), UNDER_WAY, ids=[" ".join(words[:2]) for words, _ in UNDER_WAY])
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.usefixtures("stored")
def test_ctrl_c_ends_every_command_with_one_word(
    words: tuple[str, ...],
    place: str,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PARSIMON_HOME", str(Path.cwd() / "home"))
    monkeypatch.setattr(sys, "argv", ["parsimon", *words, *["--json"] * as_json])
    monkeypatch.setattr(place, interrupt)
    assert output.run(command) == 130
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    assert (json.loads(out)["exit_code"] if as_json else out) == (130 if as_json else "")


@pytest.mark.parametrize(
    "words", [("show", "out"), ("show", "out", "--json"), ("zoo",), ("run", "--help"), ("attacks",)]
)
def test_a_reader_that_closes_the_pipe_ends_a_command_in_silence(stored: Path, words: tuple[str, ...]) -> None:
    """As `head -1` does, once it has seen enough."""
    ours, theirs = os.pipe()
    os.close(ours)
    process = [sys.executable, "-m", "parsimon", *words]
    ran = subprocess.run(process, cwd=stored, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=100)
    os.close(theirs)
    assert (ran.returncode, ran.stderr) == (1, "")


# --- missing packages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "missing", "extra"),
    [
        (("zoo", "install", "cifar10", "inception-v3"), "tflite", "zoo"),
        (("zoo", "install", "resnet-50"), "onnx", "zoo"),
        (("run", "--model", "resnet-50", "--data", "imagenet-samples", "--download"), "onnxruntime", "onnx"),
        (("run", "--model", "timm:resnet18", "--data", "cifar10", "--download"), "torch", "torch"),
        (("run", "--model", "hf:x/y", "--data", "cifar10", "--download"), "transformers", "huggingface"),
        (("run", "--data", "hf:cifar10", "--model", "resnet-50", "--download"), "datasets", "huggingface"),
        (("compare", "pgd", "--model", "resnet-50", "--data", "cifar10", "--download"), "torch", "torch"),
        (("evaluate", "robust", "resnet-50", "--data", "cifar10", "--download"), "onnxruntime", "onnx"),
        (("reproduce", "table2", "figure5b", "--download"), "matplotlib", "plot"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else None,
)
def test_a_missing_package_is_reported_before_a_download(
    words: tuple[str, ...],
    missing: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def download(*_: Any) -> NoReturn:
        raise AssertionError("something was downloaded")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARSIMON_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("parsimon.zoo.installer.fetch", download)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(sys, "argv", ["parsimon", *words])
    assert output.run(command) == 2
    sentence = f"this needs {missing}, which is not installed: pip install 'parsimon[{extra}]'"
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not any(entry.is_installed for entry in entries().values())

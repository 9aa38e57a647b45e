"""Absurd commands: each ends with a sentence and a code, with a JSON document where that was asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsimon.cli import output
from parsimon.cli.commands import command
from small_model import IMAGES, LABELS

LONG = "9" * 5000
NAME = "x" * 300  # longer than a file's name may be
RUN = ("run", "--model", "model_here:build", "--data", "data.npz")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data, a model that must not be queried, a file and a folder that cannot be written to."""
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=LABELS)
    (tmp_path / "model_here.py").write_text(
        "def build():\n    def model(images):\n        raise AssertionError('it was queried')\n    return model\n"
        "def direct(images):\n    raise AssertionError('it was queried')\n"
    )
    (tmp_path / "model.onnx").write_bytes(bytes(2**21))
    (tmp_path / "text.npz").write_text("images, labels")
    np.savez(tmp_path / "objects.npz", images=np.array([None]), labels=np.array([0]))
    (tmp_path / "file").write_text("")
    (tmp_path / "misspelt.toml").write_text("budgte = 3\n")
    (tmp_path / "nul.toml").write_text('model = "a\\u0000b"\n')
    (tmp_path / "pictures").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def run_here(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Exit code, standard output and standard error of a command that is run in this process."""
    monkeypatch.setattr(sys, "argv", ["parsimon", *words])
    code = output.run(command)
    return code, *capsys.readouterr()


CASES: list[tuple[tuple[str, ...], str]] = [
    ((*RUN, "--in-flight", "99999999999"), "--in-flight must be a whole number, at most 1,048,576; got 99999999999"),
    ((*RUN, "--in-flight", "0"), "--in-flight must be a whole number, at least 1; got 0"),
    ((*RUN, "--batch-size", "99999999"), "--batch-size must be a whole number, at most 65,536; got 99999999"),
    ((*RUN, "--batch-size", LONG), "Invalid value for '--batch-size'"),
    ((*RUN, "--workers", "99999"), "since each worker is a process with a model of its own; got 99999"),
    ((*RUN, "--workers", "99999", "--ray", "local"), "--workers must be a whole number, at most"),
    ((*RUN, "--workers", "-1"), "--workers must be a whole number, at least 1; got -1"),
    ((*RUN, "--ray", ""), "--ray must be the address of a Ray cluster, or 'local'; got ''"),
    ((*RUN, "--budget", "9223372036854775808"), "--budget must be a whole number, at most 9,223,372,036,854,775,807"),
    ((*RUN, "--budget", LONG), "Invalid value for '--budget'"),
    ((*RUN, "--seed", "9223372036854775808"), "--seed must be a whole number, at most"),
    ((*RUN, "--sample", "-1"), "--sample must be a whole number, at least 0; got -1"),
    ((*RUN, "--images", "-5"), "--images must be a whole number, at least 1, or 'all'; got -5"),
    ((*RUN, "--images", "9223372036854775808"), "--images must be a whole number, at most"),
    ((*RUN, "--images", LONG), "Invalid value for '--images'"),
    ((*RUN, "--eps", "1e99999999"), "--eps must be a number or a fraction such as 8/255; got '1e99999999'"),
    ((*RUN, "--eps", "1e-99999999"), "--eps must be a number or a fraction"),
    ((*RUN, "--eps", LONG), "--eps must be a number or a fraction"),
    ((*RUN, "--eps", "nan"), "--eps must be a number or a fraction"),
    ((*RUN, "--fail-under", "nan"), "Invalid value for '--fail-under': nan is not in the range 0<=x<=1."),
    ((*RUN, "--fail-under", "inf"), "Invalid value for '--fail-under'"),
    ((*RUN, "--out", ""), "Invalid value for '--out': a path must not be empty"),
    ((*RUN, "--out", "file"), "file is a file; choose a folder with --out"),
    ((*RUN, "--out", "file/deeper"), "file is a file; choose a folder with --out"),
    ((*RUN, "--out", "/dev/full"), "/dev/full is a file; choose a folder with --out"),
    ((*RUN, "--out", NAME), "cannot be used: File name too long"),
    ((*RUN, "--out", "a\0b"), "a path must not be empty, and have no NUL character"),
    ((*RUN, "--model", ""), "--model must be a text that is not empty"),
    ((*RUN, "--model", NAME), "File name too long"),
    ((*RUN, "--model", "a\0b"), "has no NUL character"),
    ((*RUN, "--model", "http://[::1"), "an address must"),
    ((*RUN, "--model", "http://host:99999/v2/models/x"), "an address must"),
    ((*RUN, "--model", "\udcff.onnx"), "there is no model file"),
    ((*RUN, "--model", "sys:exit"), "sys:exit did not return a model"),
    ((*RUN, "--data", ""), "--data must be a text that is not empty"),
    ((*RUN, "--data", NAME), "File name too long"),
    ((*RUN, "--data", "\udcff.npz"), "there is no data file"),
    ((*RUN, "--data", "folder:a\0b"), "has no NUL character"),
    ((*RUN, "--data", "imagenet:pictures:/dev/zero"), "there is no list /dev/zero"),
    ((*RUN, "--data", "named:pictures", "--preprocess", "resize=99999"), "resize must be"),
    ((*RUN, "--attack", f"nes,samples={LONG}"), "samples of nes must be a whole number"),
    ((*RUN, "--attack", "nes,samples=1000000000000000000000000000000"), "samples must be a whole number, at most"),
    ((*RUN, "--attack", "square,p_init=nan"), "p_init of square must be a number; got 'nan'"),
    ((*RUN, "--attack", "square,p_init=1e99999999"), "p_init of square must be a number"),
    ((*RUN, "--attack", "parsimonious,block=1180591620717411303424"), "block must be a power of two"),
    ((*RUN, "--attack", "parsimonious,noise=0x0"), "each side of noise must be a whole number, at least 1"),
    ((*RUN, "--attack", "pgd,steps=1e9"), "steps of pgd must be a whole number"),
    ((*RUN, "--attack", LONG), "there is no attack"),
    ((*RUN, "--track", LONG), "there is no tracker"),
    (("compare", *RUN[1:], "nes", "--relative-to", LONG), "relative_to must be one of NES"),
    (("compare", *RUN[1:], ""), "at least one name, none of them empty"),
    (("run", "/dev/zero"), "the description of a run has at most 1,048,576 bytes"),
    (("run", "."), "cannot be read: Is a directory"),
    (("run", "data.npz"), "is not a TOML file"),
    (("run", "nul.toml"), "has no NUL character"),
    (("check", "--batch-size", "999999999999"), "--batch-size must be a whole number, at most 65,536"),
    (("check", "--batch-size", "0"), "--batch-size must be a whole number, at least 1"),
    (("check", "--model", LONG + LONG), "the name of a model must be a text of at most 4,096 characters"),
    (("show", ""), "a path must not be empty"),
    (("show", "a\0b"), "no NUL character"),
    (("show", "file"), "file holds no run"),
    (("show", "x", "--fail-under", "nan"), "nan is not in the range"),
    (("resume", "file"), "file holds no run"),
    (("report", "file"), "file holds no run"),
    (("plot", "file"), "file holds no run"),
    (("view", "file"), "is a file"),
    (("view", "x", "--port", "99999"), "99999 is not in the range"),
    (("zoo", "show", LONG), "the zoo has"),
    (("reproduce", LONG), "the paper has no exhibit"),
    (("reproduce", "table1", "--budget", "0"), "0 is not in the range"),
    (("completion", LONG), "is not one of 'bash', 'zsh', 'fish'"),
    (("run", "model.onnx"), "to attack a model, use --model model.onnx"),
    (("run", "standard"), "standard is no TOML file that describes a run; to attack a model, use --model standard"),
    (("run", "lost.toml"), "lost.toml cannot be read: No such file or directory"),
    (("check", "robust", "--model", "standard"), "name one model, with --model or without it; got standard and robust"),
    (("evaluate", "--model", "robust"), "Models are given without --model: parsimon evaluate robust"),
    (("check", "model_here.build"), "there is no model 'model_here.build': did you mean model_here:build?"),
    (("check", "model_here.py"), "write model_here:FUNCTION, with a function of model_here.py that takes no arguments"),
    (("check", "model_here.onnx"), "there is no model file model_here.onnx"),
    (("check", "nosuch.build"), "there is no model file nosuch.build"),
    (("check", "model_here:direct"), "must be a function that takes no arguments and returns the model"),
    (
        ("check", "--data", "text.npz"),
        "text.npz cannot be read as an .npz file: it is none. Write one with numpy.savez",
    ),
    (("check", "--data", "objects.npz"), "it has an array of objects, where numbers are needed"),
    ((*RUN, "--draws", "5"), "--draws is for random models: it needs --random"),
    ((*RUN, "--defence", "noise"), "this model is random by design: allow that with --random"),
    ((*RUN, "--attack", "thrft"), "there is no attack 'thrft': did you mean thrift?"),
    ((*RUN, "--attack", "nes:cifar"), "NES has no preset 'cifar': did you mean cifar10?"),
    ((*RUN, "--attack", "nes,sample=5"), "nes has no setting 'sample': did you mean samples?"),
    ((*RUN, "--model", "robst"), "there is no model 'robst': did you mean robust? You can give a bundled"),
    ((*RUN, "--model", "resnet50"), "there is no model 'resnet50': did you mean resnet-50?"),
    ((*RUN, "--data", "bundeld"), "there are no data 'bundeld': did you mean bundled? You can give"),
    ((*RUN, "--data", "imagenet-sample"), "did you mean imagenet-samples?"),
    ((*RUN, "--data", "foldr:x"), "there are no data 'foldr:x': did you mean folder?"),
    ((*RUN, "--data", "pictures"), "'pictures' is a folder: for class folders in it use folder:pictures"),
    ((*RUN, "--track", "tensorbord"), "there is no tracker 'tensorbord': did you mean tensorboard?"),
    (("run", "misspelt.toml"), "a run has no setting 'budgte': did you mean budget?"),
    (("compare", *RUN[1:], "nes", "thrift", "--relative-to", "thrif"), "got 'thrif': did you mean Thrift?"),
    (("zoo", "show", "resnet50"), "the zoo has no entry 'resnet50': did you mean resnet-50?"),
    (("zoo", "install", "inceptionv3"), "the zoo has no entry 'inceptionv3': did you mean inception-v3?"),
    (("reproduce", "tabel1"), "the paper has no exhibit 'tabel1': did you mean table1?"),
    ((LONG,), "No such command"),
    ((f"--{LONG}",), "No such option"),
]


@pytest.mark.parametrize(("words", "sentence"), CASES, ids=lambda value: " ".join(value)[:60].replace("\0", "NUL"))
@pytest.mark.usefixtures("place")
def test_it_is_refused_with_a_sentence_and_a_document(
    words: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_here((*words, "--json"), monkeypatch, capsys)
    told = json.loads(out)
    assert (code, told["exit_code"]) == (2, 2)
    assert sentence in told["error"]
    assert len(told["error"]) < 1000
    assert sentence in " ".join(err.split()).replace("│ ", "")
    assert len(err) < 1200
    assert run_here(words, monkeypatch, capsys)[:2] == (2, "")


def test_it_leaves_nothing_behind(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(place.iterdir())
    for words in ((*RUN, "--budget", "0", "--out", "new"), (*RUN, "--workers", "99999")):
        assert run_here(words, monkeypatch, capsys)[0] == 2
    assert [path for path in sorted(place.iterdir()) if path.name != "__pycache__"] == before


def test_too_little_memory_is_a_sentence(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("parsimon.cli.check.open_data_for", no_room)
    code, out, _ = run_here(("check", "--json"), monkeypatch, capsys)
    assert (code, json.loads(out)["exit_code"]) == (2, 2)
    assert "out of memory" in json.loads(out)["error"]
    assert place.exists()


@pytest.mark.parametrize("words", [("zoo",), ("zoo", "--json"), ("--help",), ("show", "nosuch", "--json")])
def test_standard_output_that_is_full_is_no_traceback(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "parsimon", *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100
        )
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr
    (sentence,) = ran.stderr.splitlines()
    assert sentence in (
        "error: the output cannot be used: No space left on device",
        "error: nosuch holds no run: there is no spec.toml in it",
    )


def test_a_reader_that_has_seen_enough_is_no_traceback() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    ran = subprocess.run(
        [sys.executable, "-m", "parsimon", "zoo"], stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=100
    )
    os.close(theirs)
    assert (ran.returncode, ran.stderr) == (1, "")

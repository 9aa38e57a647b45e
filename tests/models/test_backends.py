"""Backends: chosen by rule, reported, fixed for a whole run, and without influence on results."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import parsimon
from hand_made import hand_made
from parsimon import InputError, runs, zoo
from parsimon.core.threat import Threat
from parsimon.core.types import Attack
from parsimon.models import as_model
from parsimon.models.onnx import _providers
from parsimon.models.torch import TorchModel
from parsimon.runs.config import RunConfig
from parsimon.runs.diagnose import inspect

PLAIN, TURNED = "torch on cpu", "torch on cpu, channels last"


def scores(model: Any, count: int = 8) -> Any:
    return model(torch.from_numpy(zoo.images()[0][:count]))


class Small(nn.Module):
    """A convolutional network that counts the images that it is shown."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(3, 6, 3)
        self.head = nn.Linear(6 * 30 * 30, 4)
        self.rows = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.rows += len(images)
        maps: torch.Tensor = self.convolution(images)
        return self.scored(maps.relu())

    def scored(self, maps: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(maps.flatten(1))
        return result


class Viewing(Small):
    """Takes the order in memory for granted, as many networks do, and fails where it is another."""

    def scored(self, maps: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(maps.view(len(maps), -1))
        return result


class Muddled(Small):
    """Takes it for granted and does not notice: what lies in memory is read as if channels came first."""

    def scored(self, maps: torch.Tensor) -> torch.Tensor:
        as_stored = maps.as_strided(maps.shape, torch.empty(maps.shape).stride())
        result: torch.Tensor = self.head(as_stored.flatten(1))
        return result


# --- no other results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "attack"),
    [("robust", parsimon.Parsimonious()), ("robust", parsimon.Square()), ("standard", parsimon.Parsimonious())],
    ids=["robust-parsimonious", "robust-square", "standard-parsimonious"],
)
def test_outcomes_are_those_of_the_plain_way(name: str, attack: Attack) -> None:
    images, labels = (array[:16] for array in zoo.images())
    module = hand_made(name)
    chosen, plain = (
        parsimon.attack(model, images, labels, 8 / 255, attack=attack, budget=100, batch_size=16)
        for model in (module, TorchModel(module, plain=True))
    )
    assert (chosen.clean.backend, plain.clean.backend) == (TURNED, PLAIN)
    assert chosen.outcomes == plain.outcomes
    assert chosen.success.any()


# --- the rule -------------------------------------------------------------------------------------------------------


def test_a_convolutional_network_on_a_cpu_gets_channels_last() -> None:
    module = Small()
    model = as_model(module)
    first = scores(model)
    assert model.backend == TURNED
    np.testing.assert_array_equal(scores(model), first)  # chosen with the first images, not after them
    np.testing.assert_allclose(first, scores(TorchModel(module, plain=True)), atol=1e-6)
    assert module.rows == (2 + 1 + 1) * 64  # it is the user's own module that is shown the images


@pytest.mark.parametrize("kind", [Viewing, Muddled])
def test_a_module_that_needs_its_images_as_they_are_gets_them_so(kind: type[Small]) -> None:
    module = kind()
    model = TorchModel(module)
    seen = scores(model)
    assert model.backend == PLAIN
    with torch.no_grad():  # in a batch of another size, for which torch may round otherwise
        np.testing.assert_allclose(seen, module(torch.from_numpy(zoo.images()[0][:8])).numpy(), atol=1e-6)
    np.testing.assert_array_equal(scores(model), seen)


@pytest.mark.parametrize(
    "module",
    [nn.Sequential(nn.Flatten(), nn.Linear(3072, 4)), Small().double(), Small().bfloat16()],
    ids=["linear", "double", "bfloat16"],
)
def test_what_would_not_gain_or_has_a_precision_of_its_own_is_run_as_it_is(module: nn.Module) -> None:
    model = TorchModel(module)
    scores(model)
    assert model.backend == PLAIN


@pytest.mark.parametrize(
    ("available", "chosen"),
    [
        (["CPUExecutionProvider"], ["CPUExecutionProvider"]),
        (["CoreMLExecutionProvider", "CPUExecutionProvider"], ["CPUExecutionProvider"]),
        (
            ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
            [("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider"],
        ),
    ],
)
def test_an_onnx_file_is_run_where_single_precision_is_kept(available: list[str], chosen: list[Any]) -> None:
    assert _providers(available) == chosen


# --- it is told, and kept to ----------------------------------------------------------------------------------------


def test_a_table_says_how_the_model_was_run() -> None:
    images, labels = (array[:4] for array in zoo.images())
    assert "Model run by ONNX Runtime, one single-threaded call per core." in str(
        parsimon.attack("robust", images, labels, 0.03, budget=5)
    )
    function = parsimon.attack(as_model("robust").__call__, images, labels, 0.03, budget=5)
    assert "Model run by" not in str(function)


def test_a_check_measures_both_ways() -> None:
    images, labels = zoo.images()

    def speed(model: Any) -> str:
        found = inspect(as_model(model), images[:4], labels[:4], Threat(0.02), 4)
        return next(each.sentence for each in found if each.name == "speed")

    assert f"ms per image in batches of 4, with {TURNED}; {PLAIN} alone: " in speed(hand_made("robust"))
    assert speed(TorchModel(hand_made("robust"), plain=True)).endswith(f"with {PLAIN}")
    assert speed(zoo.path("robust")).endswith("with ONNX Runtime, one single-threaded call per core")


MODEL = """
import os

from hand_made import hand_made
from parsimon.models.torch import TorchModel

def build():
    return TorchModel(hand_made("robust"), plain="PLAIN" in os.environ)
"""


FORMERLY = """
import os

from parsimon.models import as_model

def build():
    model = as_model("robust")
    model.backend = os.environ.get("FORMER_NAME", model.backend)
    return model
"""


def test_a_run_stored_under_a_former_name_of_its_backend_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model_with_a_former_name.py").write_text(FORMERLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = RunConfig(model="model_with_a_former_name:build", images=2, budget=5)
    with monkeypatch.context() as before:
        before.setenv("FORMER_NAME", "ONNX Runtime, a core a call")
        begun = runs.run(spec, tmp_path / "run")
    assert "a core a call" in str(begun)
    resumed = runs.resume(tmp_path / "run")
    for text in (str(resumed), str(runs.load(tmp_path / "run"))):
        assert text == str(begun).replace("a core a call", "one single-threaded call per core")


def test_a_stored_run_continues_only_with_the_backend_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model_of_two_ways.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    images, labels = zoo.images()
    np.savez("data.npz", images=images[:8], labels=labels[:8])
    spec = RunConfig(model="model_of_two_ways:build", data="data.npz", images=2, budget=5, batch_size=4)
    begun = runs.run(spec, tmp_path / "run")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("PLAIN", "")
        with pytest.raises(InputError, match=rf"begun with the model run by {TURNED}, and would .* by {PLAIN}, which"):
            runs.resume(tmp_path / "run")
    assert str(runs.resume(tmp_path / "run")) == str(begun)
    assert f"Model run by {TURNED}." in str(runs.load(tmp_path / "run"))


# --- memory ---------------------------------------------------------------------------------------------------------

CALLS = """
import resource, sys
import numpy as np
from parsimon.models import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()

def call():
    layers = [np.ones(2**20, np.float32) for _ in range(10)]

call()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    call()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
def test_freed_memory_is_kept_for_the_next_call() -> None:
    """The operating system hands out a page of new memory with a fault; memory that was kept costs none."""

    def faults(mode: str) -> int:
        said = subprocess.run([sys.executable, "-c", CALLS, mode], capture_output=True, text=True, check=True)
        return int(said.stdout)

    assert faults("kept") < faults("given back") / 10

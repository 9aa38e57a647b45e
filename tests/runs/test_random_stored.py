"""Stored runs of random models: killed, resumed, read back, and spread over workers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import parsimon
from bundled_images import Bundled
from command import table_of
from forked import run
from parsimon import InputError, Result, runs
from parsimon.attacks.registry import attack_rows
from parsimon.runs.config import RunConfig
from parsimon.runs.execute import execute
from parsimon.runs.preparation import Inputs
from parsimon.runs.store import Store

Pixels = NDArray[np.float32]

DROPOUT = """
import torch
from torch import nn

class Dropout(nn.Module):
    def forward(self, values):
        return nn.functional.dropout(values, RATE, training=RANDOM)

RANDOM, RATE = True, 0.3

def build():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    hidden, last = nn.Linear(192, 64), nn.Linear(64, 10)
    for layer in (hidden, last):
        with torch.no_grad():
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) / layer.in_features**0.5)
            layer.bias.zero_()
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), Dropout(), last)
"""


def command(folder: Path, *arguments: str) -> None:
    ran = run(folder, *arguments)
    assert ran.returncode == 0, ran.stderr


def killed(folder: Path, writes: int, *arguments: str) -> None:
    """Kill the command in the midst of its work, after so many writes to the run file."""
    ran = run(folder, *arguments, writes=writes)
    assert ran.returncode == -signal.SIGKILL, ran.stderr


def store_dropout(folder: Path, rate: float = 0.3, seeds: tuple[int, ...] = (0,)) -> Pixels:
    """Put a dropout network and images into a folder.

    The labels are its classes without dropout; with several seeds, those of networks with these seeds in turn.
    """
    (folder / "dropped.py").write_text(DROPOUT.replace("0.3", str(rate)))
    images = np.random.default_rng(3).random((12, 3, 8, 8), dtype=np.float32)
    labels = np.empty(12, np.intp)
    for number, seed in enumerate(seeds):
        namespace: dict[str, Any] = {}
        exec(DROPOUT.replace("manual_seed(0)", f"manual_seed({seed})"), namespace)
        namespace["RANDOM"] = False
        mine = slice(number, None, len(seeds))
        labels[mine] = namespace["build"]()(torch.from_numpy(images[mine])).argmax(dim=1).numpy()
    np.savez(folder / "data.npz", images=images, labels=labels)
    return images


class Noise:
    """Runs of the bundled network behind noise, in one folder."""

    def __init__(self, folder: Path, bundled: Bundled) -> None:
        self.folder = folder
        np.savez(folder / "data.npz", images=bundled.images, labels=bundled.labels)
        command(folder, *self.arguments("whole"))

    def arguments(self, out: str) -> list[str]:
        return [
            *("run", "--model", "robust", "--defence", "noise,sigma=0.02", "--random"),
            *("--data", str(self.folder / "data.npz")),
            *("--images", "5", "--budget", "60", "--draws", "15", "--eps", "8/255", "--batch-size", "8"),
            *("--attack", "thrift", "--attack", "square", "--in-flight", "3", "--out", out),
        ]

    def same(self, out: str) -> bool:
        return all(
            (self.folder / out / name).read_bytes() == (self.folder / "whole" / name).read_bytes()
            for name in ("results.csv", "table.md")
        )


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory, bundled: Bundled) -> Noise:
    return Noise(tmp_path_factory.mktemp("noise"), bundled)


def test_the_command_attacks_a_defended_network(noise: Noise) -> None:
    rows = table_of(noise.folder / "whole")
    assert len(rows) == 10
    assert all(0 < int(row["queries"]) <= 60 for row in rows)
    assert {row["success"] for row in rows} == {"0", "1"}
    found = runs.load(noise.folder / "whole")
    for result in found.results.values():
        assert all(outcome.draws == 15 for outcome in result.outcomes)
        assert all(outcome.success == (outcome.errors > 7) for outcome in result.outcomes)


@pytest.mark.parametrize(("writes", "workers"), [(7, None), (30, None), (20, "2")])
def test_a_killed_run_behind_keyed_noise_is_resumed_to_the_same_bytes(
    noise: Noise, writes: int, workers: str | None
) -> None:
    options = [] if workers is None else ["--workers", workers]
    out = f"killed{writes}"
    killed(noise.folder, writes, *noise.arguments(out), *options)
    assert not (noise.folder / out / "results.csv").exists()
    unfinished = runs.load(noise.folder / out)
    assert unfinished.unfinished > 0
    command(noise.folder, "resume", out, *options)
    assert noise.same(out)


def test_plot_leaves_out_a_random_run_and_says_why(noise: Noise) -> None:
    ran = run(noise.folder, "plot", "whole")
    assert ran.returncode == 2
    assert "no success curve: a random model needs one run per budget" in " ".join(ran.stderr.split())
    exact = ["run", "--data", "data.npz", "--images", "2", "--budget", "5", "--out", "exact"]
    command(noise.folder, *exact)
    ran = run(noise.folder, "plot", "whole", "exact", "--out", "both.svg")
    assert ran.returncode == 0, ran.stderr
    assert "note: whole is left out: a random model" in " ".join(ran.stderr.split())
    assert (noise.folder / "both.svg").exists()


def test_workers_give_the_same_bytes(noise: Noise) -> None:
    command(noise.folder, *noise.arguments("workers"), "--workers", "2")
    assert noise.same("workers")


def test_a_stored_run_reads_back_its_draws(noise: Noise) -> None:
    """What was stored is what the same run gives without a folder."""
    found = runs.load(noise.folder / "whole")
    data = np.load(noise.folder / "data.npz")
    live = parsimon.attack(
        "robust",
        data["images"],
        data["labels"],
        8 / 255,
        attack="square",
        defence="noise,sigma=0.02",
        stochastic=True,
        draws=15,
        budget=60,
        at_most=5,
    )
    stored = found.results["Square"]
    assert [replace(outcome, point=None) for outcome in stored.outcomes] == [
        replace(outcome, point=None) for outcome in live.outcomes
    ]
    assert stored.clean.draws == live.clean.draws == 15
    assert stored.clean.errors is not None
    assert live.clean.errors is not None
    assert stored.clean.errors.tolist() == live.clean.errors.tolist()
    assert stored.clean.correct.tolist() == live.clean.correct.tolist()


def test_a_killed_run_of_a_dropout_network_is_finished_with_the_clean_predictions_of_its_start(tmp_path: Path) -> None:
    """Its draws cannot be repeated. All that is promised is that nothing is lost and nothing is charged twice."""
    images = store_dropout(tmp_path)
    arguments = [
        *("run", "--model", "dropped:build", "--data", str(tmp_path / "data.npz"), "--random"),
        *("--draws", "25", "--budget", "50"),
        *("--attack", "square", "--eps", "0.05", "--images", "all", "--batch-size", "4", "--in-flight", "3"),
    ]
    killed(tmp_path, 25, *arguments, "--out", "run")
    before = runs.load(tmp_path / "run")
    begun = {outcome.index: outcome for outcome in before.first.outcomes if outcome.ended != "interrupted"}
    assert before.unfinished
    command(tmp_path, "resume", "run")
    after = runs.load(tmp_path / "run")
    clean, later = before.first.clean, after.first.clean
    assert clean.errors is not None
    assert later.errors is not None
    assert 0 < clean.errors.sum() < 25 * len(images), "the network is random"
    for name in ("predicted", "correct", "errors", "confidence"):
        np.testing.assert_array_equal(getattr(later, name), getattr(clean, name))
    found = {outcome.index: outcome for outcome in after.first.outcomes}
    assert sorted(found) == np.flatnonzero(clean.correct).tolist()
    assert {index: found[index] for index in begun} == begun, "what was finished stays as it was"
    for outcome in found.values():
        assert outcome.ended in ("success", "budget", "exhausted")
        assert 0 < outcome.queries <= 50
        assert outcome.draws == 25
        assert outcome.success == (outcome.errors > 12)
    assert after.first.counters.queries == sum(outcome.queries for outcome in found.values())


def test_a_run_with_one_draw_per_image_can_be_resumed(tmp_path: Path) -> None:
    store_dropout(tmp_path)
    arguments = [
        *("run", "--model", "dropped:build", "--data", str(tmp_path / "data.npz"), "--random"),
        *("--draws", "1", "--budget", "40", "--attack", "square", "--eps", "0.05", "--images", "all"),
    ]
    killed(tmp_path, 2, *arguments, "--out", "run")
    assert runs.load(tmp_path / "run").unfinished
    command(tmp_path, "resume", "run")
    found = runs.load(tmp_path / "run")
    assert found.unfinished == 0
    assert found.first.outcomes
    for outcome in found.first.outcomes:
        assert outcome.ended in ("success", "budget", "exhausted")
        assert outcome.draws == 1


def test_a_run_of_another_random_model_is_not_continued(tmp_path: Path) -> None:
    """Both networks classify half of the images correctly, but other ones."""
    store_dropout(tmp_path, 0.02, seeds=(0, 1))
    arguments = [
        *("run", "--model", "dropped:build", "--data", str(tmp_path / "data.npz"), "--random"),
        *("--draws", "15", "--budget", "40"),
        *("--attack", "square", "--eps", "0.05", "--images", "all", "--batch-size", "4", "--in-flight", "3"),
    ]
    killed(tmp_path, 4, *arguments, "--out", "run")
    (tmp_path / "dropped.py").write_text(DROPOUT.replace("0.3", "0.02").replace("manual_seed(0)", "manual_seed(1)"))
    ran = run(tmp_path, "resume", "run")
    assert ran.returncode == 2
    assert "this run was begun with another model" in " ".join(ran.stderr.split())


def test_a_resumed_run_of_a_random_model_needs_the_same_labels(tmp_path: Path) -> None:
    """Its predictions are read from the run, but labels come from the data."""
    images, rng = np.random.default_rng(3).random((8, 3, 4, 4), dtype=np.float32), np.random.default_rng(0)
    weights = np.random.default_rng(1).normal(size=(48, 4))

    def noisy(pixels: Pixels) -> NDArray[np.float64]:
        return pixels.reshape(len(pixels), -1) @ weights + rng.normal(0, 2, (len(pixels), 4))

    config = RunConfig(attacks=("square",), eps=0.05, budget=5, images="all", stochastic=True, draws=5)

    def execute_in(folder: str, labels: Any) -> Result:
        @contextmanager
        def open_store() -> Iterator[Store]:
            (tmp_path / folder).mkdir(exist_ok=True)
            with Store(tmp_path / folder, images, write=True) as store:
                store.set_fact("spec", config.settings())
                store.set_fact("fingerprint", "")
                yield store

        return execute(config, attack_rows(config.attacks), Inputs(noisy, images, labels), open_store=open_store)[
            "Square"
        ]

    labels = (images.reshape(8, -1) @ weights).argmax(axis=1)
    begun = execute_in("named", labels)
    again = execute_in("named", labels)
    assert again.outcomes == begun.outcomes
    other = labels.copy()
    other[5] = (other[5] + 1) % 4
    with pytest.raises(InputError, match="begun with another labels"):
        execute_in("named", other)
    begun = execute_in("predicted", "predicted")
    again = execute_in("predicted", "predicted")
    assert (again.labels.tolist(), again.outcomes) == (begun.labels.tolist(), begun.outcomes)


LINEAR = """
import numpy as np

WEIGHTS = np.random.default_rng(0).normal(size=(192, 10)).astype(np.float32)
NOISE = np.random.default_rng()

def exact(images):
    return 1.0 * images.reshape(len(images), -1) @ WEIGHTS

def build():
    return exact

def build_random():
    return lambda images: exact(images) + NOISE.normal(0, 0.1, (len(images), 10)).astype(np.float32)
"""


@pytest.mark.parametrize("change", ["5.0 * images", "1.02 * images", "1.0 * (1 - images)"])
def test_a_resumed_run_behind_keyed_noise_needs_the_same_model(tmp_path: Path, change: str) -> None:
    """Scores that are only larger give the same classes in all draws, but an attack sees other losses."""
    arguments = [*store_linear(tmp_path, "build"), "--attack", "square", "--out", "run"]
    killed(tmp_path, 4, *arguments)
    (tmp_path / "lines.py").write_text(LINEAR.replace("1.0 * images", change))
    ran = run(tmp_path, "resume", "run")
    assert ran.returncode == 2, ran.stderr
    assert "this run was begun with another model" in " ".join(ran.stderr.split())
    (tmp_path / "lines.py").write_text(LINEAR)
    command(tmp_path, "resume", "run")
    (remark,) = runs.load(tmp_path / "run").first.clean.remarks
    assert "the same run gives the same results" in remark


def test_a_model_that_draws_by_itself_behind_keyed_noise_is_resumed_and_nothing_is_promised(tmp_path: Path) -> None:
    arguments = [*store_linear(tmp_path, "build_random"), "--attack", "square", "--out", "run"]
    killed(tmp_path, 4, *arguments)
    command(tmp_path, "resume", "run")
    (remark,) = runs.load(tmp_path / "run").first.clean.remarks
    assert "sees other draws, so results vary" in remark


def store_linear(folder: Path, name: str) -> list[str]:
    """Put linear models and images into a folder; return the arguments of a run of one of them behind noise."""
    (folder / "lines.py").write_text(LINEAR)
    images = np.random.default_rng(3).random((6, 3, 8, 8), dtype=np.float32)
    namespace: dict[str, Any] = {}
    exec(LINEAR, namespace)
    np.savez(folder / "data.npz", images=images, labels=namespace["exact"](images).argmax(axis=1))
    options = ["--random", "--draws", "10", "--budget", "40", "--eps", "0.02", "--images", "all", "--batch-size", "4"]
    model = ["--model", f"lines:{name}", "--data", str(folder / "data.npz"), "--defence", "noise,sigma=0.02"]
    return ["run", *model, *options, "--in-flight", "3"]

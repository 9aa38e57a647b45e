"""A run with several workers has the results of one process, whichever workers are lost, and repeats no query."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

import parsimon
from counted_run import Run, undisturbed, wait_until_gone
from parsimon import InputError
from parsimon.runs.workers.driver import _AHEAD
from small_model import IMAGES, LABELS, linear


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return undisturbed(tmp_path_factory.mktemp("workers"))


@pytest.fixture
def other(whole: Run, request: pytest.FixtureRequest) -> Run:
    """Return another run of the same configuration."""
    return Run(whole.folder.parent, "".join(each for each in request.node.name if each.isalnum()))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_any_number_of_workers_has_the_results_of_one_process(whole: Run, other: Run, workers: int) -> None:
    other.go("--workers", str(workers))
    other.assert_same(whole, again=Counter())
    assert len({process for process, _ in other.calls}) == workers


@pytest.mark.parametrize("moment", ["built/1", "shown/1", "shown/30", "answered/5", "answered/100"])
def test_a_killed_worker_changes_nothing_and_its_reported_queries_are_not_repeated(
    whole: Run, other: Run, moment: str
) -> None:
    said = other.go("--workers", "2", moment=f"kill/{moment}")
    assert "was lost (SIGKILL): the other workers continue its images" in said
    other.assert_same(whole, again=other.last_calls())


def test_a_worker_killed_at_any_time_changes_nothing(whole: Run, other: Run) -> None:
    process = other.start("--workers", "3", moment="say/shown/60")
    worker = other.moment(process)
    time.sleep(np.random.default_rng().uniform(0, 0.01))
    os.kill(worker, signal.SIGKILL)
    assert "was lost (SIGKILL)" in other.end(process)
    other.assert_same(whole, again=other.last_calls())


def test_a_run_whose_workers_are_all_killed_says_so_and_can_be_resumed(whole: Run, other: Run) -> None:
    said = " ".join(other.go("--workers", "2", moment="kill_all/answered/40", code=2).split())
    assert "no worker is left: the last one was lost (SIGKILL). A stored run can be resumed" in said
    again = other.last_calls()
    other.go("--workers", "2")
    other.assert_same(whole, again)


def test_ctrl_c_stops_all_workers_and_no_query_is_repeated(whole: Run, other: Run) -> None:
    process = other.start("--workers", "2", moment="say/shown/50")
    other.moment(process)
    os.killpg(process.pid, signal.SIGINT)
    other.end(process, code=130)
    assert 0 < other.shown.total() < whole.shown.total()
    other.go("--workers", "2")
    other.assert_same(whole, again=Counter())


def test_a_second_ctrl_c_does_not_wait_for_a_worker_that_hangs(other: Run) -> None:
    process = other.start("--workers", "2", moment="wait/shown/50")
    other.moment(process)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.5)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    wait_until_gone(process.pid)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_one_ctrl_c_ends_a_run_with_a_worker_that_is_stopped(whole: Run, other: Run, workers: str) -> None:
    process = other.start("--workers", workers, moment="say/shown/50")
    os.kill(other.moment(process), signal.SIGSTOP)
    os.killpg(process.pid, signal.SIGINT)
    said = other.end(process, code=130)
    assert "was lost (it did not answer): its images are unfinished" in said
    again = other.last_calls(_AHEAD)
    other.go("--workers", "2")
    other.assert_same(whole, again)


def test_workers_of_a_killed_driver_end_and_the_run_can_be_resumed(whole: Run, other: Run) -> None:
    process = other.start("--workers", "2", moment="say/shown/50")
    other.moment(process)
    process.kill()
    other.end(process, code=-signal.SIGKILL)
    again = other.last_calls(_AHEAD)
    other.go("--workers", "2")
    other.assert_same(whole, again)


def test_a_run_can_be_resumed_with_another_number_of_workers_or_none(whole: Run, other: Run) -> None:
    again: Counter[str] = Counter()
    for options, moment in ((("--workers", "3"), 30), ((), 100), (("--workers", "1"), 100)):
        process = other.start(*options, moment=f"say/shown/{moment}")
        other.moment(process)
        os.killpg(process.pid, signal.SIGINT)
        other.end(process, code=130)
    other.go("--workers", "2")
    other.assert_same(whole, again)


def test_a_worker_whose_model_fails_ends_the_run_with_the_models_error(whole: Run, other: Run) -> None:
    said = " ".join(other.go("--workers", "2", moment="fail/shown/30", code=2).split())
    assert re.match(
        r"error: the model failed on images of shape \(\d, 3, 8, 8\): OSError: the network has gone out", said
    )
    again = other.last_calls(_AHEAD)
    other.go("--workers", "2")
    other.assert_same(whole, again)


def test_a_model_that_is_an_object_is_refused_with_workers() -> None:
    with pytest.raises(InputError, match=r"each worker opens the model by its name.*got an object \(function\)"):
        parsimon.attack(linear, IMAGES, LABELS, 0.02, workers=2)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_an_invalid_number_of_workers_is_refused(workers: Any) -> None:
    with pytest.raises(InputError, match="workers must be a whole number, at least 1"):
        parsimon.attack("robust", IMAGES, LABELS, 0.02, workers=workers)


def test_a_cluster_without_ray_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from parsimon.runs.config import ExecutionOptions\n"
        "from parsimon.runs.workers import worker_pool\n"
        "from parsimon import MissingExtraError\n"
        "try: worker_pool('robust', ExecutionOptions(ray='local'))\n"
        "except MissingExtraError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'parsimon[ray]'" in run.stdout


def test_workers_in_python_have_the_outcomes_of_one_process(bundled: Any) -> None:
    def attack(workers: int | None) -> Any:
        return parsimon.attack("robust", bundled.images, bundled.labels, 8 / 255, budget=50, workers=workers)

    assert attack(2).outcomes == attack(None).outcomes

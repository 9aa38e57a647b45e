"""A run on a Ray cluster is the run of one process, whatever becomes of its nodes; on a real one with two of them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command import run
from counted_run import Run, undisturbed
from parsimon import runs
from parsimon.runs.workers.driver import _AHEAD
from ray_cluster import Cluster

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return undisturbed(tmp_path_factory.mktemp("ray"))


@pytest.fixture
def other(whole: Run, cluster: Cluster, request: pytest.FixtureRequest) -> Run:
    """A run of the same spec."""
    run = Run(whole.folder.parent, request.node.name)
    run.environment = cluster.environment
    return run


def test_the_results_of_two_nodes_are_those_of_one_process(whole: Run, cluster: Cluster, other: Run) -> None:
    other.go("--ray", cluster.address)
    other.assert_same(whole, again=Counter())
    assert len({process for process, _ in other.calls}) == 2


def test_an_evaluation_on_the_cluster_is_that_of_one_process(cluster: Cluster, tmp_path: Path) -> None:
    settings = ("robust", "--images", "12", "--eps", "4/255,16/255", "--budget", "30", "--quiet", "--json")
    for name, where in (("alone", ()), ("on-ray", ("--ray", cluster.address))):
        environment: Any = cluster.environment
        ran = run(tmp_path, "evaluate", *settings, "--out", name, *where, **environment)
        assert ran.returncode == 0, ran.stderr
    alone, on_ray = (runs.load_evaluation(tmp_path / name) for name in ("alone", "on-ray"))
    for one, other in zip(alone.evaluations["robust"], on_ray.evaluations["robust"], strict=True):
        assert {name: result.outcomes for name, result in one.results.items()} == {
            name: result.outcomes for name, result in other.results.items()
        }


def test_a_killed_worker_changes_nothing(whole: Run, cluster: Cluster, other: Run) -> None:
    said = other.go("--ray", cluster.address, moment="kill/shown/30")
    assert "the other workers continue its images" in said
    other.assert_same(whole, again=other.last_calls(_AHEAD))


def test_ctrl_c_stops_all_workers_and_nothing_is_asked_again(whole: Run, cluster: Cluster, other: Run) -> None:
    process = other.start("--ray", cluster.address, moment="say/shown/50")
    other.moment(process)
    os.killpg(process.pid, signal.SIGINT)
    other.end(process, code=130)
    assert 0 < other.shown.total() < whole.shown.total()
    other.go("--ray", cluster.address)
    other.assert_same(whole, again=Counter())


def test_a_worker_whose_model_fails_ends_the_run_with_the_models_error(cluster: Cluster, other: Run) -> None:
    said = other.go("--ray", cluster.address, moment="fail/shown/30", code=2)
    assert "OSError: the network has gone out" in said


def test_more_workers_than_the_cluster_has_cores_are_refused_and_leave_no_trace(cluster: Cluster, other: Run) -> None:
    said = " ".join(other.go("--ray", cluster.address, "--workers", "3", code=2).split())
    assert f"3 workers need one CPU each, and the cluster at {cluster.address} has 2" in said
    assert not other.folder.exists()


def test_a_missing_cluster_is_reported_and_leaves_no_trace(other: Run) -> None:
    said = " ".join(other.go("--ray", "127.0.0.2:9", code=2).split())
    assert "error: cannot connect to a Ray cluster at 127.0.0.2:9" in said
    assert not other.folder.exists()


def test_a_local_cluster_is_started_and_ended(whole: Run, other: Run) -> None:
    other.go("--ray", "local", "--workers", "2")
    other.assert_same(whole, again=Counter())


# The last test: the cluster has one node less from here on.
def test_a_killed_node_changes_nothing_and_the_run_ends_by_itself(whole: Run, cluster: Cluster, other: Run) -> None:
    process = other.start("--ray", cluster.address, moment="say/shown/50")
    other.moment(process)
    cluster.kill_second_node()
    assert "the other workers continue its images" in other.end(process)
    other.assert_same(whole, again=other.last_calls(_AHEAD))

"""Models behind real inference servers, with real trouble between; `make test-servers` sets them up.

Whatever happens on the way, a run comes to what it comes to in process, and every answered image is counted once.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parsimon
from parsimon import runs, zoo
from parsimon.core.model import Traffic
from parsimon.errors import InputError, ModelError, OutageError
from parsimon.models import as_model
from parsimon.models.remote.base import HEADERS, RemoteModel
from parsimon.runs.config import RunConfig
from running_servers import NAMES, Server, proxy, running

pytestmark = pytest.mark.servers

PROTOCOLS = ("grpc", "http")
KEY = "Bearer a-key-that-nobody-sees"
# More than a busy machine takes for a batch; an answer that is held back is held back for longer.
TIMEOUT, STALL = 3, 4
BATCH = 16
COUNT = 32  # images: as text, in which MLServer wants them over HTTP, each takes 10 ms and more


@pytest.fixture(scope="module", params=NAMES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture(scope="module")
def images() -> NDArray[np.float32]:
    return zoo.images()[0][:COUNT]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    images, labels = (array[:COUNT] for array in zoo.images())
    data = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(data, images=images, labels=labels)
    return RunConfig(data=str(data), images=10, budget=60, batch_size=BATCH)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, spec: RunConfig) -> Path:
    """The run in process."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    runs.run(spec, folder)
    return folder


def attack(model: Any, **settings: Any) -> parsimon.Result:
    images, labels = (array[:COUNT] for array in zoo.images())
    return parsimon.attack(model, images, labels, 8 / 255, budget=30, batch_size=BATCH, **settings)


def opened(url: str) -> RemoteModel:
    model = as_model(url)
    assert isinstance(model, RemoteModel)
    return model


def outcomes(folder: Path) -> dict[str, Any]:
    return {name: result.outcomes for name, result in runs.load(folder).results.items()}


def traffic(folder: Path) -> Traffic:
    (result,) = runs.load(folder).results.values()
    assert result.traffic is not None
    return result.traffic


# --- scores ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["robust", "robust-nhwc"])
@pytest.mark.parametrize("settings", ["", "batch=7&in_flight=3"])
def test_scores_are_those_of_the_model_in_process(
    server: Server, protocol: str, name: str, settings: str, images: NDArray[np.float32]
) -> None:
    model = opened(server.url(protocol, name, settings=settings))
    np.testing.assert_allclose(model(images), as_model("robust")(images), rtol=0, atol=1e-5)
    assert getattr(model, "image_shape", None) == (3, 32, 32)
    assert model.traffic == Traffic(len(images), len(images))


def test_the_server_says_how_many_images_it_takes(server: Server, tmp_path: Path, images: NDArray[np.float32]) -> None:
    """Triton's `robust-nhwc` takes 16 at once; MLServer does not say, and is shown all of them."""
    for protocol in PROTOCOLS:
        with proxy(protocol, getattr(server, protocol), tmp_path) as between:
            opened(server.url(protocol, "robust-nhwc", between.port))(images)
            sizes = sorted(each["rows"] for each in between.shown)
        assert sizes == ([16, 16] if server.name == "triton" else [32])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_attack_comes_to_what_it_comes_to_in_process(server: Server, protocol: str) -> None:
    here, there = attack("robust"), attack(server.url(protocol))
    assert there.outcomes == here.outcomes
    assert here.traffic is None
    shown = there.counters.rows + there.counters.padding
    assert there.traffic == Traffic(shown, shown)
    assert f"Images sent to the server: Thrift {shown:,} attempted, {shown:,} answered." in str(there)


def test_without_filling_only_what_is_asked_is_sent(server: Server) -> None:
    here, there = attack("robust"), attack(server.url("grpc", settings="fill=false"))
    assert there.outcomes == here.outcomes  # of this network, whose rounding does not depend on the batch
    assert there.counters.padding == 0
    assert there.traffic == Traffic(there.counters.rows, there.counters.rows)


def test_pixels_of_8_bits_need_8_bit_mode(server: Server) -> None:
    with pytest.raises(InputError, match="8-bit mode"):
        attack(server.url("grpc", "robust-nhwc"))
    there = attack(server.url("grpc", "robust-nhwc"), eight_bit=True)
    assert there.outcomes == attack("robust", eight_bit=True).outcomes


def test_check_tells_what_it_tells_of_other_models(server: Server, spec: RunConfig) -> None:
    for model in ("robust", "robust-nhwc"):
        run = command("check", "--model", server.url("grpc", model), "--batch-size", "16", "--data", spec.data)
        assert run.returncode == 0, run.stdout
        assert "clean accuracy" in run.stdout
        assert "error" not in run.stdout


# --- trouble --------------------------------------------------------------------------------------------------------

FAULTS = {
    "grpc": "UNAVAILABLE,RESOURCE_EXHAUSTED,INTERNAL,ABORTED,garbage,nan,slow",
    "http": "reset,half,429,503,500,garbage,nan,slow",
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("settings", ["", "&batch=5&in_flight=4"])
def test_a_fault_in_every_fifth_request_changes_nothing_and_is_counted(
    server: Server, tmp_path: Path, protocol: str, settings: str
) -> None:
    options = ("--share", "0.2", "--faults", FAULTS[protocol], "--stall", str(STALL), "--seed", "3")
    with proxy(protocol, getattr(server, protocol), tmp_path, *options) as between:
        model = opened(server.url(protocol, port=between.port, settings=f"timeout={TIMEOUT}{settings}"))
        there = attack(model)
        shown = between.shown
    assert there.outcomes == attack("robust").outcomes
    faults = [each["fault"] for each in shown if each["fault"]]
    assert len(shown) / 10 < len(faults) < len(shown) / 3
    assert len(set(faults)) > 3  # of those that could be drawn
    # The proxy has counted too: each image as often as it came, and those that it let be answered.
    assert model.traffic.attempted == sum(each["rows"] for each in shown)
    assert model.traffic.answered == sum(each["rows"] for each in shown if not each["fault"])
    assert there.traffic is not None
    assert there.traffic.answered == there.counters.rows + there.counters.padding


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_broken_connections_change_nothing(server: Server, tmp_path: Path, protocol: str) -> None:
    options = ("--share", "0.2", "--faults", "refused,reset,half", "--seed", "5")
    with proxy("tcp", getattr(server, protocol), tmp_path, *options) as between:
        there = attack(server.url(protocol, port=between.port, settings=f"timeout={TIMEOUT}"))
        faults = [each["fault"] for each in between.told if each["fault"]]
    assert len(set(faults)) == 3
    assert there.outcomes == attack("robust").outcomes
    assert there.traffic is not None
    assert there.traffic.answered == there.counters.rows + there.counters.padding
    assert there.traffic.attempted > there.traffic.answered


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("settings", ["", "&batch=5"])
def test_a_model_that_always_returns_nan_is_the_models_failure(
    server: Server, tmp_path: Path, protocol: str, settings: str
) -> None:
    with proxy(protocol, getattr(server, protocol), tmp_path, "--share", "1", "--faults", "nan") as between:
        with pytest.raises(ModelError, match=r"5 invalid responses.*NaN") as caught:
            attack(server.url(protocol, port=between.port, settings=f"patience=30{settings}"))
        assert not isinstance(caught.value, OutageError)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_will_be_refused_again_is_asked_once(server: Server, tmp_path: Path, protocol: str) -> None:
    with proxy(protocol, getattr(server, protocol), tmp_path) as between:
        with pytest.raises(ModelError, match="no-such-model") as caught:
            as_model(server.url(protocol, "no-such-model", between.port))
        assert not isinstance(caught.value, OutageError)
        assert sum("rows" in each for each in between.told) <= 2  # about the server, and about the model


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_image_of_another_shape_is_refused_before_it_is_sent(server: Server, protocol: str) -> None:
    with pytest.raises(InputError, match=r"\(3, 32, 32\); got \(3, 16, 16\)"):
        parsimon.attack(server.url(protocol), np.zeros((2, 3, 16, 16), np.float32), [0, 1], 8 / 255)


# --- several requests, and their pace -------------------------------------------------------------------------------


def test_several_requests_are_in_flight_and_no_more_than_allowed(
    server: Server, tmp_path: Path, images: NDArray[np.float32]
) -> None:
    options = ("--share", "1", "--faults", "slow", "--stall", "0.5")
    with proxy("http", server.http, tmp_path, *options) as between:
        opened(server.url("http", port=between.port, settings="batch=4&in_flight=4"))(images)
        times = [(each["begun"], each["ended"]) for each in between.told if "ended" in each][-8:]
        assert len(between.shown) == 8
    at_once = [sum(begun <= moment < ended for begun, ended in times) for moment, _ in times]
    assert 1 < max(at_once) <= 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requests_are_begun_no_faster_than_the_rate(
    server: Server, tmp_path: Path, protocol: str, images: NDArray[np.float32]
) -> None:
    with proxy(protocol, getattr(server, protocol), tmp_path) as between:
        model = opened(server.url(protocol, port=between.port, settings="batch=4&in_flight=8&rate=20"))
        model(images[:4])  # opens a connection, so that the next request is not held up
        model(images)
        moments = sorted(each["begun"] for each in between.shown)[1:]
    assert len(moments) == 8
    assert moments[-1] - moments[0] >= 6 / 20  # seven intervals, one of them for a first request that arrives late


# --- keys and certificates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_key_comes_from_the_environment_and_is_seen_nowhere(
    server: Server, tmp_path: Path, protocol: str, spec: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = KEY.partition(" ")[2]
    with proxy(protocol, getattr(server, protocol), tmp_path, "--key", KEY) as between:
        url = server.url(protocol, port=between.port)
        with pytest.raises(ModelError, match=HEADERS):
            as_model(url)
        monkeypatch.setenv(HEADERS, f"Authorization: {KEY}-and-more")
        with pytest.raises(ModelError, match=r"wrong key: \*\*\*") as caught:  # the proxy repeats what came
            as_model(url)
        assert secret not in str(caught.value)
        monkeypatch.setenv(HEADERS, f"X-Other: something\nAuthorization: {KEY}\n")
        options = ("--data", spec.data, "--images", "2", "--budget", "20", "--out", str(tmp_path / "run"))
        run = command("run", "--model", url, *options)
        assert run.returncode == 0, run.stderr
        assert secret not in repr(as_model(url)) + run.stdout + run.stderr
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert {"spec.toml", "environment.json", "run.sqlite"} <= {file.name for file in files}
    for file in files:
        assert secret.encode() not in file.read_bytes()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_certificates_are_verified(
    server: Server, tmp_path: Path, protocol: str, images: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(certificate), "-out", str(tmp_path / "public")),
        ],
        check=True,
        capture_output=True,
    )
    with certificate.open("a") as both:
        both.write((tmp_path / "public").read_text())
    with proxy(protocol, getattr(server, protocol), tmp_path, "--certificate", str(certificate)) as between:
        url = server.url(f"{protocol}s", port=between.port, settings="patience=2")
        with pytest.raises(ModelError, match=r"SSL_CERT_FILE|certificate|handshake"):
            as_model(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "public"))
        assert opened(url)(images).shape == (COUNT, 10)


# --- outages --------------------------------------------------------------------------------------------------------


SLOWED = ("--stall", "0.05", "--share", "1", "--faults", "slow")  # so that a run is still under way when it is met


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "parsimon", *arguments], capture_output=True, text=True, check=False)


def begin(spec: RunConfig, folder: Path) -> subprocess.Popen[str]:
    folder.mkdir()
    (folder.parent / f"{folder.name}.toml").write_text(spec.toml())
    arguments = ["-m", "parsimon", "run", str(folder.parent / f"{folder.name}.toml"), "--out", str(folder)]
    return subprocess.Popen([sys.executable, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for_calls(folder: Path, calls: int, process: subprocess.Popen[str]) -> None:
    """Until a run has had so many model calls."""
    while process.poll() is None:
        try:
            if traffic(folder).answered >= calls * BATCH:
                return
        except (OSError, AssertionError, ValueError):  # not begun yet
            pass
        time.sleep(0.02)
    raise AssertionError(f"the run ended before: {process.communicate()}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_outage_pauses_the_run_and_resume_goes_on(
    server: Server, tmp_path: Path, protocol: str, spec: RunConfig, undisturbed: Path
) -> None:
    folder = tmp_path / "run"
    with proxy(protocol, getattr(server, protocol), tmp_path, *SLOWED) as slowed:
        port = slowed.port
        url = server.url(protocol, port=port, settings="patience=1")
        process = begin(spec.replace(model=url), folder)
        wait_for_calls(folder, 5, process)
    # The proxy is gone: nobody listens.
    out, err = process.communicate(timeout=100)
    assert process.returncode == 75, err
    assert re.search(r"has not answered in 1 seconds; the last of \d+ attempts: ", err)
    assert f"paused, and no charged query is lost. Continue with: parsimon resume {folder}" in " ".join(err.split())
    assert "Traceback" not in out + err
    before = traffic(folder)
    assert before.attempted > before.answered > 0

    still_out = command("resume", str(folder))
    assert still_out.returncode == 75
    assert "Traceback" not in still_out.stderr

    with proxy(protocol, getattr(server, protocol), tmp_path, listen=port) as back:
        resumed = command("resume", str(folder))
        shown = sum(each["rows"] for each in back.shown)
    assert resumed.returncode == 0, resumed.stderr
    assert outcomes(folder) == outcomes(undisturbed)
    after = traffic(folder)
    clean = shown - (after.answered - before.answered)  # seen again before the run goes on, and no query
    assert clean >= COUNT
    assert after.attempted - before.attempted == after.answered - before.answered
    assert f"Thrift {after.attempted:,} attempted, {after.answered:,} answered." in resumed.stdout


def test_a_restart_in_the_middle_is_waited_for(
    server: Server, tmp_path: Path, spec: RunConfig, undisturbed: Path
) -> None:
    folder = tmp_path / "run"
    with proxy("grpc", server.grpc, tmp_path, *SLOWED) as between:
        url = server.url("grpc", port=between.port, settings="patience=200")
        process = begin(spec.replace(model=url), folder)
        wait_for_calls(folder, 5, process)
        server.stop()
        server.start()
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert outcomes(folder) == outcomes(undisturbed)
    assert traffic(folder).attempted > traffic(folder).answered
    assert "attempted" in out


def test_ctrl_c_twice_does_not_wait_for_a_server_that_is_gone(server: Server, tmp_path: Path, spec: RunConfig) -> None:
    folder = tmp_path / "run"
    with proxy("grpc", server.grpc, tmp_path, *SLOWED) as between:
        url = server.url("grpc", port=between.port, settings="patience=1000&batch=4")
        process = begin(spec.replace(model=url), folder)
        wait_for_calls(folder, 5, process)
    time.sleep(0.5)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    process.communicate(timeout=300)  # or else it waits for a quarter of an hour
    assert process.returncode != 0


def test_no_server_at_all_is_said_soon() -> None:
    with pytest.raises(OutageError, match=r"127\.0\.0\.1:1/"):
        as_model("grpc://127.0.0.1:1/robust")

"""Real servers and the proxies before them, each a process of its own on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsimon import zoo
from parsimon.errors import OutageError
from parsimon.models import as_model

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "servers"
NAMES = os.environ.get("PARSIMON_SERVERS", "mlserver triton").split()

_IMAGES = {
    "robust": {"datatype": "FP32", "shape": [-1, 3, 32, 32]},
    "robust-nhwc": {"datatype": "UINT8", "shape": [-1, 32, 32, 3]},
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """An inference server with the bundled network as `robust` and, of 8 bits and channels last, `robust-nhwc`."""

    name: str
    folder: Path
    grpc: int
    http: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and come back when it answers."""
        python = ROOT / ".venv" / self.name / "bin" / "python"
        if not python.exists():
            raise FileNotFoundError(f"{self.name} is not installed in {python.parent.parent}: make test-servers")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS)}
        if self.name == "triton":
            environment["LD_LIBRARY_PATH"] = str(sysconfig.get_config_var("LIBDIR"))
            script = [str(SCRIPTS / "triton_server.py"), str(zoo.path("robust")), str(self.grpc), str(self.http)]
        else:
            script = [str(python.with_name("mlserver")), "start", str(self._mlserver_folder())]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(python), *script], env=environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, f"{self.name} to answer; see {self.folder}", self.process)

    def stop(self) -> None:
        """Kill it and whatever it has started; nothing is said to whoever waits for an answer."""
        if self.process is not None:
            with suppress(ProcessLookupError):  # it may have ended by itself
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def url(self, protocol: str, model: str = "robust", port: int | None = None, settings: str = "") -> str:
        port = port or (self.grpc if protocol.startswith("grpc") else self.http)
        path = model if protocol.startswith("grpc") else f"v2/models/{model}"
        return f"{protocol}://127.0.0.1:{port}/{path}{settings and '?'}{settings}"

    def _answers(self) -> bool:
        try:
            for protocol in ("grpc", "http"):
                for model in _IMAGES:
                    as_model(self.url(protocol, model, settings="patience=1"))
        except OutageError:
            return False
        except Exception as error:
            return _loading(error)
        return True

    def _mlserver_folder(self) -> Path:
        folder = self.folder / "mlserver"
        server = {
            "host": "127.0.0.1",
            "http_port": self.http,
            "grpc_port": self.grpc,
            "metrics_endpoint": None,
            "parallel_workers": 0,
            "debug": False,
        }
        folder.mkdir(exist_ok=True)
        (folder / "settings.json").write_text(json.dumps(server))
        for model, images in _IMAGES.items():
            described = {
                "name": model,
                "implementation": "mlserver_runtime.OnnxModel",
                "inputs": [{"name": "images", **images}],
                "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 10]}],
                "parameters": {"uri": str(zoo.path("robust"))},
            }
            (folder / model).mkdir(exist_ok=True)
            (folder / model / "model-settings.json").write_text(json.dumps(described))
        return folder


def _loading(error: Exception) -> bool:
    """A server that is up may not have all of its models yet; anything else is not to be waited for."""
    if not any(word in str(error) for word in ("NOT_FOUND", "404", "not ready", "400", "INVALID_ARGUMENT")):
        raise error
    return False


@contextmanager
def running(name: str, folder: Path) -> Iterator[Server]:
    server = Server(name, folder, free_port(), free_port())
    try:
        server.start()
        yield server
    finally:
        server.stop()


@dataclass
class Proxy:
    """What stands between a client and a server."""

    port: int
    log: Path

    @property
    def told(self) -> list[dict[str, Any]]:
        """Each request when it comes, with its `rows` if it shows images; of HTTP, also when its answer is ready."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    @property
    def shown(self) -> list[dict[str, Any]]:
        return [each for each in self.told if each.get("rows")]


@contextmanager
def proxy(kind: str, to: int, folder: Path, *options: str, listen: int | None = None) -> Iterator[Proxy]:
    """One of the scripts in `servers`: http, grpc or tcp."""
    port = listen or free_port()
    log = folder / f"{kind}-{port}.jsonl"
    command = [sys.executable, str(SCRIPTS / f"{kind}_proxy.py"), "--listen", str(port), "--to", str(to), *options]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file)
    try:
        wait_until(lambda: listens(port), f"the proxy on port {port}", process)
        yield Proxy(port, log)
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(happens: Callable[[], bool], what: str, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        if process.poll() is not None:
            raise RuntimeError(f"the process ended while this waited for {what}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{seconds:g} seconds were not enough for {what}")
        time.sleep(0.1)

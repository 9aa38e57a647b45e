"""A Ray cluster of two nodes with one core each on this machine, with its own token; a context manager."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

HEAD, SECOND = "127.0.0.2", "127.0.0.3"  # Ray replaces 127.0.0.1 by the machine's address
_SECONDS_TO_START = 240  # on a busy machine


class Cluster:
    """Two nodes, each a tree of processes. They are killed one by one: `ray stop` would end every cluster here."""

    def __init__(self) -> None:
        self.address = f"{HEAD}:{_free_port()}"
        # Not in the test's folder: the paths of sockets must be short.
        self._folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
        self.environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": str(_SECONDS_TO_START),
        }
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        port = self.address.partition(":")[2]
        others = ["--include-dashboard=false", f"--ray-client-server-port={_free_port()}"]
        try:
            self._start(HEAD, "--head", f"--port={port}", f"--temp-dir={self._folder}", *others)
            self._start(SECOND, f"--address={self.address}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, node: str, *arguments: str) -> None:
        ray = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=1"]
        command = [*ray, f"--node-ip-address={node}", f"--object-store-memory={100 * 2**20}", *arguments]
        log = self._folder / f"{node}.log"
        with log.open("wb") as file:
            self._nodes[node] = subprocess.Popen(command, env=self.environment, stdout=file, stderr=file)
        deadline = time.monotonic() + _SECONDS_TO_START
        while b"Ray runtime started" not in (said := log.read_bytes()):
            assert self._nodes[node].poll() is None, said.decode()
            assert time.monotonic() < deadline, said.decode()
            time.sleep(0.1)

    def kill_second_node(self) -> None:
        """Kill all processes of a node at once, as when a machine fails."""
        self._kill(SECOND)

    def _kill(self, node: str) -> None:
        root = self._nodes.pop(node)
        for process in [root.pid, *_descendants(root.pid)]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        root.wait()

    def __exit__(self, *_: object) -> None:
        for node in [*self._nodes]:
            self._kill(node)
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HEAD, 0))
        port: int = free.getsockname()[1]
        return port


def _descendants(process: int) -> Iterator[int]:
    children = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just ended
            children[int(path.read_text().rpartition(")")[2].split()[1])].append(int(path.parent.name))
    waiting = [process]
    while waiting:
        found = children[waiting.pop()]
        yield from found
        waiting += found

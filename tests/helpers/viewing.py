"""A live page's server in this process, and requests to it as they are, without a client that tidies them up."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from parsimon.view.server import Viewer


@contextmanager
def serving(folder: Path) -> Iterator[Viewer]:
    with Viewer(folder) as viewer:
        thread = threading.Thread(target=viewer.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield viewer
        finally:
            viewer.shutdown()
            thread.join()


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    viewer: Viewer,
    path: str,
    *,
    method: str = "GET",
    token: bool = True,
    body: bytes | None = None,
    headers: Mapping[str, str | None] = {},
    **more: str | None,
) -> Reply:
    """A request, written by hand; a header that is None is left out."""
    host, port = viewer.server_address[:2]
    lines: dict[str, str | None] = {"Host": f"127.0.0.1:{port}", "Connection": "close"}
    if token:
        lines["Cookie"] = f"{viewer.cookie}={viewer.token}"
    if method == "POST":
        lines |= {"Origin": f"http://127.0.0.1:{port}", "Content-Length": str(len(body or b""))}
    lines |= {name.replace("_", "-"): value for name, value in {**headers, **more}.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    with socket.create_connection((str(host), int(port)), timeout=60) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b""))
        content = b"".join(iter(lambda: connection.recv(65536), b""))
    top, _, rest = content.partition(b"\r\n\r\n")
    first, *others = top.decode("latin-1").split("\r\n")
    told = {name.lower(): value for name, _, value in (line.partition(": ") for line in others)}
    return Reply(int(first.split()[1]), told, _unchunked(rest) if "transfer-encoding" in told else rest)


def _unchunked(body: bytes) -> bytes:
    content = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        content += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return content

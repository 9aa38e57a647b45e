"""A package registry on this machine, with the two layouts that real ones have, and packages to put into it."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def tarball(files: Mapping[str, bytes], folder: str = "package") -> bytes:
    """As npm and Python's source distributions have it: everything in one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def wheel(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npm_package(content: bytes, members: list[str], name: str = "toy") -> dict[str, Any]:
    """What a card says of a package in npm's registry."""
    return _package("npm", name, f"{name}-1.0.0.tgz", content, members)


def wheel_package(content: bytes, members: list[str], name: str = "toy") -> dict[str, Any]:
    return _package("pypi", name, f"{name}-1.0.0-py3-none-any.whl", content, members)


def _package(registry: str, name: str, file: str, content: bytes, members: list[str]) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {
        "registry": registry,
        "name": name,
        "version": "1.0.0",
        "file": file,
        "bytes": len(content),
        "sha256": digest,
        "members": members,
    }


@dataclass
class Registry:
    """What is served, and how.

    Attributes:
        files: By file name.
        asked: The paths that were asked for, in order.
        account: If set, the `user:password` without which nothing is given.
        send: Writes a file's content to a connection; it may be slow, or stop half-way.
    """

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    account: str | None = None
    redirect_files_to: str | None = None
    authorizations: list[str | None] = field(default_factory=list)
    send: Callable[[Any, bytes], object] = lambda connection, content: connection.write(content)

    def address(self, account: str = "") -> str:
        return f"http://{account}127.0.0.1:{self.port}"

    def environment(self, account: str = "") -> dict[str, str]:
        """For pip and npm to use this registry."""
        address = self.address(account)
        return {"npm_config_registry": f"{address}/npm", "PIP_INDEX_URL": f"{address}/simple"}


@contextmanager
def served() -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            registry.authorizations.append(self.headers.get("Authorization"))
            name = self.path.rsplit("/", 1)[-1]
            if registry.account and self.headers.get("Authorization") != _basic(registry.account):
                self.send_error(401)
            elif self.path.startswith("/simple/") and not name:  # an index has links to files that lie elsewhere
                links = "".join(f'<a href="../../files/{file}#sha256=0&amp;x">{file}</a>' for file in registry.files)
                self._answer(links.encode(), "text/html", lambda connection, content: connection.write(content))
            elif registry.redirect_files_to and not self.path.startswith("/elsewhere/"):
                self.send_response(302)
                self.send_header("Location", f"{registry.redirect_files_to}/elsewhere/{name}")
                self.end_headers()
            elif name in registry.files and self.path.startswith(("/npm/", "/files/", "/elsewhere/")):
                self._answer(registry.files[name], "application/octet-stream", registry.send)
            else:
                self.send_error(404)

        def _answer(self, content: bytes, kind: str, send: Callable[[Any, bytes], object]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            send(self.wfile, content)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # a client that was killed closes its connection

    server = Server(("127.0.0.1", 0), Handler)
    registry.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _basic(account: str) -> str:
    return f"Basic {base64.b64encode(account.encode()).decode()}"

"""The server of the live page: who may send requests, and the replies.

It listens on this machine only, and answers only requests that

- name it as 127.0.0.1 or localhost in `Host`, so that no site can reach it under its own name (DNS rebinding);
- carry the token from the printed address, or the cookie that replaces it: hidden from scripts, and sent from
  this page only;
- come from its own page (`Origin`), if they send a picture.

The list of paths is fixed, and none names a file. Every client gets a status and a sentence, and the terminal stays
quiet. The number of connections is limited, and each request must arrive in time.
"""

from __future__ import annotations

import errno
import io
import json
import re
import secrets
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, parse_qs, urlsplit

from parsimon.errors import InputError, ParsimonError, first_line, quote
from parsimon.report.page import assemble, page_file
from parsimon.view import stepwise
from parsimon.view.watch import Kind, Watch

_HOST = "127.0.0.1"
_TIMEOUT = 30  # seconds for a request to arrive, and for an earlier attack to end
_CONNECTIONS = 32  # a browser opens six
_MESSAGE = 200  # characters of a refusal
_NOTHING = "there is nothing at this address"
_OWN = "run"  # the network of the run itself
_BUSY = b'{"error":"too many connections: try again"}'
_PICTURE = re.compile(r"/picture/(original|perturbation|adversarial)/([0-9]{1,4})/([0-9]{1,9})")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Viewer(ThreadingHTTPServer):
    """Serve the live page of the run in a folder; port 0 takes any free port."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            what = "is taken by another program" if error.errno == errno.EADDRINUSE else "is not permitted"
            raise InputError(f"port {port} {what}: choose another with --port, or omit it for a free one") from error
        self.token = secrets.token_urlsafe(32)
        self.watch = Watch(folder)
        self.attacking = threading.Semaphore()  # one picture at a time, including its decoding
        self._free = threading.Semaphore(_CONNECTIONS)
        self.page, self.policy = _page()

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without a name lookup
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    @property
    def address(self) -> str:
        """The address of the page, with the token."""
        return f"http://{_HOST}:{self.server_port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The accepted values of `Host`."""
        return f"{_HOST}:{self.server_port}", f"localhost:{self.server_port}"

    @property
    def cookie(self) -> str:
        """The name of the cookie, with the port, since browsers share cookies between ports."""
        return f"parsimon-{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Reply in a thread, or refuse if too many connections are open."""
        if not self._free.acquire(blocking=False):
            _refuse_busy(request)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread started that would release it
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that went away."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _refuse_busy(connection: socket.socket) -> None:
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(_BUSY)}\r\n"
    try:
        connection.setblocking(False)
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode() + _BUSY)
        connection.recv(65536)  # closing with unread bytes would reset the connection and lose the reply
    except OSError:
        pass


class _UntilDeadline(io.RawIOBase):
    """Reads from a socket until a deadline; the socket's own timeout restarts with each byte."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request did not arrive in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


def _page() -> tuple[str, str]:
    scripts = [
        page_file(name) for name in ("parts.js", "headline.js", "chart.js", "plot.js", "closest.js", "gallery.js")
    ]
    scripts += [page_file(name, __package__) for name in ("frames.js", "stepper.js", "live.js")]
    styles = [page_file("page.css"), page_file("live.css", __package__)]
    menus = {"networks": stepwise.NETWORKS, "attacks": stepwise.BLACK_BOX, "radii": stepwise.RADII}
    data = {**menus, "own": _OWN, "largest": stepwise.LARGEST}
    template = page_file("live.html", __package__)
    return assemble(template, styles, scripts, data, "img-src 'self' data:; connect-src 'self'")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "parsimon", ""
    default_request_version = "HTTP/1.0"  # for requests without one; HTTP/0.9 would get no status
    _begun = False  # whether the reply has begun; there is one per connection

    @property
    def viewer(self) -> Viewer:
        return cast("Viewer", self.server)

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_UntilDeadline(self.connection, _TIMEOUT))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (its name in the base class)
        """Print nothing: the terminal is the user's, and addresses contain the token."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Refuse what the base class refuses, in the same form as everything else."""
        self._refuse(HTTPStatus(code), (message or HTTPStatus(code).phrase)[:_MESSAGE])

    def do_GET(self) -> None:
        self._respond(self._get)

    def do_POST(self) -> None:
        self._respond(self._post)

    def _get(self) -> None:
        asked = self._asked()
        if asked.path == "/":
            cookie = f"{self.viewer.cookie}={self.viewer.token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(self.viewer.page.encode(), "text/html; charset=utf-8", {"Set-Cookie": cookie})
        elif asked.path == "/state":
            self._send_json(self.viewer.watch.state(_number(asked, "after")))
        elif found := _PICTURE.fullmatch(asked.path):
            picture = self.viewer.watch.picture(cast("Kind", found[1]), int(found[2]), int(found[3]))
            if picture is None:
                raise _RefusedError(HTTPStatus.NOT_FOUND, "the run has no such picture")
            self._send(picture, "image/png")
        else:
            raise _RefusedError(HTTPStatus.NOT_FOUND, _NOTHING)

    def _post(self) -> None:
        asked = self._asked()
        if self.headers.get("Origin") not in [f"http://{host}" for host in self.viewer.hosts]:
            raise _RefusedError(HTTPStatus.FORBIDDEN, "a picture must come from the page itself")
        if asked.path != "/attack":
            raise _RefusedError(HTTPStatus.NOT_FOUND, _NOTHING)
        self._attack(asked)

    def _asked(self) -> SplitResult:
        """Return the requested address, if the client may ask."""
        for name in ("Host", "Origin", "Content-Length"):
            if len(self.headers.get_all(name, [])) > 1:
                raise _RefusedError(HTTPStatus.BAD_REQUEST, f"the header {name} must be given once")
        if self.headers.get("Host") not in self.viewer.hosts:
            raise _RefusedError(HTTPStatus.FORBIDDEN, "this server answers only as 127.0.0.1 or localhost")
        try:
            asked = urlsplit(self.path)
        except ValueError:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the address cannot be read") from None
        given = [*parse_qs(asked.query).get("token", []), *self._cookies()]
        if not any(secrets.compare_digest(each.encode(), self.viewer.token.encode()) for each in given):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "open the page by the address that `parsimon view` printed")
        return asked

    def _cookies(self) -> Iterator[str]:
        try:
            cookies = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return
        if self.viewer.cookie in cookies:
            yield cookies[self.viewer.cookie].value

    def _attack(self, asked: SplitResult) -> None:
        """Send every step of an attack as a line of JSON, as soon as it is known."""
        settings = parse_qs(asked.query)
        network, attack, radius = (settings.get(name, [""])[0] for name in ("network", "attack", "radius"))
        for name, given, known in (
            ("network", network, (*stepwise.NETWORKS, _OWN)),
            ("attack", attack, stepwise.BLACK_BOX),
            ("radius", radius, stepwise.RADII),
        ):
            if given not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}; got {quote(given)}")
        content = self._body()
        if not self.viewer.attacking.acquire(timeout=_TIMEOUT):
            raise InputError("another picture is being attacked: try again when it is done")
        try:
            target = self.viewer.watch.target() if network == _OWN else stepwise.bundled(network)
            if target is None:
                raise InputError("the run's own model cannot be opened here: choose another network")
            image = target.opened(content) if content else target.sample(_number(asked, "bundled"))
            self._stream(stepwise.steps(image, target, attack, radius))
        finally:
            self.viewer.attacking.release()

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,12}", length):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "the request must state the size of the picture")
        if int(length) > stepwise.LARGEST:
            most = f"{stepwise.LARGEST // 2**20} MB"
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the picture's file is larger than {most}")
        return self.rfile.read(int(length))

    def _stream(self, steps: Iterator[stepwise.Step]) -> None:
        first = next(steps)  # fails here, while a status can still say so, if it cannot be done
        self._begin(HTTPStatus.OK, {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"})
        step: stepwise.Step | None = first
        while step is not None:
            line = json.dumps(step, separators=(",", ":")).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            try:
                step = next(steps, None)
            except Exception as error:  # the status is sent already, but a sentence can follow
                step = {"error": _refusal(error)[1]}
        self.wfile.write(b"0\r\n\r\n")

    def _respond(self, respond: Callable[[], None]) -> None:
        """Send the reply, or a sentence that says why there is none."""
        try:
            respond()
        except (ConnectionError, TimeoutError):  # the client is gone, or too slow
            raise
        except Exception as error:
            if self._begun:  # too late for a status: the reply ends incomplete
                self.close_connection = True
            else:
                self._refuse(*_refusal(error))

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self._send_json({"error": sentence}, status)

    def _send_json(self, data: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(data, separators=(",", ":")).encode(), "application/json", status=status)

    def _send(
        self, content: bytes, kind: str, headers: dict[str, str] | None = None, status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        self._begin(status, {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self._begun = True
        self.connection.settimeout(_TIMEOUT)  # for each part of the reply
        self.send_response(status)
        policy = f"{self.viewer.policy}; frame-ancestors 'none'"
        for name, value in {**_HEADERS, "Content-Security-Policy": policy, **headers}.items():
            self.send_header(name, value)
        # One request per connection: the rest of a refused one is not read, and no thread waits for more.
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def _refusal(error: Exception) -> tuple[HTTPStatus, str]:
    if isinstance(error, _RefusedError):
        return error.status, str(error)
    if isinstance(error, ParsimonError):
        return HTTPStatus.BAD_REQUEST, str(error)
    if isinstance(error, FileNotFoundError):
        return HTTPStatus.NOT_FOUND, f"a file of the run is missing: {first_line(error)}"
    return HTTPStatus.INTERNAL_SERVER_ERROR, f"this cannot be shown: {first_line(error)}"


def _number(asked: SplitResult, name: str) -> int:
    text = parse_qs(asked.query).get(name, ["0"])[0]
    if not re.fullmatch("[0-9]{1,9}", text):
        raise InputError(f"{name} must be a whole number")
    return int(text)

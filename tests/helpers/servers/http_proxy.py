"""A proxy before an HTTP server that injects faults: see `faults.py` for its options.

Faults: reset, half, slow, 429, 503, 500, garbage, nan.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import struct
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from faults import Faults, options_of

OPTIONS = options_of()
FAULTS = Faults(OPTIONS)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers["content-length"])))

    def _serve(self, body: bytes) -> None:
        begun = time.monotonic()
        rows = _rows(self.path, self.headers.get("inference-header-content-length"), body)
        if OPTIONS.key is not None and self.headers.get("authorization") != OPTIONS.key:
            FAULTS.tell(rows=rows, fault="401", begun=begun)
            self._answer(401, b'{"error":"wrong key: %s"}' % str(self.headers.get("authorization")).encode(), {})
            return
        fault = FAULTS.draw() if rows else None
        FAULTS.tell(rows=rows, fault=fault, begun=begun)
        if fault in ("429", "503", "500"):
            self._answer(int(fault), b"try later", {})
        elif fault == "garbage":
            self._answer(200, bytes(range(256)), {})
        elif fault == "reset":
            # To close a socket so sends a reset, not an end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
        else:
            self._forward(body, fault, begun)

    def _forward(self, body: bytes, fault: str | None, begun: float) -> None:
        upstream = http.client.HTTPConnection("127.0.0.1", OPTIONS.to)
        upstream.request(self.command, self.path, body, dict(self.headers.items()))
        response = upstream.getresponse()
        answer = response.read()
        upstream.close()
        length = response.headers.get("inference-header-content-length")
        if fault == "slow":
            time.sleep(OPTIONS.stall)
        if fault == "nan":
            answer = _with_nan(answer, length)
        headers = {"inference-header-content-length": length} if length else {}
        FAULTS.tell(begun=begun, ended=time.monotonic())
        self._answer(response.status, answer, headers, half=fault == "half")

    def _answer(self, status: int, body: bytes, headers: dict[str, str], *, half: bool = False) -> None:
        try:
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if half else body)
        except OSError:  # a client that did not wait
            half = True
        if half:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Only what FAULTS tells goes out."""


def _rows(path: str, header_length: str | None, body: bytes) -> int:
    """How many images a request shows; 0 of one that shows none."""
    if not body:
        return 0
    if not path.endswith("/infer"):  # an endpoint of the tests' own
        return len(json.loads(body))
    header = json.loads(body[: int(header_length)] if header_length else body)
    return int(header["inputs"][0]["shape"][0])


def _with_nan(answer: bytes, header_length: str | None) -> bytes:
    if header_length is None:
        return re.sub(rb'("data":\s*\[)[^,\]]+', rb"\1NaN", answer)
    start = int(header_length)
    numbers = np.frombuffer(answer[start:], np.float32).copy()
    numbers[0] = np.nan
    return answer[:start] + numbers.tobytes()


server = ThreadingHTTPServer(("127.0.0.1", OPTIONS.listen), Handler)
if OPTIONS.certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(OPTIONS.certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()

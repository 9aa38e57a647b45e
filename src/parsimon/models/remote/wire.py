"""One HTTP exchange, with a deadline for all of it."""

from __future__ import annotations

import http.client
import os
import ssl
import time
import weakref
from collections import defaultdict
from collections.abc import Mapping
from socket import socket as Socket  # noqa: N812  (a class, in spite of its name)
from typing import NamedTuple
from urllib.parse import urlsplit

from parsimon.errors import ModelError, whole_line
from parsimon.models.remote.base import HEADERS, MissingModelError, TransientError

_PASSING = {408, 425, 429, 500, 502, 503, 504}  # timeouts and overload, and what may be either
_READ = 4096  # bytes of what a server says: more than a message shows, so that no secret is cut before it is hidden


class Response(NamedTuple):
    """A server's answer, whose status is 2xx."""

    headers: Mapping[str, str]  # by lower-case names
    body: bytes


class Wire:
    """Connections that are kept open between requests, as many as there were at once. Certificates are verified.

    A connection belongs to the process that opened it: with two, each would read what the other asked for.
    """

    def __init__(self) -> None:
        self._idle: defaultdict[tuple[int, str], list[http.client.HTTPConnection]] = defaultdict(list)
        self._tls = ssl.create_default_context()
        weakref.finalize(self, _close, self._idle)

    def exchange(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float
    ) -> Response:
        """The answer to one request; TransientError where it may be another the next time, else ModelError."""
        parts = urlsplit(url)
        host = f"{parts.scheme}://{parts.netloc}"
        place = f"{host}{parts.path}"  # without the query, which may hold a key
        idle = self._idle[os.getpid(), host]
        try:
            connection = idle.pop()  # atomic, like append: threads share the list
        except IndexError:
            connection = self._connect(parts.scheme, parts.netloc)
        deadline = time.monotonic() + seconds
        try:
            connection.timeout = seconds
            if connection.sock is not None:
                connection.sock.settimeout(seconds)
            connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), body, dict(headers))
            socket = connection.sock  # which the connection lets go of where the server says that it will close it
            response = connection.getresponse()
            content = _read(response, socket, deadline)
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise ModelError(
                f"the certificate of {parts.netloc} cannot be verified ({error.verify_message}); for a private "
                "authority, set SSL_CERT_FILE to its certificate"
            ) from error
        except (ValueError, TypeError, OverflowError, http.client.InvalidURL) as error:
            connection.close()
            # What was refused is not shown: it may be a header.
            raise ModelError(
                f"the request to {place} cannot be sent ({type(error).__name__}): its address, method, headers and "
                "body must be such as HTTP allows"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise TransientError(whole_line(error)) from error
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            idle.append(connection)
        if not 200 <= response.status < 300:
            raise _refusal(response, content, place)
        return Response({name.lower(): value for name, value in response.getheaders()}, content)

    def _connect(self, scheme: str, netloc: str) -> http.client.HTTPConnection:
        if scheme == "https":
            return http.client.HTTPSConnection(netloc, context=self._tls)
        return http.client.HTTPConnection(netloc)


def _close(idle: Mapping[tuple[int, str], list[http.client.HTTPConnection]]) -> None:
    for connections in idle.values():
        for connection in connections:
            connection.close()


def _read(response: http.client.HTTPResponse, socket: Socket, deadline: float) -> bytes:
    """All of the body; a socket's own timeout is one for each piece of it."""
    pieces = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not complete in time")
        socket.settimeout(left)
        piece = response.read1(1 << 20)
        if not piece:
            break
        pieces.append(piece)
    if response.length:  # read1 does not say by itself that the connection ended too early
        raise http.client.IncompleteRead(b"", response.length)
    response.close()
    return b"".join(pieces)


def _refusal(response: http.client.HTTPResponse, content: bytes, place: str) -> Exception:
    said = " ".join(content[:_READ].decode("utf-8", "replace").split())
    status = f"HTTP status {response.status} {response.reason}"
    if response.status in _PASSING:
        wait = response.headers.get("retry-after", "")
        return TransientError(f"{status}, {said}" if said else status, float(wait) if wait.isdecimal() else 0.0)
    hint = ""
    if response.status in (401, 403):
        hint = f". Set the environment variable {HEADERS} to what lets you in, such as `Authorization: Bearer KEY`"
    elif 300 <= response.status < 400:
        hint = f". Redirections are not followed; it points to {response.headers.get('location')}"
    missing = response.status == 404 or b"unknown model" in content  # which Triton says with another status
    what = f"{place} refuses: {status}{hint}" + (f". It says: {said}" if said else "")
    return (MissingModelError if missing else ModelError)(what)

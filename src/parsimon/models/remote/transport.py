"""One HTTP exchange, with one deadline for all of it.

Written on `http.client`, since httpx and urllib3 take two to three times as long per request with 16 in flight (see
docs/decisions/0010). Neither has a deadline for a whole exchange.
"""

from __future__ import annotations

import http.client
import os
import ssl
import time
import weakref
from base64 import b64encode
from collections import defaultdict
from collections.abc import Mapping
from ipaddress import ip_address
from socket import socket as Socket  # noqa: N812  (a class, in spite of its name)
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from parsimon.errors import ModelError, whole_line
from parsimon.models.remote.base import HEADERS, MissingModelError, TransientError

_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}  # timeouts and overload, and what may be either
_QUOTED = 4096  # bytes of a refusal: more than a message shows, so that no secret is cut before it is hidden
_CHUNK = 1 << 20  # bytes to read at once


class Response(NamedTuple):
    """A server's answer, whose status is 2xx."""

    headers: Mapping[str, str]  # by lower-case names
    body: bytes


class Transport:
    """Connections that stay open between requests. Certificates are verified; redirections are not followed.

    Proxies come from the usual environment variables. A connection belongs to the process that opened it: after a fork,
    two processes would read each other's answers.
    """

    def __init__(self) -> None:
        self._idle: defaultdict[tuple[int, str], list[http.client.HTTPConnection]] = defaultdict(list)
        self._tls = ssl.create_default_context()
        self._proxies = {scheme: _split_proxy(proxy) for scheme, proxy in getproxies().items()}
        self.proxy_credentials = {scheme: _credentials(proxy) for scheme, proxy in self._proxies.items()}
        weakref.finalize(self, _close_all, self._idle)

    def exchange(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float
    ) -> Response:
        """Return the answer to one request; raise TransientError if it may be another next time, else ModelError."""
        parts = urlsplit(url)
        host = f"{parts.scheme}://{parts.netloc}"
        place = f"{host}{parts.path}"  # without the query, which may hold a key
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        proxy = self._proxy(parts)
        if proxy is not None and parts.scheme == "http":
            target, headers = f"{host}{target}", {**headers, **self._proxy_headers("http")}
        idle = self._idle[os.getpid(), host]
        try:
            connection = idle.pop()  # atomic, like append: threads share the list
        except IndexError:
            connection = self._connect(parts, proxy)
        deadline = time.monotonic() + seconds
        try:
            connection.timeout = seconds
            if connection.sock is not None:
                connection.sock.settimeout(seconds)
            connection.request(method, target, body, dict(headers))
            socket = connection.sock  # which the connection forgets if the server announces that it will close it
            response = connection.getresponse()
            content = _read(response, socket, deadline)
        except BaseException as error:
            connection.close()
            failure = _failure(error, parts.netloc, place)
            if failure is None:
                raise
            raise failure from None
        if response.will_close:
            connection.close()
        else:
            idle.append(connection)
        if not 200 <= response.status < 300:
            raise _refusal(response, content, place)
        return Response({name.lower(): value for name, value in response.getheaders()}, content)

    def _proxy(self, parts: SplitResult) -> SplitResult | None:
        """Return the proxy for an address; this machine needs none."""
        proxy = self._proxies.get(parts.scheme)
        host = parts.hostname or ""
        return None if proxy is None or _is_this_machine(host) or proxy_bypass(host) else proxy

    def _proxy_headers(self, scheme: str) -> dict[str, str]:
        credentials = self.proxy_credentials[scheme]
        return {"Proxy-Authorization": credentials} if credentials else {}

    def _connect(self, parts: SplitResult, proxy: SplitResult | None) -> http.client.HTTPConnection:
        address = parts.netloc if proxy is None else proxy.netloc.rpartition("@")[2]
        if parts.scheme == "http":
            return http.client.HTTPConnection(address)
        connection = http.client.HTTPSConnection(address, context=self._tls)
        if proxy is not None:
            connection.set_tunnel(parts.netloc, headers=self._proxy_headers("https"))
        return connection


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _split_proxy(proxy: str) -> SplitResult:
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _credentials(proxy: SplitResult) -> str:
    """Return the value of Proxy-Authorization; empty without a user."""
    if proxy.username is None:
        return ""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def _close_all(idle: Mapping[tuple[int, str], list[http.client.HTTPConnection]]) -> None:
    for connections in idle.values():
        for connection in connections:
            connection.close()


def _read(response: http.client.HTTPResponse, socket: Socket, deadline: float) -> bytes:
    """Read the whole body before the deadline; a socket's own timeout is per read."""
    chunks = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not complete in time")
        socket.settimeout(left)
        chunk = response.read1(_CHUNK)
        if not chunk:
            break
        chunks.append(chunk)
    if response.length:  # read1 does not report that the connection ended too early
        raise http.client.IncompleteRead(b"", response.length)
    response.close()
    return b"".join(chunks)


def _failure(error: BaseException, host: str, place: str) -> Exception | None:
    """Return what to raise for an exchange that broke; None for an error of this program."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ModelError(
            f"the certificate of {host} cannot be verified ({error.verify_message}); for a private authority, set "
            "SSL_CERT_FILE to its certificate"
        )
    if isinstance(error, ValueError | TypeError | OverflowError | http.client.InvalidURL):
        # What was refused is not shown: it may be a header.
        return ModelError(
            f"the request to {place} cannot be sent ({type(error).__name__}): its address, method, headers and body "
            "must be valid in HTTP"
        )
    if isinstance(error, OSError | http.client.HTTPException):
        return TransientError(whole_line(error))
    return None


def _refusal(response: http.client.HTTPResponse, content: bytes, place: str) -> Exception:
    quoted = " ".join(content[:_QUOTED].decode("utf-8", "replace").split())
    status = f"HTTP status {response.status} {response.reason}"
    if response.status in _TRANSIENT:
        wait = response.headers.get("retry-after", "")
        return TransientError(f"{status}, {quoted}" if quoted else status, float(wait) if wait.isdecimal() else 0.0)
    hint = ""
    if response.status in (401, 403):
        hint = f". Set the environment variable {HEADERS} to your credentials, such as `Authorization: Bearer KEY`"
    elif 300 <= response.status < 400:
        hint = f". Redirections are not followed; it points to {response.headers.get('location')}"
    missing = response.status == 404 or b"unknown model" in content  # Triton uses another status
    what = f"{place} refuses: {status}{hint}" + (f". It says: {quoted}" if quoted else "")
    return (MissingModelError if missing else ModelError)(what)

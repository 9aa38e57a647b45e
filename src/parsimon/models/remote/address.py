"""Addresses of remote models, parsed and checked. No message repeats what may be a secret."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from parsimon.errors import InputError, quote
from parsimon.models.remote.base import HEADERS

_LONGEST = 2000  # characters of the address of a server
_LONGEST_HOST = 255
_SHOWN = 200  # characters of it in a sentence
_NAME = r"[0-9A-Za-z_-]{1,63}(\.[0-9A-Za-z_-]{1,63})*\.?"
_HOST = re.compile(rf"({_NAME}|\[[0-9A-Fa-f:.]{{2,45}}(%25[0-9A-Za-z_.-]{{1,40}})?\])(?P<port>:[0-9]{{0,5}})?")


class Address(NamedTuple):
    """The address of a model on a server."""

    place: str  # for messages: without its settings, and not too long
    secure: bool
    host: str  # with its port
    model: str
    version: str = ""
    prefix: str = ""  # of the protocol's paths


def split_url(url: object) -> SplitResult:
    """Return the parts of an address with a valid host and port."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(
            "an address must be a text of printable ASCII characters without spaces; write others as %20 and the like"
        )
    place = url.partition("?")[0]
    parts = _split(url)
    if parts is None:
        got = "" if "@" in place else f"; got {quote(place)}"  # before an @ there may be a password
        raise InputError(
            "an address must begin as SCHEME://HOST:PORT/, with a name or an IP address as its host, [...] around one "
            f"of version 6, and a port from 1 to 65535{got}"
        )
    if "@" in parts.netloc:
        raise InputError(f"an address must hold no password, since it is shown and stored: set {HEADERS} instead")
    return parts


def _split(url: str) -> SplitResult | None:
    """Return the parts of an address; None if its host or port is invalid."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        usable = _HOST.fullmatch(host) and len(host) <= _LONGEST_HOST and parts.port != 0
    except ValueError:  # a port that is no number, or half a pair of brackets
        return None
    return parts if usable else None


def server_address(parts: SplitResult) -> Address:
    """Return the address of a model on a server."""
    scheme, host, path = parts.scheme, parts.netloc, parts.path
    place = f"{scheme}://{host}{path}"
    secure = scheme in ("grpcs", "https")
    rest = r"(?P<prefix>.*)/v2/models/(?P<model>[^/]+)(/versions/(?P<version>[^/]+))?(/infer)?/?"
    form = r"/(?P<model>[^/]+)(/(?P<version>[^/]+))?/?" if scheme.startswith("grpc") else rest
    found = re.fullmatch(form, path)
    if found is None or parts.fragment or len(place) > _LONGEST:
        raise InputError(
            "a model on a server is named grpc://HOST:PORT/MODEL or http://HOST:PORT/v2/models/MODEL, in at most "
            f"{_LONGEST:,} characters; got {quote(place)}. For an HTTP endpoint with its own format, write a "
            "function: parsimon.models.HttpModel"
        )
    default = 443 if secure else 8001 if scheme == "grpc" else 8000  # Triton's defaults
    if parts.port is None:
        host = f"{host.removesuffix(':')}:{default}"
    shown = place if len(place) <= _SHOWN else f"{place[:_SHOWN]}..."
    named = found.groupdict()
    return Address(shown, secure, host, named["model"], named["version"] or "", named.get("prefix", ""))

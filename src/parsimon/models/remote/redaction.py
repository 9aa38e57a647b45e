"""Messages without secrets, in any form in which a server may repeat them."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from itertools import groupby
from urllib.parse import urlsplit

_RUN = 8  # a message never shows this many consecutive characters of a secret
_SHORTEST = 4  # a shorter value is no secret: hiding it would hide half of every message
_MOST = 1024  # values to remember; a signature may differ in every request
_READ, _LONGEST = 10_000, 500  # characters of a message that are read, and that are shown
_DEPTH = 4  # an escape may itself be escaped, as in `%252F`
_PUBLIC = {"accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type", "user-agent"}
_ESCAPE = re.compile(
    r"\\u(?P<json>[0-9a-f]{4})|(?:\\x|%)(?P<byte>[0-9a-f]{2})|&#x(?P<hex>[0-9a-f]{1,5});|&#(?P<decimal>[0-9]{1,6});"
    r"|&(?P<entity>quot|amp|apos|lt|gt);|\\(?P<plain>.)",
    re.IGNORECASE | re.DOTALL,
)
_ENTITIES = {"quot": '"', "amp": "&", "apos": "'", "lt": "<", "gt": ">"}
_IGNORED = re.compile(r"[\s+]")  # `+` is a space in a query

Spans = list[tuple[int, int]]


class Redactor:
    """Remembers the secrets of requests, and removes them from messages."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}

    def learn(self, headers: Mapping[str, object], url: str = "") -> None:
        """Remember the headers and the query of a request."""
        values = [_text(value) for name, value in headers.items() if _text(name).lower() not in _PUBLIC]
        for part in urlsplit(url).query.split("&"):
            name, _, value = part.partition("=")
            values.append(value or name)
        for value in filter(None, values):
            self._values.pop(value, None)
            self._values[value] = None
        while len(self._values) > _MOST:
            del self._values[next(iter(self._values))]

    def __call__(self, text: str) -> str:
        """Return the text without secrets and control characters, cut to a readable length."""
        text = self._without_secrets(text[:_READ])
        text = "".join(each if each.isprintable() else " " for each in text)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

    def _without_secrets(self, text: str) -> str:
        runs = self._runs()
        hidden = bytearray(len(text))
        for plain, spans in _readings(text):
            for size in runs:
                for start in range(len(plain) - size + 1):
                    if plain[start : start + size] in runs[size]:
                        first, last = spans[start][0], spans[start + size - 1][1]
                        hidden[first:last] = b"1" * (last - first)
        pieces = groupby(zip(hidden, text, strict=True), key=lambda pair: pair[0])
        return "".join("***" if secret else "".join(each for _, each in pairs) for secret, pairs in pieces)

    def _runs(self) -> dict[int, set[str]]:
        """Return what must not be shown, by length: runs of long secrets, and short secrets as a whole."""
        runs: dict[int, set[str]] = {}
        for value in tuple(self._values):
            for secret in _secrets_in(value):
                for plain, _ in _readings(secret):
                    if len(plain) >= _SHORTEST:
                        size = min(_RUN, len(plain))
                        found = (plain[start : start + size] for start in range(len(plain) - size + 1))
                        runs.setdefault(size, set()).update(found)
        return runs


def _readings(text: str) -> Iterator[tuple[str, Spans]]:
    """Yield a text as it is and without its escapes, each with the original position of every character."""
    yield text, [(place, place + 1) for place in range(len(text))]
    yield _resolved(text)


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _secrets_in(value: str) -> Iterator[str]:
    """Yield a header's value, and the parts of it that a server may repeat alone."""
    yield value
    scheme, _, token = value.strip().rpartition(" ")
    yield token  # of `Bearer TOKEN`
    for part in re.split(r"[;,\s]", value):  # of `a=1; session=KEY`
        yield part.partition("=")[2].strip('"')
    if scheme.lower() == "basic":
        try:
            pair = b64decode(token + "==").decode("utf-8", "replace")
        except ValueError:
            return
        yield pair
        yield pair.partition(":")[2]


def _resolved(text: str) -> tuple[str, Spans]:
    """Return a text without escapes, spaces and capitals, with the original position of every character.

    Characters are the bytes of UTF-8, since a query escapes bytes.
    """
    plain, spans = "", []
    for place, character in enumerate(text):
        encoded = _as_bytes(character)
        plain += encoded
        spans += [(place, place + 1)] * len(encoded)
    for _ in range(_DEPTH):
        before = plain
        plain, spans = _resolved_once(plain, spans)
        if plain == before:
            break
    kept = [place for place, character in enumerate(plain) if not _IGNORED.match(character)]
    return "".join(plain[place] for place in kept).lower(), [spans[place] for place in kept]


def _resolved_once(text: str, spans: Spans) -> tuple[str, Spans]:
    pieces: list[str] = []
    origins: Spans = []
    end = 0
    for found in _ESCAPE.finditer(text):
        meant = _meant(found)
        pieces += [text[end : found.start()], meant]
        origins += spans[end : found.start()]
        origins += [(spans[found.start()][0], spans[found.end() - 1][1])] * len(meant)
        end = found.end()
    return "".join([*pieces, text[end:]]), origins + spans[end:]


def _meant(found: re.Match[str]) -> str:
    kind = str(found.lastgroup)
    code = found[kind]
    if kind == "byte":
        return chr(int(code, 16))
    if kind == "entity":
        return _ENTITIES[code.lower()]
    if kind == "plain":
        return " " if code in "nrt" else code
    return _as_bytes(chr(int(code, 10 if kind == "decimal" else 16)))


def _as_bytes(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("latin-1")

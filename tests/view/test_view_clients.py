"""Clients of the live page's server that misbehave: each gets a status, and nobody else notices."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from parsimon.errors import InputError
from parsimon.view import server, stepwise
from parsimon.view.server import Viewer
from viewing import Reply, ask, serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without a run."""
    return tmp_path_factory.mktemp("view")


@pytest.fixture(scope="module")
def viewer(folder: Path) -> Iterator[Viewer]:
    with serving(folder) as started:
        yield started


def attack(viewer: Viewer) -> Reply:
    return ask(viewer, "/attack?network=robust&attack=square&radius=8/255", method="POST", body=b"a picture")


def raw(viewer: Viewer, *pieces: bytes) -> tuple[int, bytes]:
    """The status and the body of the reply to what is sent, which need not be HTTP."""
    with socket.create_connection(("127.0.0.1", viewer.server_port), timeout=60) as connection:
        for piece in pieces:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        content = b"".join(iter(lambda: connection.recv(65536), b""))
    top, _, body = content.partition(b"\r\n\r\n")
    return int(top.split()[1]), body


MANY_HEADERS = b"".join(b"X-%d: 1\r\n" % number for number in range(200))


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / and more HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/x\r\n\r\n", 400),
        (b"GET / HTTP/9.0\r\n\r\n", 505),
        (b"\xff\xfe \x00 HTTP/1.1\r\n\r\n", 501),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + MANY_HEADERS + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n: \xff\r\n no\r\n\r\n", 403),
        (b"GET http://[ HTTP/1.1\r\nHost: HOST\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: HOST\r\nHost: HOST\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: HOST\r\nHost: evil.example\r\n\r\n", 400),
        (b"POST /attack HTTP/1.1\r\nHost: HOST\r\nOrigin: a\r\nOrigin: b\r\n\r\n", 400),
    ],
    ids=range(13),
)
def test_nonsense_is_answered_with_a_status_and_not_on_the_terminal(
    viewer: Viewer, capfd: pytest.CaptureFixture[str], sent: bytes, status: int
) -> None:
    host = f"127.0.0.1:{viewer.server_port}".encode()
    found, body = raw(viewer, sent.replace(b"HOST", host))
    assert found == status
    assert json.loads(body)["error"]
    assert len(body) < 300
    assert capfd.readouterr() == ("", "")
    assert ask(viewer, "/").status == 200


@pytest.mark.parametrize(
    ("error", "status"),
    [(FileNotFoundError(2, "No such file", "data.npz"), 404), (PermissionError("no"), 500), (KeyError("eps"), 500)],
)
def test_a_file_that_is_missing_is_answered_with_a_status_and_not_on_the_terminal(
    viewer: Viewer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(viewer.watch, "state", fail)
    reply = ask(viewer, "/state?after=0")
    assert reply.status == status
    assert type(error).__name__ in reply.json["error"]
    assert capfd.readouterr() == ("", "")


def test_an_error_in_the_middle_of_an_attack_ends_the_reply_with_a_sentence(
    viewer: Viewer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(*_: Any) -> Iterator[Any]:
        yield {"side": 32}
        raise KeyError("weights/7")

    monkeypatch.setattr(stepwise, "steps", steps)
    monkeypatch.setattr(stepwise.Target, "opened", lambda *_: None)
    reply = attack(viewer)
    first, last = map(json.loads, reply.body.splitlines())
    assert first == {"side": 32}
    assert "weights/7" in last["error"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: "])
def test_a_slow_client_is_given_up(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server, "_TIMEOUT", 0.4)
    with serving(folder) as started, socket.create_connection(("127.0.0.1", started.server_port)) as connection:
        connection.settimeout(0.1)
        connection.sendall(sent)
        for _ in range(600):  # a byte now and then does not buy more time
            try:
                assert connection.recv(1) == b""
                break
            except TimeoutError:
                with suppress(ConnectionError):
                    connection.sendall(b"a")
            except ConnectionResetError:
                break
        else:
            pytest.fail("it waits for ever")
    assert capfd.readouterr() == ("", "")


def test_a_body_that_does_not_come_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_TIMEOUT", 0.4)
    with serving(folder) as started, socket.create_connection(("127.0.0.1", started.server_port), 60) as connection:
        host = f"127.0.0.1:{started.server_port}"
        head = {"Host": host, "Origin": f"http://{host}", "Cookie": f"{started.cookie}={started.token}"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in {**head, "Content-Length": "1000"}.items())
        connection.sendall(
            f"POST /attack?network=robust&attack=square&radius=8/255 HTTP/1.1\r\n{lines}\r\nhalf".encode()
        )
        assert connection.recv(1) == b""


def test_connections_are_limited_and_those_that_end_make_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_CONNECTIONS", 3)
    with serving(folder) as started:
        for _ in range(5):  # one after another
            assert ask(started, "/").status == 200
        held = [socket.create_connection(("127.0.0.1", started.server_port), 60) for _ in range(3)]
        deadline = time.monotonic() + 60
        while started._free._value and time.monotonic() < deadline:
            time.sleep(0.01)
        reply = ask(started, "/")
        assert (reply.status, reply.json["error"]) == (503, "too many connections: try again")
        for connection in held:
            connection.close()
        while ask(started, "/").status != 200:
            assert time.monotonic() < deadline


def test_one_picture_is_decoded_at_a_time(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    decoding: list[int] = []
    at_once: list[int] = []

    def opened(*_: Any) -> Any:
        decoding.append(1)
        at_once.append(len(decoding))
        time.sleep(0.05)
        decoding.pop()
        raise InputError("no picture")

    monkeypatch.setattr(stepwise.Target, "opened", opened)
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: attack(viewer), range(4)))
    assert [reply.status for reply in replies] == [400] * 4
    assert at_once == [1] * 4

"""The live page's server: what it tells of a run, and whom it refuses what."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from bundled_images import Bundled
from parsimon import runs, zoo
from parsimon.core.engine import Step
from parsimon.errors import InputError
from parsimon.report.picture import as_bytes
from parsimon.runs.config import RunConfig
from parsimon.view import stepwise
from parsimon.view.server import Viewer
from viewing import ask, serving


@pytest.fixture(scope="module")
def folder(bundled: Bundled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which some images are fooled and some withstand."""
    place = tmp_path_factory.mktemp("view")
    np.savez(place / "data.npz", images=bundled.images, labels=bundled.labels)
    spec = RunConfig(attacks=("parsimonious", "random"), data=str(place / "data.npz"), eps="16/255", budget=60)
    runs.run(spec, place / "run")
    return place / "run"


@pytest.fixture(scope="module")
def viewer(folder: Path) -> Iterator[Viewer]:
    with serving(folder) as started:
        yield started


def png(size: tuple[int, int] = (64, 48), mode: str = "RGB", colour: Any = (200, 30, 30)) -> bytes:
    file = BytesIO()
    Pillow.new(mode, size, colour).save(file, "PNG")
    return file.getvalue()


# --- what it tells --------------------------------------------------------------------------------------------------


def test_a_run_is_told_as_it_is_stored(viewer: Viewer, folder: Path) -> None:
    told = ask(viewer, "/state?after=0").json
    stored = runs.load(folder)
    assert (told["state"], told["name"]) == ("finished", str(folder))
    for attack, (name, result) in zip(told["attacks"], stored.results.items(), strict=True):
        fooled = sum(each.success for each in result.outcomes)
        counts = {"images": 8, "ended": 8, "fooled": fooled, "queries": int(result.queries.sum())}
        assert attack == {"name": name, "started": True, **counts}
    endings = {
        (name, each.index): (each.queries, each.predicted)
        for name, result in stored.results.items()
        for each in result.outcomes
    }
    names = list(stored.results)
    assert [entry["place"] for entry in told["entries"]] == list(range(16))
    assert {(names[e["attack"]], e["number"]): (e["queries"], e["predicted"]) for e in told["entries"]} == endings
    assert [table["title"] for table in told["tables"]] == [table.title for table in stored.tables()]
    assert {line["name"]: line["rates"][-1] for line in told["curves"]["lines"]} == {
        name: result.success.sum() / 8 for name, result in stored.results.items()
    }
    robust = 8 - len({each.index for result in stored.results.values() for each in result.outcomes if each.success})
    images = len(np.load(folder.parent / "data.npz")["labels"])
    assert told["top"]["headlines"][0]["value"] == f"{100 * robust / images:.1f}\N{NO-BREAK SPACE}%"


def test_an_interrupted_run_is_told_as_far_as_it_is_known(bundled: Bundled, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", images=bundled.images, labels=bundled.labels)

    def interrupt(attack: str, images: int, step: Step) -> None:  # noqa: ARG001
        if step.counters.queries >= 40:
            os.kill(os.getpid(), signal.SIGINT)

    spec = RunConfig(attacks=("square", "random"), data=str(tmp_path / "data.npz"), eps="1/255", budget=60)
    runs.run(spec, tmp_path / "run", in_flight=8, watch=interrupt)
    outcomes = runs.load(tmp_path / "run").results["Square"].outcomes
    least = min(each.queries for each in outcomes if each.ended == "interrupted")
    with serving(tmp_path / "run") as started:
        told = ask(started, "/state?after=0").json
    assert [line["known"] for line in told["curves"]["lines"]] == [least, 0]
    assert [line["note"] for line in told["curves"]["lines"]] == [f"known up to {least} queries", "waiting"]
    assert [attack["started"] for attack in told["attacks"]] == [True, False]
    assert least > 1
    assert told["top"]["headlines"][0]["kind"].startswith("At most so far")


def test_only_what_is_new_is_told_again(viewer: Viewer) -> None:
    told = ask(viewer, "/state?after=13").json
    assert [entry["place"] for entry in told["entries"]] == [13, 14, 15]
    assert "facts" not in told
    assert not {"entries", "curves"} & {key for key, value in ask(viewer, "/state?after=16").json.items() if value}


def test_pictures_are_those_of_the_run(viewer: Viewer, folder: Path) -> None:
    result = runs.load(folder).results["Parsimonious"]
    fooled = next(each for each in result.outcomes if each.success)
    withstood = next(each for each in result.outcomes if not each.success)
    for kind, image in (
        ("original", result.images[fooled.index]),
        ("adversarial", result.draw(fooled)),
        ("perturbation", (result.draw(fooled) > result.images[fooled.index]).astype(np.float32)),
    ):
        reply = ask(viewer, f"/picture/{kind}/0/{fooled.index}")
        assert (reply.status, reply.headers["content-type"]) == (200, "image/png")
        shown = np.asarray(Pillow.open(BytesIO(reply.body)))
        inside = (result.images[fooled.index] > 16 / 255) & (result.images[fooled.index] < 239 / 255)
        where = np.moveaxis(inside, 0, 2) if kind == "perturbation" else np.ones(shown.shape, np.bool_)
        assert (shown == as_bytes(np.asarray(image)))[where].all()
    assert ask(viewer, f"/picture/original/0/{withstood.index}").status == 200
    assert ask(viewer, f"/picture/adversarial/0/{withstood.index}").status == 404


def test_a_folder_without_a_run_is_waited_for(tmp_path: Path) -> None:
    with serving(tmp_path / "later") as waiting:
        told = ask(waiting, "/state?after=0").json
        assert told["state"] == "waiting"
        assert f"parsimon run --out {tmp_path / 'later'}" in told["words"]
        assert ask(waiting, "/picture/original/0/0").status == 404


def test_a_run_that_takes_the_place_of_another_is_told_anew(bundled: Bundled, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", images=bundled.images, labels=bundled.labels)
    spec = RunConfig(attacks=("random",), data=str(tmp_path / "data.npz"), images=2, budget=2)
    with serving(tmp_path / "run") as started:
        before = []
        for _ in range(2):
            runs.run(spec, tmp_path / "run")
            before.append(ask(started, "/state?after=0").json)
            for path in (tmp_path / "run").iterdir():
                path.unlink()
            assert ask(started, "/state?after=0").json["state"] == "waiting"
    assert before[0]["run"] != before[1]["run"]
    assert len(before[0]["entries"]) == len(before[1]["entries"]) == 2


def test_a_damaged_run_is_told_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("spec.toml", "environment.json"):
        (copy / name).write_bytes((folder / name).read_bytes())
    (copy / "run.sqlite").write_bytes(b"SQLite format 3\0" + b"?" * 4000)
    with serving(copy) as started:
        reply = ask(started, "/state?after=0")
    assert reply.status == 400
    assert "run.sqlite is damaged" in reply.json["error"]


# --- whom it refuses what -------------------------------------------------------------------------------------------

PATHS = ("/", "/state?after=0", "/picture/original/0/0", "/nothing")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_its_token_nothing_is_told(viewer: Viewer, folder: Path, path: str, method: str) -> None:
    for cookie in (None, "", "parsimon=1", f"{viewer.cookie}=", f"{viewer.cookie}={viewer.token[:-1]}", "\xe9=\xff;=;"):
        reply = ask(viewer, path, method=method, token=False, Cookie=cookie)
        assert reply.status == 403
        assert reply.json == {"error": "open the page by the address that `parsimon view` printed"}
        assert folder.name.encode() not in reply.body
    joint = "&" if "?" in path else "?"
    assert ask(viewer, f"{path}{joint}token={viewer.token[::-1]}", method=method, token=False).status == 403


def test_every_server_has_a_token_of_its_own(viewer: Viewer, folder: Path) -> None:
    with serving(folder) as other:
        assert len(viewer.token) >= 43  # 256 bits
        assert other.token != viewer.token
        assert ask(other, f"/?token={viewer.token}", token=False).status == 403


def test_the_address_brings_a_cookie_that_opens_the_rest(viewer: Viewer) -> None:
    address = viewer.address
    assert address.startswith(f"http://127.0.0.1:{viewer.server_port}/?token=")
    reply = ask(viewer, address.removeprefix(f"http://127.0.0.1:{viewer.server_port}"), token=False)
    assert reply.status == 200
    value, *rest = reply.headers["set-cookie"].split("; ")
    assert set(rest) == {"HttpOnly", "SameSite=Strict", "Path=/"}
    assert ask(viewer, "/state?after=0", token=False, Cookie=f"other=1; {value}").status == 200
    assert viewer.token not in reply.body.decode()


@pytest.mark.parametrize("host", [None, "", "evil.example", "127.0.0.1", "evil.example:{port}", "127.0.0.1:1"])
def test_another_name_for_this_machine_is_refused(viewer: Viewer, host: str | None) -> None:
    given = host and host.format(port=viewer.server_port)
    assert ask(viewer, "/", Host=given).status in (400, 403)
    assert ask(viewer, "/", Host=f"localhost:{viewer.server_port}").status == 200


def test_it_listens_on_loopback_alone(viewer: Viewer) -> None:
    assert viewer.server_address[0] == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", viewer.server_port), timeout=5)


class Files:
    """Which files this process opens. An audit hook cannot be taken away again, but it can be deaf."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.listening = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.listening and event in ("open", "os.listdir", "os.scandir", "sqlite3.connect"):
            self.opened.append(str(arguments[0]))

    @contextmanager
    def heard(self) -> Iterator[list[str]]:
        self.opened, self.listening = [], True
        try:
            yield self.opened
        finally:
            self.listening = False


FILES = Files()

LEAVING = (
    *("/spec.toml", "/run.sqlite", "/environment.json", "/../data.npz", "/..%2fdata.npz", "/%2e%2e/data.npz"),
    *("/../../../../etc/passwd", "//etc/passwd", "/etc/passwd", "/page.css", "/live.js", "/.", "/..", "/%00"),
    *(
        "/picture/original/0/../../../spec.toml",
        "/picture/original/0/%2e%2e",
        "/picture/original/0/..%2f..%2fspec.toml",
    ),
    *("/picture/original/0/-1", "/picture/original/0/", "/picture/original/0/0/", "/picture/original/0/0.png"),
    *("/picture/original/../0/0", "/picture/original/0/1e1", "/picture/original/0/%d9%a3", "/picture/../0/0"),
    *("/picture/source/0/0", "/state/", "/state/../spec.toml", "/attack", "/\\..\\spec.toml"),
)


@pytest.mark.parametrize("path", LEAVING)
def test_a_path_that_leaves_the_run_is_refused_and_opens_no_file(viewer: Viewer, path: str) -> None:
    with FILES.heard() as opened:
        replies = [ask(viewer, path), ask(viewer, path, method="POST")]
    assert replies[0].status == 404
    assert replies[1].status in (400, 404)  # an attack that names no network
    assert opened == []


@pytest.mark.parametrize(
    "path", ["/picture/original/0/9999", "/picture/original/2/0", "/picture/original/9999/999999999"]
)
def test_a_picture_that_the_run_does_not_have_opens_no_file_but_the_runs(
    viewer: Viewer, folder: Path, path: str
) -> None:
    ask(viewer, "/state?after=0")  # the run's data are read once
    with FILES.heard() as opened:
        assert ask(viewer, path).status == 404
    assert opened  # or else nothing was seen
    names = [name.removeprefix("file:").partition("?")[0] for name in opened]  # SQLite takes addresses, too
    assert {Path(name).parent for name in names} == {folder}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.text(st.characters(codec="latin-1", exclude_characters=" \r\n\t\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0"), min_size=1)
)
def test_whatever_is_asked_for_nothing_but_what_is_listed_is_told(viewer: Viewer, path: str) -> None:
    target = f"/{path}"
    name = re.split(r"[?#]", target)[0]
    with FILES.heard() as opened:
        status = ask(viewer, target).status
    assert status in ((200,) if name in ("/", "/state") else (400, 403, 404, 414))
    assert name == "/state" or opened == []


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1", "https://127.0.0.1:{port}"]
)
def test_a_picture_from_another_page_is_refused(viewer: Viewer, origin: str | None) -> None:
    given = origin and origin.format(port=viewer.server_port)
    reply = ask(viewer, "/attack?network=robust&attack=square&radius=8/255", method="POST", body=png(), Origin=given)
    assert (reply.status, reply.json["error"]) == (403, "a picture must come from the page itself")


def test_every_reply_states_the_policy(viewer: Viewer) -> None:
    for path in PATHS:
        for token in (True, False):
            headers = ask(viewer, path, token=token).headers
            assert headers["content-security-policy"].startswith("default-src 'none'; ")
            assert headers["content-security-policy"].endswith("; frame-ancestors 'none'")
            assert "unsafe" not in headers["content-security-policy"]
            assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
            assert headers["server"].strip() == "parsimon"


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
def test_other_methods_are_refused(viewer: Viewer, method: str) -> None:
    assert ask(viewer, "/", method=method).status == 501


# --- pictures of one's own ------------------------------------------------------------------------------------------


def attack(
    viewer: Viewer,
    body: bytes | None,
    query: str = "network=robust&attack=square&radius=8/255",
    **headers: str | None,
) -> Any:
    return ask(viewer, f"/attack?{query}", method="POST", body=body, headers=headers)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"hello", "this is no picture that can be read: it must be one of JPEG, PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "this is no picture that can be read"),
        (png()[:60], "cannot be read as a picture"),
        (png(mode="RGBA", colour=(1, 2, 3, 99)), "transparent pixels"),
        (png((9000, 9000), "1", 1), "more than 50,000,000 pixels"),
        (png((20000, 20000), "1", 1), "more than 50,000,000 pixels"),
    ],
    ids=["text", "postscript", "cut short", "transparent", "large", "bomb"],
)
def test_what_is_no_picture_is_refused_in_a_sentence(viewer: Viewer, body: bytes, words: str) -> None:
    reply = attack(viewer, body)
    assert reply.status == 400
    assert words in reply.json["error"]


def test_a_file_too_large_is_refused_before_it_is_read(viewer: Viewer) -> None:
    reply = attack(viewer, None, Content_Length=str(stepwise.LARGEST + 1))
    assert (reply.status, reply.json["error"]) == (413, "the picture's file is larger than 10 MB")


@pytest.mark.parametrize("length", [None, "-1", "many", "1" * 20])
def test_a_size_that_is_not_said_is_refused(viewer: Viewer, length: str | None) -> None:
    assert attack(viewer, None, Content_Length=length).status == 411


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "network must be one of robust, standard, run; got ''"),
        ("network=../robust&attack=square&radius=8/255", "network must be one of"),
        ("network=robust&attack=pgd&radius=8/255", "attack must be one of parsimonious, thrift,"),
        ("network=robust&attack=square,p_init=0.3&radius=8/255", "attack must be one of"),
        ("network=robust&attack=square&radius=1", "radius must be one of 4/255,"),
        ("network=run&attack=square&radius=8/255", "the run's own model cannot be opened here"),
    ],
)
def test_what_is_not_on_a_menu_is_refused(viewer: Viewer, query: str, words: str) -> None:
    reply = attack(viewer, png(), query)
    assert reply.status == 400
    assert words in reply.json["error"]


def test_a_picture_is_attacked_on_the_runs_own_model(bundled: Bundled, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", images=bundled.images, labels=bundled.labels)
    model = shutil.copy(zoo.path("standard"), tmp_path / "mine.onnx")
    runs.run(
        RunConfig(attacks=("random",), model=str(model), data=str(tmp_path / "data.npz"), budget=3), tmp_path / "run"
    )
    with serving(tmp_path / "run") as started:
        assert ask(started, "/state?after=0").json["own"] == str(model)
        replies = [
            attack(started, png(), f"network={network}&attack=square&radius=16/255") for network in ("run", "standard")
        ]
        own = attack(started, None, "network=run&attack=square&radius=16/255&bundled=2")
    first, *steps = (json.loads(line) for line in replies[0].body.splitlines())
    _, *others = (json.loads(line) for line in replies[1].body.splitlines())
    assert steps == others  # the same network under another name
    shown = np.frombuffer(b64decode(json.loads(own.body.splitlines()[0])["pictures"]["original"]), np.uint8)
    assert np.array_equal(shown.reshape(32, 32, 3), as_bytes(bundled.images[2]))
    assert first["classes"] == []


def test_a_picture_is_attacked_and_every_step_told(viewer: Viewer) -> None:
    reply = attack(viewer, png(), "network=standard&attack=parsimonious&radius=16/255")
    first, *steps, last = map(json.loads, reply.body.splitlines())
    assert reply.status == 200
    assert (first["rows"], first["columns"]) == (32, 32)
    assert [step["query"] for step in steps] == list(range(1, last["queries"] + 1))


# --- the command ----------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_command_cleanly(folder: Path) -> None:
    command = [sys.executable, "-m", "parsimon", "view", str(folder), "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    try:
        address = process.stdout.readline()
        port = re.fullmatch(r"The page: http://127\.0\.0\.1:(\d+)/\?token=\S{43}\n", address)
        assert port is not None
        with socket.create_connection(("127.0.0.1", int(port[1])), timeout=30):
            process.send_signal(signal.SIGINT)  # even with a browser that holds a connection
            _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")


def test_a_port_that_is_taken_is_said_in_a_sentence(viewer: Viewer, folder: Path) -> None:
    with pytest.raises(InputError, match=f"port {viewer.server_port} is taken by another program: choose another with"):
        Viewer(folder, viewer.server_port)

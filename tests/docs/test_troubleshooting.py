"""The page of troubleshooting quotes messages as they are printed: bad input provokes each of them."""

from __future__ import annotations

import re
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parsimon
from parsimon import runs, zoo
from parsimon.errors import ParsimonError, require
from parsimon.models import HttpModel, Request, RequestPolicy, as_model
from parsimon.runs import facts, runfile
from parsimon.runs.config import RunConfig
from parsimon.view.server import Viewer
from small_model import IMAGES, LABELS, WEIGHTS, Pixels, attack, linear, raising, softmax

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "troubleshooting.md"
MANY = np.random.default_rng(1).random((60, 3, 8, 8), np.float32)
LABELS_OF_MANY = linear(MANY).argmax(axis=1)
MINE = """
import numpy as np

SCALE = 1.0

def build():
    weights = np.random.default_rng(0).normal(size=(192, 10)).astype(np.float32)
    return lambda images: SCALE * images.reshape(len(images), -1) @ weights
"""
# A script that starts workers without `if __name__ == "__main__":`, so each of them starts workers again.
UNGUARDED = """
import parsimon

images, labels = parsimon.zoo.images()
parsimon.attack("robust", images[:2], labels[:2], 8 / 255, budget=5, workers=1, progress=False)
"""


def quoted(page: str) -> dict[str, str]:
    """Return the message below each heading of the third level: a paragraph of code in bold."""
    sections = re.findall(r"^### (.+?)\n\n(.*?)(?=^##|\Z)", page, flags=re.DOTALL | re.MULTILINE)
    found = {}
    for heading, body in sections:
        message = re.match(r"\*\*(`+)(.+?)\1\*\*\n\n", body, flags=re.DOTALL)
        assert message, f"{heading} has no message"
        found[heading] = " ".join(message[2].split())
    return found


def says(message: str, quote: str) -> bool:
    """Return whether a message is the quoted one, where `...` stands for what varies."""
    pattern = ".+?".join(re.escape(part) for part in quote.split("..."))
    return re.fullmatch(pattern, " ".join(message.split())) is not None


# --- what provokes each message -------------------------------------------------------------------------------------


def raised(call: Callable[[], Any]) -> str:
    with pytest.raises(ParsimonError) as caught:
        call()
    return str(caught.value)


def refused(*arguments: Any, **settings: Any) -> Callable[..., str]:
    """Return a function that attacks the small model with bad input."""
    return lambda *_: raised(lambda: attack(*arguments, **settings))


def warned(model: Any, images: Any = MANY, labels: Any = None, *attacks: str, **settings: Any) -> Callable[..., str]:
    """Return a function that attacks a doubtful model and returns its last warning."""
    labels = np.asarray(model(images)).argmax(axis=1) if labels is None else labels
    settings = {"budget": 40, "eps": 0.05, **settings}
    return lambda *_: parsimon.compare(model, images, labels, attacks=attacks or ["thrift"], **settings).warnings[-1]


def noisy(images: Pixels, noise: np.random.Generator = np.random.default_rng(0)) -> NDArray[np.float64]:  # noqa: B008
    return np.asarray(linear(images) + noise.normal(size=(len(images), 10)))


def constant(images: Pixels) -> Pixels:
    return np.tile(np.linspace(0, 1.1, 10, dtype=np.float32), (len(images), 1))


def rounded(images: Pixels) -> Pixels:
    return softmax(images / np.float32(8)).round(2)


class Forgetful:
    """A model that returns other classes in two of its calls, which no later call confirms."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, images: Pixels) -> Pixels:
        self._calls += 1
        return -linear(images) if 11 <= self._calls < 13 else linear(images)


def shifted() -> tuple[Any, Any, Any]:
    """Return a network that expects normalised images, and images that are not."""
    network, (images, labels) = as_model("robust"), zoo.images()
    mean, deviation = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    shift, scale = (np.array(each, np.float32).reshape(3, 1, 1) for each in (mean, deviation))
    return lambda batch: network(batch * scale + shift), images[:64], labels[:64]


def without_gradients(*_: Any) -> str:
    torch = pytest.importorskip("torch")

    class Quantised(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, images: Any) -> Any:
            return (torch.round(images * 24) / 24).flatten(1) @ torch.from_numpy(WEIGHTS)

    model = Quantised()
    labels = model(torch.from_numpy(MANY)).argmax(dim=1).numpy()
    return parsimon.compare(model, MANY, labels, 0.05, ["thrift", "pgd"], budget=40).warnings[-1]


def two_outputs(*_: Any) -> str:
    torch = pytest.importorskip("torch")

    class Two(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, images: Any) -> Any:
            return images.mean(dim=(2, 3)), images

    return refused(Two())()


def pickled(folder: Path) -> str:
    path = folder / "model.pt"
    path.touch()
    return refused(str(path))()


def function_of_images(folder: Path) -> str:
    (folder / "mine.py").write_text(f"{MINE}\ndef direct(images):\n    return build()(images)\n")
    return refused("mine:direct")()


def stored(folder: Path, watch: Any = None, **settings: Any) -> Path:
    """Store a run in the folder, with its model and its data."""
    (folder / "mine.py").write_text(MINE)
    np.savez(folder / "data.npz", images=IMAGES, labels=LABELS)
    given = {"model": "mine:build", "data": str(folder / "data.npz"), "eps": 0.02, "budget": 20, **settings}
    runs.run(RunConfig(**given), folder / "run", watch=watch, progress=False)
    return folder / "run"


def another_model(folder: Path) -> str:
    run = stored(folder)
    sys.modules["mine"].SCALE = 1.5  # type: ignore[attr-defined]
    return raised(lambda: runs.resume(run))


def another_version(folder: Path) -> str:
    def stop(attack: str, images: int, step: Any) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored(folder, stop, eps=0.001, budget=500)
    run = folder / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "__version__", "9.9.9")
        return raised(lambda: runs.resume(run))


def earlier_format(folder: Path) -> str:
    run = stored(folder)
    with closing(sqlite3.connect(run / "run.sqlite")) as database:
        database.execute("PRAGMA user_version = 2")
    return raised(lambda: runs.load(run))


def another_process(folder: Path) -> str:
    run = stored(folder)
    with closing(runfile.lock_folder(run)):
        return raised(lambda: runs.resume(run))


def damaged(folder: Path) -> str:
    run = stored(folder)
    path = run / "run.sqlite"
    path.write_bytes(path.read_bytes()[:3000])
    return raised(lambda: runs.load(run))


def occupied(folder: Path) -> str:
    from parsimon.cli.run import results_folder

    run = stored(folder)
    return raised(lambda: results_folder(run))


def taken_port(folder: Path) -> str:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        return raised(lambda: Viewer(folder, other.getsockname()[1]))


def outage(*_: Any) -> str:
    def classify(images: Any) -> Iterator[Request]:
        yield Request("http://127.0.0.1:9/scores", images.tobytes())

    return refused(HttpModel(classify, RequestPolicy(patience=0.2)))()  # type: ignore[arg-type]


class Unauthorized(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def unauthorized(*_: Any) -> str:
    with ThreadingHTTPServer(("127.0.0.1", 0), Unauthorized) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/scores"

        def classify(images: Any) -> Iterator[Request]:
            yield Request(address, images.tobytes())

        message = refused(HttpModel(classify))()  # type: ignore[arg-type]
        server.shutdown()
    return message


def no_worker(folder: Path) -> str:
    script = folder / "script.py"
    script.write_text(UNGUARDED)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)
    return ran.stderr.strip().splitlines()[-1].partition(": ")[2]


def no_browser(*_: Any) -> str:
    (message,) = re.findall(r"do_without\(\"(there is no Chromium.*?)\"\)", (ROOT / "tests/conftest.py").read_text())
    return str(message)


PROVOKED: dict[str, Callable[..., str]] = {
    "Channels come last": refused(images=IMAGES.transpose(0, 2, 3, 1).copy()),
    "Pixels are not float32": refused(images=(255 * IMAGES).astype(np.uint8)),
    "Pixels go up to 255": refused(images=255 * IMAGES),
    "Pixels are a little outside the range": refused(images=IMAGES - np.float32(1e-6)),
    "Pixels are normalised": refused(images=(IMAGES - np.float32(0.5)) / np.float32(0.25)),
    "One-hot labels": refused(labels=np.eye(10)[LABELS]),
    "Labels that the model does not have": refused(labels=LABELS + 10),
    "A radius in levels of 255": refused(eps=8),
    "A misspelt name": refused(attack="squre"),
    "A missing package": lambda *_: raised(lambda: require("no_such_package", "onnx")),
    "Images of another size": refused("robust"),
    "Wrong `scores` setting": refused(softmax, scores="logits"),
    "Scores change from call to call": refused(noisy),
    "Scores depend on the other images": refused(lambda images: linear(images - images.mean(axis=0))),
    "A defence or model that is random by design": refused(defence="noise,sigma=0.02"),
    "The model returns labels only": refused(lambda images: linear(images).argmax(axis=1), attack="thrift"),
    "The model gives no gradients": refused(attack="pgd"),
    "Scores have the wrong shape": refused(lambda images: linear(images)[0]),
    "Scores are not numbers": refused(lambda images: np.full((len(images), 10), np.nan, np.float32)),
    "The module returns several tensors": two_outputs,
    "The model raises an error": refused(raising),
    "A file that may be a pickle": pickled,
    "Weights without their module": refused({"0.weight": np.zeros((10, 192)), "0.bias": np.zeros(10)}),
    "A function of images in place of one that builds the model": function_of_images,
    "The function cannot be imported": refused("mymodels:build"),
    "No image is classified correctly": refused(labels=(LABELS + 1) % 10),
    "The folder holds a run": occupied,
    "The model has changed since the run began": another_model,
    "Another version than at the start": another_version,
    "An outdated folder": earlier_format,
    "Another process writes the run": another_process,
    "A damaged run": damaged,
    "No worker is left": no_worker,
    "The server does not answer": outage,
    "The server refuses the request": unauthorized,
    "The port is taken": taken_port,
    "The loss did not move": warned(constant),
    "Scores are rounded": warned(rounded),
    "Scores depend a little on the other images": warned(
        lambda images: linear(images - np.float32(0.01) * images.mean(axis=0))
    ),
    "Accuracy near guessing": warned(linear, labels=np.arange(60) % 10),
    "A missing normalisation": lambda *_: warned(*shifted(), "square", budget=3)(),
    "Masked gradients": without_gradients,
    "Successes that do not hold": warned(Forgetful(), MANY, LABELS_OF_MANY, "square", eps=0.001, batch_size=8),
    "There is no Chromium": no_browser,
}


@pytest.fixture(autouse=True)
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the folder of the test be importable, and forget its module afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("mine", None)
    yield
    sys.modules.pop("mine", None)


def test_every_message_of_the_page_is_provoked() -> None:
    assert list(quoted(PAGE.read_text())) == list(PROVOKED)


@pytest.mark.parametrize("heading", PROVOKED)
def test_a_message_is_quoted_as_it_is_printed(heading: str, tmp_path: Path) -> None:
    message, quote = PROVOKED[heading](tmp_path), quoted(PAGE.read_text())[heading]
    assert says(message, quote), f"printed: {message}"
    assert len(re.sub(r"\.\.\.", "", quote)) > 20, "a quote of dots would match anything"


@pytest.mark.parametrize(
    ("message", "quote", "same"),
    [
        ("images must be float32; got uint8", "images must be float32; got ...", True),
        ("it spans 0 to 255: divide", "it spans ... to ...: divide", True),
        ("images must be float64; got uint8", "images must be float32; got ...", False),
        ("images must be float32; got uint8", "images must be float32", False),
        ("a line\n  and another", "a line and another", True),
    ],
)
def test_a_quote_that_differs_is_found(message: str, quote: str, same: bool) -> None:
    assert says(message, quote) == same


def test_a_heading_without_a_message_is_found() -> None:
    with pytest.raises(AssertionError, match="B has no message"):
        quoted("### A\n\n**`one ...`**\n\nWhy.\n\n### B\n\nWhy.\n")

"""Models behind a network: endpoints with a format of their own, and answers that are partial.

Everything here goes to a real endpoint, a process of its own; `test_servers` has the inference servers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import parsimon
from parsimon import runs
from parsimon.core.model import Traffic
from parsimon.core.threat import Threat
from parsimon.errors import InputError, ModelError, OutageError
from parsimon.models import HttpModel, Request, RequestPolicy
from parsimon.models.remote.base import HEADERS
from parsimon.models.remote.http import as_file
from parsimon.models.top_k import complete_scores
from parsimon.runs.config import RunConfig
from running_servers import SCRIPTS, free_port, listens, proxy, wait_until
from small_model import IMAGES, LABELS, attack, linear, softmax

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SECRET = "open sesame"
EIGHT_BIT = {"eps": 20 / 255, "eight_bit": True}
TOP = {**EIGHT_BIT, "scores": "probabilities"}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    port = free_port()
    process = subprocess.Popen([sys.executable, str(SCRIPTS / "endpoint.py"), str(port)])
    try:
        wait_until(lambda: listens(port), "the endpoint", process)
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS, f"X-Key: {SECRET}")


Flow = Generator[Request, bytes, Any]


def scores_at(port: int) -> Callable[[Any], Flow]:
    def classify(images: Any) -> Flow:
        body = yield Request(f"http://127.0.0.1:{port}/scores", json.dumps(images.tolist()).encode())
        return json.loads(body)["scores"]

    return classify


def pictures_at(port: int, top: int) -> Callable[[Any], Flow]:
    def classify(files: Any) -> Flow:
        (file,) = files
        body = yield Request(f"http://127.0.0.1:{port}/picture?top={top}", file, {"content-type": "image/png"})
        return [{NAMES.index(each["label"]): each["confidence"] for each in json.loads(body)["predictions"]}]

    return classify


# --- endpoints with a format of their own ---------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 4, None])
def test_an_attack_on_an_endpoint_comes_to_what_it_comes_to_in_process(port: int, batch: int | None) -> None:
    here, there = attack(), attack(HttpModel(scores_at(port), RequestPolicy(batch=batch)))
    assert there.outcomes == here.outcomes
    assert there.traffic == Traffic(there.counters.rows, there.counters.rows)  # no image that nobody asked for
    assert there.counters.padding == 0


def test_faults_on_the_way_change_nothing(port: int, tmp_path: Path) -> None:
    faults = ("--share", "0.2", "--faults", "reset,half,429,503,500,garbage", "--seed", "1")
    with proxy("http", port, tmp_path, *faults) as between:
        model = HttpModel(scores_at(between.port), RequestPolicy(batch=2))
        there = attack(model)
        shown = between.shown
    assert there.outcomes == attack().outcomes
    assert len({each["fault"] for each in shown}) > 4
    assert model.traffic.attempted == sum(each["rows"] for each in shown)
    assert model.traffic.answered == sum(each["rows"] for each in shown if not each["fault"])


@pytest.fixture
def by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], str]:
    """The endpoint's model as a worker can open it: by the name of a function in the working folder."""
    module = """
    import json, os
    from parsimon.models import HttpModel, RequestPolicy, Request

    def classify(images):
        body = yield Request(f"http://127.0.0.1:{os.environ['PORT']}/scores", json.dumps(images.tolist()).encode())
        return json.loads(body)["scores"]

    def build():
        return HttpModel(classify, RequestPolicy(batch=2, patience=0.5))
    """
    (tmp_path / "behind_http.py").write_text(dedent(module))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def at(port: int) -> str:
        monkeypatch.setenv("PORT", str(port))
        return "behind_http:build"

    return at


def test_what_workers_send_adds_up(port: int, tmp_path: Path, by_name: Callable[[int], str]) -> None:
    faults = ("--share", "0.2", "--faults", "reset,503", "--seed", "1")
    alone = HttpModel(scores_at(port))
    queries = attack(alone).traffic.answered
    clean = alone.traffic.answered - queries  # of the checks before, which are no queries
    with proxy("http", port, tmp_path, *faults) as between:
        there = attack(by_name(between.port), workers=2)
        shown = between.shown
    assert there.outcomes == attack().outcomes
    assert there.traffic.answered == there.counters.rows
    assert there.traffic.answered + clean == sum(each["rows"] for each in shown if not each["fault"])
    assert there.traffic.answered < there.traffic.attempted <= sum(each["rows"] for each in shown) - clean


def test_what_workers_send_in_vain_is_counted_and_the_run_goes_on_from_there(
    port: int, tmp_path: Path, by_name: Callable[[int], str]
) -> None:
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=LABELS)
    folder, spec = tmp_path / "run", RunConfig(data="data.npz", model=by_name(port), eps="0.02", budget=20)
    runs.run(spec, tmp_path / "undisturbed", progress=False)
    with proxy("http", port, tmp_path, "--die-after", "14") as between:
        by_name(between.port)
        with pytest.raises(OutageError, match="paused, and no charged query is lost"):
            runs.run(spec, folder, workers=2, progress=False)
    (paused,) = runs.load(folder).results.values()
    by_name(port)
    (resumed,) = runs.resume(folder, workers=2, progress=False).results.values()
    (undisturbed,) = runs.load(tmp_path / "undisturbed").results.values()
    assert resumed.outcomes == undisturbed.outcomes
    before, after = paused.traffic, resumed.traffic
    assert before is not None
    assert after is not None
    assert before.attempted > before.answered > 0
    assert after.attempted - before.attempted == after.answered - before.answered


def test_a_png_shows_the_image_as_it_is(port: int) -> None:
    there = attack(HttpModel(pictures_at(port, 10), files="png", top=10, classes=10), **TOP)
    assert there.outcomes == attack(softmax, **TOP).outcomes


@pytest.mark.parametrize("top", [1, 2, 5])
def test_a_few_classes_are_enough_to_leave_the_true_one(port: int, top: int) -> None:
    settings = {**TOP, "loss": "cross-entropy", "budget": 150}
    here = attack(softmax, **settings)
    there = attack(HttpModel(pictures_at(port, top), files="png", top=top, classes=10), **settings)
    assert [(each.index, each.success, each.queries) for each in there.outcomes] == [
        (each.index, each.success, each.queries) for each in here.outcomes
    ]
    assert any(each.success for each in here.outcomes)


def test_a_jpeg_is_shown_as_it_is_read_back(port: int) -> None:
    model = HttpModel(pictures_at(port, 10), files="jpeg", top=10, classes=10)
    scores = model(IMAGES)
    assert scores.shape == (6, 10)
    assert np.abs(scores - softmax(IMAGES)).max() > 0  # what JPEG loses is a part of the model


@pytest.mark.parametrize("kind", ["png", "jpeg"])
@pytest.mark.parametrize("channels", [1, 3])
def test_files_hold_the_pixels(kind: Any, channels: int) -> None:
    import io

    from PIL import Image

    image = np.tile(np.linspace(0, 255, 16).round().astype(np.float32) / np.float32(255), (channels, 16, 1))
    pixels = np.asarray(Image.open(io.BytesIO(as_file(image, kind))), np.float32).reshape(16, 16, channels)
    np.testing.assert_allclose(pixels.transpose(2, 0, 1) / 255, image, atol=0 if kind == "png" else 0.02, rtol=1e-6)


@pytest.mark.parametrize(
    ("top", "settings", "words"),
    [
        (5, {"eps": 6 / 255, "scores": "probabilities"}, "8-bit mode"),
        (5, {**EIGHT_BIT, "scores": "logits"}, "as probabilities: pass scores='probabilities'"),
        (5, {**TOP, "targets": "next"}, "5 most probable classes.*leave out targets"),
        (1, {**TOP, "loss": "margin"}, "a margin needs two"),
        (1, {**TOP, "attack": "square"}, "a margin needs two"),  # its own loss
    ],
)
def test_what_cannot_be_computed_is_refused_before_anything_is_sent(
    port: int, top: int, settings: dict[str, Any], words: str
) -> None:
    model = HttpModel(pictures_at(port, top), files="png", top=top, classes=10)
    with pytest.raises(InputError, match=words):
        attack(model, **settings)
    assert model.traffic == Traffic()


def test_a_model_that_tells_all_classes_may_be_attacked_in_any_way(port: int) -> None:
    model = HttpModel(pictures_at(port, 10), files="png", top=10, classes=10)
    there = attack(model, **TOP, targets="next", loss="margin")
    assert there.outcomes == attack(softmax, **TOP, targets="next", loss="margin").outcomes


def test_a_refusal_says_what_to_do_and_keeps_the_secret(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS, "X-Key: swordfish")
    model = HttpModel(scores_at(port))
    with pytest.raises(ModelError, match=f"403.*{HEADERS}") as caught:
        attack(model)
    assert "swordfish" not in str(caught.value)
    assert "***" in str(caught.value)
    assert model.traffic.attempted <= 4  # what was under way; none of it again
    assert "swordfish" not in repr(model)


def test_an_address_with_a_key_in_it_is_not_repeated(port: int) -> None:
    def classify(_: Any) -> Flow:
        yield Request(f"http://127.0.0.1:{port}/nowhere?key=swordfish", b"")

    with pytest.raises(ModelError, match="404") as caught:
        attack(HttpModel(classify))
    assert "swordfish" not in str(caught.value)


def test_an_answer_that_the_function_does_not_understand_is_asked_for_a_few_times(port: int) -> None:
    def classify(images: Any) -> Flow:
        body = yield Request(f"http://127.0.0.1:{port}/scores", json.dumps(images.tolist()).encode())
        return json.loads(body)["predictions"]

    model = HttpModel(classify, RequestPolicy(batch=None))
    with pytest.raises(ModelError, match=r"5 invalid responses.*KeyError: 'predictions'") as caught:
        attack(model)
    assert not isinstance(caught.value, OutageError)
    assert f"the endpoint of classify at http://127.0.0.1:{port}/scores sent 5 invalid" in str(caught.value)
    assert re.search(r'The response begins: \{"', str(caught.value))
    assert model.traffic == Traffic(5 * len(IMAGES), 0)


def test_a_response_of_another_shape_is_shown(port: int) -> None:
    def classify(images: Any) -> Flow:
        body = yield Request(f"http://127.0.0.1:{port}/scores", json.dumps(images.tolist()).encode())
        return [body]

    with pytest.raises(ModelError, match=r"the scores must .* The response begins: \{"):
        attack(HttpModel(classify, RequestPolicy(batch=None)))


def plain(_: Any) -> Any:
    return [[0.0, 1.0]]


def twice(_: Any) -> Flow:
    yield Request("http://127.0.0.1:1/", b"")
    yield Request("http://127.0.0.1:1/", b"")


def not_a_request(_: Any) -> Any:
    yield "http://127.0.0.1:1/"


def another_scheme(_: Any) -> Flow:
    yield Request("file:///etc/passwd", b"")


@pytest.mark.parametrize("function", [plain, not_a_request, another_scheme])
def test_a_function_of_another_form_is_told_its_form(function: Any) -> None:
    with pytest.raises(ModelError, match=f"the endpoint of {function.__name__} must yield a Request"):
        attack(HttpModel(function))


def test_a_second_request_is_refused(port: int) -> None:
    def classify(images: Any) -> Flow:
        request = Request(f"http://127.0.0.1:{port}/scores", json.dumps(images.tolist()).encode())
        yield request
        yield request

    with pytest.raises(ModelError, match="one request"):
        attack(HttpModel(classify))


@pytest.mark.parametrize(
    "settings", [{"files": "gif"}, {"top": 3}, {"classes": 10}, {"top": 0, "classes": 10}, {"top": 11, "classes": 10}]
)
def test_settings_of_an_endpoint_that_make_no_sense_are_refused(settings: Any) -> None:
    with pytest.raises(InputError):
        HttpModel(plain, **settings)


def test_an_endpoint_that_is_silent_for_long_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("parsimon.models.remote.base._SILENCE", 0.3)
    with pytest.raises(OutageError):
        attack(HttpModel(twice, RequestPolicy(patience=1)))
    (line,) = [each.getMessage() for each in caplog.records]
    assert re.fullmatch(
        r"no answer from the endpoint of twice at http://127\.0\.0\.1:1/: ConnectionRefusedError: .* refused; "
        r"trying again for [01] s more",
        line,
    )


def test_an_endpoint_that_answers_soon_is_not_reported(port: int, caplog: pytest.LogCaptureFixture) -> None:
    failed = []

    def classify(images: Any) -> Flow:
        failed.append(len(images))
        nowhere = len(failed) == 1
        body = yield Request(f"http://127.0.0.1:{1 if nowhere else port}/scores", json.dumps(images.tolist()).encode())
        return json.loads(body)["scores"]

    assert attack(HttpModel(classify, RequestPolicy(batch=None))).outcomes
    assert not caplog.records


def test_nobody_there_is_an_outage_and_says_so() -> None:
    with pytest.raises(OutageError, match=r"in 0.5 seconds; the last of \d+ attempts: ConnectionRefusedError"):
        attack(HttpModel(twice, RequestPolicy(patience=0.5)))


def test_a_name_that_builds_an_endpoint_is_a_model_for_the_command(port: int, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import json\nfrom parsimon.models import HttpModel, Request\n\n"
        "def classify(images):\n"
        f"    body = yield Request('http://127.0.0.1:{port}/scores', json.dumps(images.tolist()).encode())\n"
        "    return json.loads(body)['scores']\n\n"
        "def build():\n    return HttpModel(classify)\n"
    )
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=LABELS)
    options = ["--model", "mine:build", "--data", "data.npz", "--eps", "0.02", "--budget", "20", "--out", "out"]
    run = subprocess.run(
        [sys.executable, "-m", "parsimon", "run", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "Images sent to the server: Thrift" in run.stdout
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in (tmp_path / "out").iterdir())


# --- partial answers ------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0.01, 10), min_size=2, max_size=12),
    st.integers(1, 12),
    st.sampled_from(["cross-entropy", "margin"]),
)
def test_what_is_told_of_the_top_is_all_that_the_loss_needs(weights: list[float], top: int, loss: Any) -> None:
    probabilities = np.array(weights) / sum(weights)
    top = min(top, len(weights))
    best = np.argsort(-probabilities, kind="stable")[:top]
    row = complete_scores([{int(each): float(probabilities[each]) for each in best}], len(weights), top)
    assert row.shape == (1, len(weights))
    assert row.sum() == pytest.approx(1)
    assert row.argmax() in np.flatnonzero(probabilities == probabilities.max())
    if loss == "margin" and top == 1:
        return
    threat = Threat(0.1, loss=loss, scores="probabilities")
    for goal in best:
        (told,), _, _ = threat.judge(row, np.array([goal]))
        (known,), _, _ = threat.judge(probabilities[None], np.array([goal]))
        assert told == pytest.approx(known, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"cat": 0.9, 1: 0.1}, "a number in 0..9; got 'cat'"),
        ({10: 0.9, 1: 0.1}, "0..9; got 10"),
        ({1: 0.9}, "at least 2 classes"),
        ({1: 0.9, 2: 0.8}, "which is impossible"),  # each by itself, as of a model with many labels
        ({1: 0.01, 2: 0.01}, "which is impossible"),  # some other class must be more probable
        ({1: 1.1, 2: -0.1}, "which is impossible"),
        ({True: 0.9, 2: 0.1}, "0..9; got True"),
        ({1: 0.9, 2: float("nan")}, "finite numbers"),
        ({1: float("inf"), 2: 0.1}, "finite numbers"),
        ({1: "0.9", 2: 0.1}, "finite numbers"),
        ({1: None, 2: 0.1}, "finite numbers"),
        ({1: True, 2: 0.0}, "finite numbers"),
        ({1: 10**400, 2: 0.0}, "finite numbers"),
    ],
)
def test_what_cannot_be_the_top_of_a_distribution_is_refused(answer: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        complete_scores([answer], 10, 2)


def test_probabilities_that_were_rounded_are_taken() -> None:
    row = complete_scores([{3: 0.51, 4: 0.5}], 10, 2)
    assert row.sum() == pytest.approx(1)
    assert row.argmax() == 3


def test_other_models_have_no_traffic() -> None:
    result = parsimon.attack(linear, IMAGES, LABELS, 0.02, budget=5)
    assert result.traffic is None
    assert "sent to the server" not in str(result)

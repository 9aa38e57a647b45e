"""Responses of models behind a network: one that is not what was asked for is never taken for it."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Generator
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fake_servers import Asked, Reply, grpc_server, http_server, inference
from parsimon.errors import ModelError
from parsimon.models import HttpModel, Request, RequestPolicy, as_model
from parsimon.models.remote.http import as_file
from small_model import IMAGES, attack, linear

Scores = NDArray[Any]


def scores_of(images: Any) -> Any:
    return linear(np.asarray(images, np.float32))


def replying(change: Callable[[int, Scores], Any]) -> Callable[[Asked], Reply]:
    """An endpoint whose n-th response is changed."""
    numbers = count()

    def reply(asked: Asked) -> Reply:
        answer = change(next(numbers), scores_of(json.loads(asked.body)))
        return 200, json.dumps(answer.tolist() if isinstance(answer, np.ndarray) else answer).encode()

    return reply


def classify_at(port: int) -> Callable[[Any], Generator[Request, bytes, Any]]:
    def classify(images: Any) -> Generator[Request, bytes, Any]:
        return json.loads((yield Request(f"http://127.0.0.1:{port}/", json.dumps(images.tolist()).encode())))

    return classify


def shifted(images: Any) -> Scores:
    """A row too many from whoever is shown the first image, a row too few from the others."""
    scores = scores_of(images)
    first = np.array_equal(np.asarray(images, np.float32)[0], IMAGES[0])
    return np.concatenate([scores, scores[-1:]]) if first else scores[:-1]


# --- rows and classes -----------------------------------------------------------------------------------------------


ROWS_MOVED = r"5 invalid responses.*here \(3, classes\); got \((4|2), 10\)"


def test_rows_that_move_from_one_request_to_another_are_refused() -> None:
    endpoint = http_server(lambda asked: (200, json.dumps(shifted(json.loads(asked.body)).tolist()).encode()))
    with endpoint as port, pytest.raises(ModelError, match=ROWS_MOVED):
        HttpModel(classify_at(port), RequestPolicy(batch=3))(IMAGES)
    with http_server(inference(shifted)) as port, pytest.raises(ModelError, match=ROWS_MOVED):
        as_model(f"http://127.0.0.1:{port}/v2/models/m?batch=3")(IMAGES)
    with grpc_server(lambda images, *_: shifted(images)) as port, pytest.raises(ModelError, match=ROWS_MOVED):
        as_model(f"grpc://127.0.0.1:{port}/m?batch=3")(IMAGES)


def test_a_wrong_number_of_rows_in_passing_changes_nothing() -> None:
    with http_server(replying(lambda number, scores: scores[: None if number % 2 else -1])) as port:
        there = attack(HttpModel(classify_at(port), RequestPolicy(batch=None)), budget=6)
    assert there.outcomes == attack(budget=6).outcomes
    assert there.traffic.attempted > there.traffic.answered


def test_a_model_with_a_fixed_number_of_rows_must_return_as_many() -> None:
    cut = inference(lambda images: scores_of(images)[: len(IMAGES)], shape=(8, 3, 8, 8))
    with http_server(cut) as port, pytest.raises(ModelError, match=r"here \(8, classes\); got \(6, 10\)"):
        as_model(f"http://127.0.0.1:{port}/v2/models/m")(IMAGES)
    with http_server(inference(scores_of, shape=(8, 3, 8, 8))) as port:
        model = as_model(f"http://127.0.0.1:{port}/v2/models/m")
        np.testing.assert_allclose(model(IMAGES), linear(IMAGES), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _, scores: scores[0], r"got \(10,\)"),
        (lambda _, scores: scores[:, :, None], r"got \(6, 10, 1\)"),
        (lambda _, scores: scores[:, :0], r"got \(6, 0\)"),
        (lambda _, __: 3.5, r"got \(\)"),
        (lambda _, __: None, r"got \(\)"),
        (lambda _, scores: scores.astype(str), "real numbers; got an array of <U"),
        (lambda _, scores: scores > 0, "real numbers; got an array of bool"),
        (lambda _, scores: [row[: 10 - place] for place, row in enumerate(scores.tolist())], "numpy cannot read"),
        (lambda _, scores: [{"a": 1}] * len(scores), r"got \(6,\)"),
    ],
)
def test_what_are_no_scores_is_refused(change: Any, words: str) -> None:
    with http_server(replying(change)) as port, pytest.raises(ModelError, match=f"5 invalid responses.*{words}"):
        HttpModel(classify_at(port), RequestPolicy(batch=None))(IMAGES)


def test_every_response_has_as_many_classes_as_the_first() -> None:
    with http_server(replying(lambda number, scores: scores[:, : 10 if number < 2 else 9])) as port:
        model = HttpModel(classify_at(port), RequestPolicy(batch=2, in_flight=1))
        with pytest.raises(ModelError, match=r"5 invalid responses.*must be of 10 classes.*got 9"):
            model(IMAGES)
    with http_server(replying(lambda number, scores: scores[:, : 9 if number == 2 else 10])) as port:
        model = HttpModel(classify_at(port), RequestPolicy(batch=2, in_flight=1))
        np.testing.assert_allclose(model(IMAGES), linear(IMAGES), rtol=1e-5)


def test_a_number_of_mappings_that_is_wrong_in_passing_changes_nothing() -> None:
    numbers = count()

    def classify(images: Any) -> Generator[Request, bytes, Any]:
        yield Request(f"http://127.0.0.1:{port}/", b"")
        told = {3: 0.8, 4: 0.2}
        return [told] * (len(images) - (next(numbers) == 0))

    with http_server(lambda _: (200, b"")) as port:
        scores = HttpModel(classify, RequestPolicy(batch=None), top=2, classes=10)(IMAGES)
    assert scores.shape == (6, 10)


# --- functions that share memory ------------------------------------------------------------------------------------


def test_a_function_may_reuse_its_buffer() -> None:
    buffer = np.zeros((1, 10))

    def classify(images: Any) -> Generator[Request, bytes, Any]:
        body = yield Request(f"http://127.0.0.1:{port}/", json.dumps(images.tolist()).encode())
        buffer[:] = json.loads(body)
        time.sleep(0.002)  # other requests get here, too
        return buffer

    with http_server(replying(lambda _, scores: scores)) as port:
        scores = HttpModel(classify, RequestPolicy(batch=1, in_flight=6))(IMAGES)
    np.testing.assert_allclose(scores, linear(IMAGES), rtol=1e-5)


def test_a_function_that_changes_its_images_changes_neither_ours_nor_the_next_attempt() -> None:
    def classify(images: Any) -> Generator[Request, bytes, Any]:
        body = json.dumps(images.tolist()).encode()
        images[:] = 0
        return json.loads((yield Request(f"http://127.0.0.1:{port}/", body)))

    before = IMAGES.copy()
    with http_server(replying(lambda number, scores: scores[: None if number else -1])) as port:
        scores = HttpModel(classify, RequestPolicy(batch=None))(IMAGES)
    np.testing.assert_array_equal(IMAGES, before)
    np.testing.assert_allclose(scores, linear(before), rtol=1e-5)


# --- 8 bits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["png", "jpeg"])
@pytest.mark.parametrize("value", [-1 / 255, 256 / 255, 1.01, -0.001, np.nan, np.inf])
def test_a_pixel_that_8_bits_cannot_hold_is_refused(kind: Any, value: float) -> None:
    image = np.zeros((3, 8, 8), np.float32)
    image[1, 2, 3] = value
    with pytest.raises(ModelError, match="must lie between 0 and 1"):
        as_file(image, kind)


def test_a_server_of_8_bits_is_never_shown_a_pixel_that_wrapped() -> None:
    shown: list[Scores] = []

    def infer(images: Scores) -> Scores:
        shown.append(images)
        return linear(np.asarray(images / 255, np.float32))

    with http_server(inference(infer, "UINT8")) as port:
        model = as_model(f"http://127.0.0.1:{port}/v2/models/m")
        beyond = IMAGES.copy()
        beyond[0, 0, 0, 0] = -1 / 255
        with pytest.raises(ModelError, match=r"must lie between 0 and 1; got -0.0039"):
            model(beyond)
        assert shown == []
        rounded = np.array([np.nextafter(np.float32(1), np.float32(2)), -1e-7], np.float32)
        beyond[0, 0, 0, :2] = rounded
        model(beyond)
    assert shown[0][0, 0, 0, :2].tolist() == [255, 0]
    np.testing.assert_array_equal(shown[0][1:], np.rint(IMAGES[1:].astype(np.float64) * 255))


def test_rounding_is_not_refused() -> None:
    image = np.full((1, 8, 8), np.nextafter(np.float32(1), np.float32(2)))
    assert np.asarray(Image.open(io.BytesIO(as_file(image, "png")))).min() == 255


# --- forks ----------------------------------------------------------------------------------------------------------


def in_a_fork(work: Callable[[], str]) -> str:
    """What a forked process returns; it fails rather than waits forever."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], 60)
        if not ready:
            os.kill(child, signal.SIGKILL)
        assert ready, "the child hangs"
        return os.read(reading, 10_000).decode()
    finally:
        os.waitpid(child, 0)
        os.close(reading)


def scores_in_a_fork(model: Any) -> str:
    return in_a_fork(lambda: str(np.allclose(model(IMAGES), linear(IMAGES), rtol=1e-4)))


def test_an_endpoint_works_in_a_fork() -> None:
    with http_server(replying(lambda _, scores: scores)) as port:
        model = HttpModel(classify_at(port), RequestPolicy(batch=1, in_flight=3, patience=5))
        model(IMAGES)
        with model._lock:  # as another thread may
            assert scores_in_a_fork(model) == "True"
        np.testing.assert_allclose(model(IMAGES), linear(IMAGES), rtol=1e-5)


def test_a_fork_opens_connections_of_its_own() -> None:
    """With a connection of its parent's it would read what the parent asked for."""
    clients: list[int] = []
    lock = threading.Lock()

    def reply(asked: Asked) -> Reply:
        with lock:
            clients.append(int(asked.headers["x-process"]))
        return 200, json.dumps(scores_of(json.loads(asked.body)).tolist()).encode()

    def classify(images: Any) -> Generator[Request, bytes, Any]:
        body = json.dumps(images.tolist()).encode()
        return json.loads((yield Request(f"http://127.0.0.1:{port}/", body, {"X-Process": str(os.getpid())})))

    with http_server(reply) as port:
        model = HttpModel(classify, RequestPolicy(batch=None))
        model(IMAGES)
        (idle,) = model._transport._idle.values()
        mine = [connection.sock.getsockname() for connection in idle]
        theirs = in_a_fork(
            lambda: (
                str(model(IMAGES).shape)
                + str([each.sock.getsockname() in mine for each in list(model._transport._idle.values())[-1]])
            )
        )
    assert theirs == "(6, 10)[False]"
    assert len(set(clients)) == 2


def test_a_server_over_http_works_in_a_fork_and_over_grpc_says_why_not() -> None:
    with http_server(inference(scores_of)) as port:
        model = as_model(f"http://127.0.0.1:{port}/v2/models/m?batch=2&patience=5")
        model(IMAGES)
        assert scores_in_a_fork(model) == "True"
    with grpc_server(lambda images, *_: scores_of(images)) as port:
        model = as_model(f"grpc://127.0.0.1:{port}/m?batch=2&patience=5")
        np.testing.assert_allclose(model(IMAGES), linear(IMAGES), rtol=1e-5)
        told = scores_in_a_fork(model)
    assert told.startswith("ModelError: grpc://127.0.0.1")
    assert "open the model in this process" in told


@pytest.mark.parametrize(("threads", "at_once"), [(1, 1), (1, 2), (2, 1)])
def test_a_session_works_in_a_fork_or_says_why_not(threads: int, at_once: int) -> None:
    runtime = pytest.importorskip("onnxruntime")
    from parsimon import zoo
    from parsimon.models.onnx import SessionModel

    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(str(zoo.path("robust")), options, providers=["CPUExecutionProvider"])
    model = SessionModel(session, at_once)
    images = zoo.images()[0][:24]
    expected = model(images)
    told = in_a_fork(lambda: str(np.array_equal(model(images), expected)))
    if threads == 1:
        assert told == "True"
    else:
        assert told.startswith("ModelError: this ONNX model was opened in another process")

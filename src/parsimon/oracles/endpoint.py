"""A model behind an HTTP endpoint with a format of its own, which a small function speaks."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from parsimon.errors import InputError, ModelError, first_line
from parsimon.oracles.partial import completed
from parsimon.oracles.remote import Pace, RemoteOracle, StrangeAnswer

Files = Literal["png", "jpeg"]


class Request(NamedTuple):
    """An HTTP request."""

    url: str
    body: bytes
    headers: Mapping[str, str] = {}
    method: str = "POST"


# Images, or files of them, to a request; its answer to scores (images, classes), or to the most probable classes.
Classify = Callable[[Any], Generator[Request, bytes, Any]]


class HttpOracle(RemoteOracle):
    """Shows images to an endpoint. The function yields one request, is sent the answer's body, and returns scores.

        def classify(images):
            body = yield Request("https://example.org/classify", json.dumps(images.tolist()).encode())
            return json.loads(body)["scores"]

    It is called anew for each attempt, several times at once. The headers of PARSIMON_HEADERS go with each request.

    Args:
        classify: The function. It is given images (k, channels, rows, columns), float32 in [0, 1]; or k files.
        pace: How the endpoint is asked; one image in a request unless it says otherwise.
        files: Show it files instead, `"png"` or `"jpeg"`, whose pixels have 8 bits: the attack must be in 8-bit mode.
            What JPEG loses is lost behind the ball, as a part of the model.
        top: The endpoint tells only so many classes, the most probable ones: the function returns for each image a
            mapping from their numbers to their probabilities. See `parsimon.oracles.partial` for what that allows.
        classes: How many there are; needed with `top`.
    """

    def __init__(
        self,
        classify: Classify,
        pace: Pace = Pace(batch=1),  # noqa: B008  (it is frozen)
        *,
        files: Files | None = None,
        top: int | None = None,
        classes: int | None = None,
    ) -> None:
        from parsimon.oracles.wire import Wire  # which brings TLS, and importing parsimon should stay quick

        super().__init__(f"the endpoint of {getattr(classify, '__name__', 'the function')}", pace)
        if files not in (None, "png", "jpeg"):
            raise InputError(f"files must be 'png', 'jpeg' or None; got {files!r}")
        if (top is None) != (classes is None) or (top is not None and not 1 <= top <= (classes or 0)):
            raise InputError(f"top and classes go together, 1 <= top <= classes; got top={top!r}, classes={classes!r}")
        self.eight_bit_only = files is not None
        self.top = None if top == classes else top  # None: it tells all classes
        self._classify, self._files, self._told, self._classes = classify, files, top, classes
        self._wire = Wire()

    def _attempt(self, images: NDArray[np.float32]) -> NDArray[Any]:
        shown = images if self._files is None else [as_file(image, self._files) for image in images]
        flow = self._classify(shown)
        try:
            request = next(flow)
        except (TypeError, StopIteration) as error:
            raise ModelError(f"{self._place} must yield a Request, then return scores: {first_line(error)}") from error
        if not isinstance(request, Request) or urlsplit(request.url).scheme not in ("http", "https"):
            # The request itself may hold a key, and is not shown.
            raise ModelError(
                f"{self._place} must yield a Request with an http:// or https:// address; got {type(request).__name__}"
            )
        headers = {**request.headers, **self._headers}
        response = self._wire.exchange(request.method, request.url, request.body, headers, self._pace.timeout)
        try:
            flow.send(response.body)
        except StopIteration as done:
            return self._scores_of(done.value, len(images))
        except Exception as error:  # the function may raise anything at an answer that it does not understand
            raise StrangeAnswer(f"{first_line(error)}, in the function") from error
        raise ModelError(f"{self._place} must yield one request for its images; got a second one")

    def _scores_of(self, answer: Any, images: int) -> NDArray[Any]:
        if self._told is None or self._classes is None:
            return np.asarray(answer)
        if not (isinstance(answer, Sequence) and all(isinstance(each, Mapping) for each in answer)):
            raise ModelError(
                f"{self._place} must return a list with a mapping from class to probability for each image, as "
                f"top={self._told} says; got {answer!r:.80}"
            )
        if len(answer) != images:
            raise ModelError(f"{self._place} must return a mapping for each of {images} images; got {len(answer)}")
        return completed(answer, self._classes, self._told)


def as_file(image: NDArray[np.float32], kind: Files) -> bytes:
    """An image of 8 bits as a file. JPEG is as good as it gets, and still not exact."""
    pixels = np.rint(image.transpose(1, 2, 0) * np.float32(255)).astype(np.uint8)
    file = io.BytesIO()
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    picture.save(file, kind, **({"quality": 95, "subsampling": 0} if kind == "jpeg" else {}))
    return file.getvalue()

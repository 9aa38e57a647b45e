"""A model behind an HTTP endpoint with its own format, which a small function implements."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from parsimon.errors import InputError, ModelError, check_whole, quote, whole_line
from parsimon.models.remote.address import split_url
from parsimon.models.remote.base import InvalidResponse, RemoteModel, RequestPolicy, as_bytes, checked_response
from parsimon.models.top_k import complete_scores

Files = Literal["png", "jpeg"]

_MOST_CLASSES = 10**6
_QUOTED = 4096  # bytes of a response: more than a message shows, so that no secret is cut before it is hidden


class Request(NamedTuple):
    """An HTTP request."""

    url: str
    body: bytes
    headers: Mapping[str, str] = {}
    method: str = "POST"


# Images or files to a request, then its response body to scores (images, classes), class numbers (images,), or the most
# probable classes.
Classify = Callable[[Any], Generator[Request, bytes, Any]]


class HttpModel(RemoteModel):
    """An HTTP endpoint. The function yields one request, is sent the response body, and returns scores or classes.

        def classify(images):
            body = yield Request("https://example.org/classify", json.dumps(images.tolist()).encode())
            return json.loads(body)["scores"]

    It is called for each attempt, by several threads at once. The headers of PARSIMON_HEADERS go with each request.

    Args:
        classify: The function. It is given images (k, channels, rows, columns), float32 in [0, 1]; or k files.
        policy: How the endpoint is queried; by default one image per request.
        files: Give the function files, `"png"` or `"jpeg"`. They have 8-bit pixels, so the attack must be in 8-bit
            mode. The loss of JPEG counts as a part of the model.
        top: The number of classes, the most probable ones, that the endpoint returns. The function then returns, for
            each image, a mapping from class to probability. See `parsimon.models.top_k` for what that allows. An
            endpoint that returns its best class without a probability needs no `top`: return the class numbers.
        classes: The number of all classes; needed with `top`.
    """

    def __init__(
        self,
        classify: Classify,
        policy: RequestPolicy = RequestPolicy(batch=1),  # noqa: B008  (it is frozen)
        *,
        files: Files | None = None,
        top: int | None = None,
        classes: int | None = None,
    ) -> None:
        if not callable(classify) or not isinstance(policy, RequestPolicy):
            got = f"{quote(classify)} and {quote(policy)}"
            raise InputError(f"HttpModel takes a function and a RequestPolicy; got {got}")
        self._name = f"the endpoint of {getattr(classify, '__name__', 'the function')}"
        super().__init__(self._name, policy, http=True)
        if not (files is None or (isinstance(files, str) and files in ("png", "jpeg"))):
            raise InputError(f"files must be 'png', 'jpeg' or None; got {quote(files)}")
        _check_top(top, classes)
        self.eight_bit_only = files is not None
        self.top = None if top == classes else top  # None: it returns all classes
        self._classify, self._files, self._returned, self._classes = classify, files, top, classes

    def _attempt(self, images: NDArray[np.float32]) -> NDArray[Any]:
        # A copy: the function may change it, and a retry must send the same images.
        inputs = images.copy() if self._files is None else [as_file(image, self._files) for image in images]
        flow, request = self._begin(inputs)
        headers = {**request.headers, **self._headers}
        self._learn_secrets(headers, request.url)
        self._place = self._redactor(f"{self._name} at {request.url.partition('?')[0]}")  # a query may hold a key
        timeout = self._policy.timeout
        response = self._transport.exchange(request.method, request.url, request.body, headers, timeout)
        with self._receiving:  # until the scores are copied: the function may reuse its buffer
            try:
                flow.send(response.body)
            except StopIteration as done:
                try:
                    return checked_response(self._scores_of(done.value, len(images)), len(images))
                except InvalidResponse as error:
                    raise InvalidResponse(f"{error}. {_received(response.body)}") from error
            except Exception as error:  # the function may raise anything
                raise InvalidResponse(f"{whole_line(error)}, in the function. {_received(response.body)}") from error
        raise ModelError(f"{self._place} must yield one request for its images; got a second one")

    def _enter_process(self) -> None:
        super()._enter_process()
        self._receiving = threading.Lock()

    def _begin(self, inputs: Any) -> tuple[Generator[Request, bytes, Any], Request]:
        """Call the function and check its request. Messages do not show it, since it may hold a key."""
        must = f"{self._place} must yield a Request, then return scores"
        try:
            flow = self._classify(inputs)
            request = next(flow)
        except Exception as error:  # the function may raise anything
            raise ModelError(f"{must}: {whole_line(error)}") from error
        if not isinstance(request, Request) or not isinstance(request.headers, Mapping):
            raise ModelError(f"{must}; got {type(request).__name__}")
        try:
            scheme = split_url(request.url).scheme
        except InputError as error:
            raise ModelError(f"{must}: {error}") from None
        if scheme not in ("http", "https"):
            raise ModelError(f"{must}: its address must begin with http:// or https://")
        return flow, request

    def _scores_of(self, answer: Any, images: int) -> Any:
        if self._returned is None or self._classes is None:
            return answer
        if not (isinstance(answer, Sequence) and all(isinstance(each, Mapping) for each in answer)):
            raise ModelError(
                f"{self._place} must return a list with one mapping from class to probability per image, as "
                f"top={self._returned} says; got {quote(answer)}. To return class numbers, leave out top and classes"
            )
        if len(answer) != images:
            raise InvalidResponse(f"the function must return a mapping for each of {images} images; got {len(answer)}")
        return complete_scores(answer, self._classes, self._returned)


def _received(body: bytes) -> str:
    """Return the beginning of a response for a message, which hides its secrets and shortens it."""
    text = " ".join(body[:_QUOTED].decode("utf-8", "replace").split())
    return f"The response begins: {text}" if text else "The response is empty"


def _check_top(top: int | None, classes: int | None) -> None:
    if top is None and classes is None:
        return
    if top is None or classes is None:
        raise InputError(f"top and classes go together; got top={quote(top)}, classes={quote(classes)}")
    check_whole("classes", classes, 2, _MOST_CLASSES)
    check_whole("top", top, 1, classes, ", which is the number of classes")


def as_file(image: NDArray[np.float32], kind: Files) -> bytes:
    """Return an 8-bit image as a file, a JPEG in the best quality."""
    pixels = as_bytes(image.transpose(1, 2, 0))
    file = io.BytesIO()
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    picture.save(file, kind, **({"quality": 95, "subsampling": 0} if kind == "jpeg" else {}))
    return file.getvalue()

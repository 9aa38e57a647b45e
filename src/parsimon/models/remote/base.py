"""A remote model: concurrent requests, a rate limit, retries after transient failures, and counts of all images sent.

Queries have no side effects on the server, so every failure that may be transient is retried. Such a failure is a
missing or broken connection, a timeout, half a response or an overloaded server. A lasting refusal is not retried.

No error of a remote model shows a secret: `RemoteModel._sanitised` replaces each one, without its cause.
"""

from __future__ import annotations

import logging
import math
import os
import random
import re
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model, Traffic, as_columns
from parsimon.errors import InputError, ModelError, OutageError, ParsimonError, check_number, check_whole, whole_line
from parsimon.models.remote.redaction import Redactor

HEADERS = "PARSIMON_HEADERS"

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0  # seconds; each pause is twice the one before
_MOST_INVALID = 5  # invalid responses to one request; a server that sends that many means them
_SILENCE, _NOTICE_EVERY = 3.0, 60.0  # seconds of retries before a line says so, and between two such lines
_FIRST_PATIENCE = 5.0  # seconds for the first contact, so that a wrong address fails soon

_LARGEST_BATCH = 10**6
_MOST_IN_FLIGHT = 1000  # each is a thread
_RATES = 1e-5, 1e6  # requests per second; the lowest is about one per day
_SECONDS = 1e-3, 1e6  # up to eleven days; a socket's limit is about twice that
_PIXEL_ROUNDING = 0.01  # by how much an 8-bit pixel may lie outside 0..255

_HEADER_NAME = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~-]+")

Answer = TypeVar("Answer")

_LOG = logging.getLogger("parsimon")


class TransientError(Exception):
    """A failed attempt that may succeed the next time. `wait`: after how many seconds, if the server says."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class InvalidResponse(TransientError):  # noqa: N818  (it is an answer, after all)
    """An answer that cannot be used: damaged in transit, or meant."""


class MissingModelError(ModelError):
    """The server does not have the model, or no longer has it."""


@dataclass(frozen=True)
class RequestPolicy:
    """Batches, rate, timeout and retries of the requests to a remote model.

    Attributes:
        batch: Images per request; None: all of a batch, or as many as the server allows.
        in_flight: Concurrent requests.
        rate: Requests per second, retries included; None: no limit.
        timeout: Seconds for one request.
        patience: Seconds for which a request with transient failures is retried.
    """

    batch: int | None = None
    in_flight: int = 4
    rate: float | None = None
    timeout: float = 10.0
    patience: float = 60.0

    def __post_init__(self) -> None:
        if self.batch is not None:
            check_whole("batch", self.batch, 1, _LARGEST_BATCH)
        check_whole("in_flight", self.in_flight, 1, _MOST_IN_FLIGHT, ", since each request in flight takes a thread")
        if self.rate is not None:
            check_number("rate", self.rate, *_RATES)
        check_number("timeout", self.timeout, *_SECONDS)
        check_number("patience", self.patience, *_SECONDS)


class RemoteModel(Model):
    """A model behind a network. A subclass implements one attempt at one request."""

    traffic: Traffic

    def __init__(self, place: str, policy: RequestPolicy, *, http: bool = False) -> None:
        """`place`: the address, for messages. `http`: whether it is queried over HTTP."""
        self.traffic = Traffic()
        self._place = place
        self._policy = policy
        self._headers = headers_from_environment()
        self._redactor = Redactor()
        self._redactor.learn(self._headers)
        if http:
            from parsimon.models.remote.transport import Transport  # lazily: it imports TLS, which is slow

            self._transport = Transport()
            self._redactor.learn(self._transport.proxy_credentials)
        self._classes: int | None = None  # the number in the first response
        self._next_turn = 0.0
        self._noticed = -math.inf  # when a line last said that requests are retried
        self._enter_process()

    @abstractmethod
    def _attempt(self, images: NDArray[np.float32]) -> NDArray[Any]:
        """Query once; raise TransientError if a retry makes sense, else ModelError."""

    def _enter_process(self) -> None:
        """Create what a forked process cannot inherit: threads, and a lock that nobody there would release."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(self._policy.in_flight, thread_name_prefix="parsimon")

    def _after_fork(self) -> None:
        self._enter_process()

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        if self._process != os.getpid():
            self._after_fork()
        requests = -(-len(images) // (self._policy.batch or len(images)))
        cancelled = threading.Event()
        if requests == 1:
            return self._scores(images, cancelled)
        failures: list[BaseException] = []

        def query(part: NDArray[np.float32]) -> NDArray[Any]:
            try:
                return self._scores(part, cancelled)
            except BaseException as error:
                failures.append(error)
                cancelled.set()
                raise

        answers = [self._pool.submit(query, part) for part in np.array_split(images, requests)]
        try:
            wait(answers, return_when=FIRST_EXCEPTION)
            if failures:
                raise failures[0]
            return np.concatenate([answer.result() for answer in answers])
        finally:  # after a failure or a second Ctrl-C, nobody waits for the others
            cancelled.set()
            for answer in answers:
                answer.cancel()

    def _scores(self, images: NDArray[np.float32], cancelled: threading.Event) -> NDArray[Any]:
        def query() -> NDArray[Any]:
            self._count(Traffic(attempted=len(images)))
            scores = checked_response(self._attempt(images), len(images))
            if scores.dtype.kind == "f" and np.isnan(scores).any():
                raise InvalidResponse("some of the scores are NaN")
            self._check_classes(scores.shape[1])
            return scores

        scores = self._with_retries(query, self._policy.patience, cancelled)
        self._count(Traffic(answered=len(images)))
        return scores

    def _check_classes(self, classes: int) -> None:
        with self._lock:
            self._classes = self._classes or classes
        if classes != self._classes:
            raise InvalidResponse(
                f"the scores must be of {self._classes} classes, as in the first response; got {classes}"
            )

    def _first_contact(self, query: Callable[[], Answer]) -> Answer:
        """Query before any image is sent."""
        return self._with_retries(query, min(self._policy.patience, _FIRST_PATIENCE), threading.Event())

    def _with_retries(self, query: Callable[[], Answer], patience: float, cancelled: threading.Event) -> Answer:
        failing_since: float | None = None
        invalid = 0
        for number in count():
            self._wait_for_turn(cancelled)
            if cancelled.is_set():
                raise OutageError(f"{self._place} is no longer queried, since another request failed")
            try:
                return query()
            except Exception as error:
                failure = self._sanitised(error)
            # Raised outside of the handler, an error has no context, which would be shown with it.
            if not isinstance(failure, TransientError):
                raise failure
            invalid += isinstance(failure, InvalidResponse)
            if invalid == _MOST_INVALID:
                raise ModelError(f"{self._place} sent {invalid} invalid responses to one request; the last: {failure}")
            # Random, so that clients that failed together do not retry together.
            pause = random.uniform(0.5, 1) * min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(number, 20))
            pause = max(pause, failure.wait)
            now = time.monotonic()
            failing_since = failing_since or now
            if now + pause - failing_since > patience:
                raise OutageError(
                    f"{self._place} has not answered in {patience:g} seconds; the last of {number + 1} attempts: "
                    f"{failure}"
                )
            if now + pause - failing_since >= _SILENCE:
                self._notice(failure, patience - (now - failing_since))
            cancelled.wait(pause)
        raise AssertionError("counting does not end")

    def _notice(self, failure: TransientError, seconds_left: float) -> None:
        """Say that a request is retried, once for all requests that fail together."""
        with self._lock:
            now = time.monotonic()
            if now - self._noticed < _NOTICE_EVERY:
                return
            self._noticed = now
        _LOG.warning("no answer from %s: %s; trying again for %.0f s more", self._place, failure, seconds_left)

    def _sanitised(self, error: Exception) -> Exception:
        """Return a new error without secrets, and without the cause of the old one, which may show them."""
        if isinstance(error, TransientError):
            return type(error)(self._redactor(str(error)), error.wait)
        if isinstance(error, ParsimonError):
            return type(error)(self._redactor(str(error)))
        return ModelError(self._redactor(f"{self._place} cannot be queried: {whole_line(error)}"))

    def _learn_secrets(self, headers: Mapping[str, object], url: str) -> None:
        """Remember what a request sends, since a server may quote it."""
        with self._lock:
            self._redactor.learn(headers, url)

    def _wait_for_turn(self, cancelled: threading.Event) -> None:
        """Wait until 1 / rate seconds after the start of the previous request."""
        if self._policy.rate is None:
            return
        with self._lock:
            turn = max(self._next_turn, time.monotonic())
            self._next_turn = turn + 1 / self._policy.rate
        cancelled.wait(turn - time.monotonic())

    def _count(self, traffic: Traffic) -> None:
        with self._lock:
            self.traffic += traffic


def checked_response(answer: object, rows: int) -> NDArray[Any]:
    """Return a copy of the scores, since a function may reuse its buffer; refuse other shapes and types.

    Class numbers of shape (images,) become one column.

    One extra row in a request and one missing in the next would shift all rows between them.
    """
    try:
        scores = as_columns(np.array(answer))
    except Exception as error:  # rows that differ in length, or whatever an object raises
        raise InvalidResponse(f"numpy cannot read the scores: {whole_line(error)}") from error
    if scores.ndim != 2 or len(scores) != rows or not scores.shape[1]:
        raise InvalidResponse(
            f"the scores must have shape (images, classes), here ({rows}, classes); got {scores.shape}"
        )
    if scores.dtype.kind not in "fiu":
        raise InvalidResponse(f"the scores must be real numbers; got an array of {scores.dtype}")
    return scores


def as_bytes(images: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return pixels in [0, 1] as integers 0..255. Refuse others, which would wrap around: -1 to 255."""
    pixels = images * np.float32(255)
    if pixels.size and not (pixels.min() >= -_PIXEL_ROUNDING and pixels.max() <= 255 + _PIXEL_ROUNDING):
        raise ModelError(
            f"the model takes 8-bit pixels, so pixels must lie between 0 and 1; got {images.min():g} to "
            f"{images.max():g}. Clip the images"
        )
    return np.asarray(np.rint(pixels).clip(0, 255), np.uint8)


def headers_from_environment() -> dict[str, str]:
    """Return the headers of every request, such as a key; they are neither stored nor shown."""
    headers = {}
    for line in filter(None, map(str.strip, os.environ.get(HEADERS, "").splitlines())):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not (_HEADER_NAME.fullmatch(name) and colon and value and line.isascii() and line.isprintable()):
            raise InputError(
                f"{HEADERS} must hold lines such as `Authorization: Bearer KEY`; one of its lines (not shown here) is "
                "no header"
            )
        headers[name.lower()] = value
    return headers

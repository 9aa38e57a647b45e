"""A model behind a network: several requests at once, at a pace, again where one failed in passing, all counted.

Asking for scores changes nothing on the other side, so whatever may be a passing failure is tried again: no connection,
a broken one, no answer in time, half an answer, an overloaded server. What will be refused the next time too is not.

No error that leaves an oracle shows a secret: each is made anew by `RemoteModel._sanitised`, without its cause.
"""

from __future__ import annotations

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

from parsimon.core.model import Model, Traffic
from parsimon.errors import (
    InputError,
    ModelError,
    OutageError,
    ParsimonError,
    check_number,
    check_whole,
    whole_line,
)
from parsimon.models.remote.redaction import Redactor

HEADERS = "PARSIMON_HEADERS"

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0  # seconds; each pause is twice the one before
_STRANGE_ANSWERS = 5  # to one request; whoever gives so many means them
_PATIENCE_AT_FIRST = 5.0  # seconds; an address with a mistake in it should be known soon

_LARGEST_BATCH = 10**6
_MOST_IN_FLIGHT = 1000  # each is a thread
_RATES = 1e-5, 1e6  # from one request in a day
_SECONDS = 1e-3, 1e6  # up to eleven days; a socket can wait for about twice as long
_BEYOND = 0.01  # a pixel of 8 bits may lie outside 0..255 by so much, through rounding

_HEADER_NAME = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~-]+")

Answer = TypeVar("Answer")


class TransientError(Exception):
    """An attempt that failed in a way that may be over the next time; perhaps the server says when."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class InvalidResponse(TransientError):  # noqa: N818  (it is an answer, after all)
    """An answer that cannot be used: damaged on its way, or else meant."""


class MissingModelError(ModelError):
    """The server has no such model, or has it no more."""


@dataclass(frozen=True)
class RequestPolicy:
    """How a server is asked.

    Attributes:
        batch: Images in a request; None: as many as there are, or as the server allows.
        in_flight: Requests at once.
        rate: Requests begun in a second, those that are tried again among them; None: no limit.
        timeout: Seconds that a request may take.
        patience: Seconds for which a request that fails in passing is tried again.
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
    """Shows images to a model behind a network. What a subclass adds is one attempt at one request."""

    traffic: Traffic

    def __init__(self, place: str, pace: RequestPolicy) -> None:
        self.traffic = Traffic()
        self._place = place  # for sentences
        self._pace = pace
        self._headers = headers_from_environment()
        self._redacted = Redactor()
        self._redacted.learn(self._headers)
        self._classes: int | None = None  # as many as the first response has
        self._next_turn = 0.0
        self._enter_process()

    @abstractmethod
    def _attempt(self, images: NDArray[np.float32]) -> NDArray[Any]:
        """Ask once; raise TransientError where it makes sense to ask again, and ModelError where it does not."""

    def _enter_process(self) -> None:
        """Make what a forked process cannot inherit: threads, and a lock that nobody there would release."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(self._pace.in_flight, thread_name_prefix="parsimon")

    def _after_fork(self) -> None:
        self._enter_process()

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        if self._process != os.getpid():
            self._after_fork()
        requests = -(-len(images) // (self._pace.batch or len(images)))
        parts = np.array_split(images, requests)  # of about one size, so that none is small beside others
        given_up = threading.Event()
        if requests == 1:
            return self._scores(images, given_up)
        failures: list[BaseException] = []

        def ask(part: NDArray[np.float32]) -> NDArray[Any]:
            try:
                return self._scores(part, given_up)
            except BaseException as error:
                failures.append(error)
                given_up.set()
                raise

        answers = [self._pool.submit(ask, part) for part in parts]
        try:
            wait(answers, return_when=FIRST_EXCEPTION)
            if failures:
                raise failures[0]
            return np.concatenate([answer.result() for answer in answers])
        finally:  # after a failure, or a second Ctrl-C, nobody waits for the others
            given_up.set()
            for answer in answers:
                answer.cancel()

    def _scores(self, images: NDArray[np.float32], given_up: threading.Event) -> NDArray[Any]:
        def ask() -> NDArray[Any]:
            self._count(Traffic(attempted=len(images)))
            scores = checked_scores(self._attempt(images), len(images))
            if scores.dtype.kind == "f" and np.isnan(scores).any():
                raise InvalidResponse("some of the scores are NaN")
            self._check_classes(scores.shape[1])
            return scores

        scores = self._patiently(ask, self._pace.patience, given_up)
        self._count(Traffic(answered=len(images)))
        return scores

    def _check_classes(self, classes: int) -> None:
        with self._lock:
            self._classes = self._classes or classes
        if classes != self._classes:
            raise InvalidResponse(
                f"the scores must be of {self._classes} classes, as in the first response; got {classes}"
            )

    def _at_first(self, ask: Callable[[], Answer]) -> Answer:
        """The first contact, before any image is shown."""
        return self._patiently(ask, min(self._pace.patience, _PATIENCE_AT_FIRST), threading.Event())

    def _patiently(self, ask: Callable[[], Answer], patience: float, given_up: threading.Event) -> Answer:
        failing_since: float | None = None
        strange = 0
        for number in count():
            self._wait_for_turn(given_up)
            if given_up.is_set():
                raise OutageError(f"{self._place} is not asked any more")
            try:
                return ask()
            except Exception as error:
                failure = self._sanitised(error)
            # Raised out here, an error has no context, which would be shown with it.
            if not isinstance(failure, TransientError):
                raise failure
            strange += isinstance(failure, InvalidResponse)
            if strange == _STRANGE_ANSWERS:
                raise ModelError(
                    f"{self._place} has answered {strange} times what cannot be used; the last time: {failure}"
                )
            # Only the time it takes is random: clients that failed together do not come back together.
            pause = random.uniform(0.5, 1) * min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(number, 20))
            pause = max(pause, failure.wait)
            now = time.monotonic()
            failing_since = failing_since or now
            if now + pause - failing_since > patience:
                raise OutageError(
                    f"{self._place} has not answered in {patience:g} seconds; the last of {number + 1} attempts: "
                    f"{failure}"
                )
            given_up.wait(pause)
        raise AssertionError("counting does not end")

    def _sanitised(self, error: Exception) -> Exception:
        """Return the error anew, without secrets and without its cause, which may show them."""
        if isinstance(error, TransientError):
            return type(error)(self._redacted(str(error)), error.wait)
        if isinstance(error, ParsimonError):
            return type(error)(self._redacted(str(error)))
        return ModelError(self._redacted(f"{self._place} cannot be asked: {whole_line(error)}"))

    def _learn_secrets(self, headers: Mapping[str, object], url: str) -> None:
        """Remember what a request sends, since a server may quote it."""
        with self._lock:
            self._redacted.learn(headers, url)

    def _wait_for_turn(self, given_up: threading.Event) -> None:
        """Requests begin at least 1 / rate apart."""
        if self._pace.rate is None:
            return
        with self._lock:
            turn = max(self._next_turn, time.monotonic())
            self._next_turn = turn + 1 / self._pace.rate
        given_up.wait(turn - time.monotonic())

    def _count(self, traffic: Traffic) -> None:
        with self._lock:
            self.traffic += traffic


def checked_scores(answer: object, rows: int) -> NDArray[Any]:
    """Return a copy of the scores: a function may reuse its buffer. Refuse another number of rows, and no numbers.

    A row too many in one request and a row too few in another would shift all rows between them.
    """
    try:
        scores = np.array(answer)
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
    """Return pixels in [0, 1] as whole numbers 0..255. Refuse others, which would wrap around: -1 to 255."""
    pixels = images * np.float32(255)
    if pixels.size and not (pixels.min() >= -_BEYOND and pixels.max() <= 255 + _BEYOND):
        raise ModelError(
            f"the model takes 8-bit pixels, so pixels must lie between 0 and 1; got {images.min():g} to "
            f"{images.max():g}. Clip the images"
        )
    return np.asarray(np.rint(pixels).clip(0, 255), np.uint8)


def headers_from_environment() -> dict[str, str]:
    """What is sent with every request, such as a key; it is neither stored nor shown."""
    headers = {}
    for line in filter(None, map(str.strip, os.environ.get(HEADERS, "").splitlines())):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not (_HEADER_NAME.fullmatch(name) and colon and value and line.isascii() and line.isprintable()):
            raise InputError(
                f"{HEADERS} must hold lines such as `Authorization: Bearer KEY`; a line of it (not shown here) is none"
            )
        headers[name.lower()] = value
    return headers

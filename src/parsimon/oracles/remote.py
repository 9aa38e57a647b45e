"""A model behind a network: several requests at once, at a pace, again where one failed in passing, all counted.

Asking for scores changes nothing on the other side, so whatever may be a passing failure is tried again: no connection,
a broken one, no answer in time, half an answer, an overloaded server. What will be refused the next time too is not.
"""

from __future__ import annotations

import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, TypeVar

import array_api_compat.numpy as numpy_namespace
import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError, ModelError, OutageError
from parsimon.protocol import Traffic

HEADERS = "PARSIMON_HEADERS"

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0  # seconds; each pause is twice the one before
_STRANGE_ANSWERS = 5  # to one request; whoever gives so many means them
_PATIENCE_AT_FIRST = 5.0  # seconds; an address with a mistake in it should be known soon

Answer = TypeVar("Answer")


class PassingError(Exception):
    """An attempt that failed in a way that may be over the next time; perhaps the server says when."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class StrangeAnswer(PassingError):  # noqa: N818  (it is an answer, after all)
    """An answer that cannot be used: damaged on its way, or else meant."""


class MissingModelError(ModelError):
    """The server has no such model, or has it no more."""


@dataclass(frozen=True)
class Pace:
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
        for name in ("batch", "in_flight", "rate", "timeout", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be more than 0; got {value!r}")


class RemoteOracle(ABC):
    """Shows images to a model behind a network. What a subclass adds is one attempt at one request."""

    namespace = numpy_namespace
    device = "cpu"
    fixed_batch = False

    def __init__(self, place: str, pace: Pace) -> None:
        self.traffic = Traffic()
        self._place = place  # for sentences
        self._pace = pace
        self._headers = headers_from_environment()
        self._lock = threading.Lock()
        self._next_turn = 0.0

    @abstractmethod
    def _attempt(self, images: NDArray[np.float32]) -> NDArray[Any]:
        """Ask once; raise PassingError where it makes sense to ask again, and ModelError where it does not."""

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
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

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._pace.in_flight, thread_name_prefix="parsimon")

    def _scores(self, images: NDArray[np.float32], given_up: threading.Event) -> NDArray[Any]:
        def ask() -> NDArray[Any]:
            self._count(Traffic(attempted=len(images)))
            scores = self._attempt(images)
            if scores.dtype.kind == "f" and np.isnan(scores).any():
                raise StrangeAnswer("some of the scores are NaN")
            return scores

        scores = self._patiently(ask, self._pace.patience, given_up)
        self._count(Traffic(answered=len(images)))
        return scores

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
            except PassingError as error:
                strange += isinstance(error, StrangeAnswer)
                if strange == _STRANGE_ANSWERS:
                    raise ModelError(
                        f"{self._place} has answered {strange} times what cannot be used; the last time: "
                        f"{self._without_secrets(str(error))}"
                    ) from None
                # Only the time it takes is random: clients that failed together do not come back together.
                pause = random.uniform(0.5, 1) * min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**number)
                pause = max(pause, error.wait)
                now = time.monotonic()
                failing_since = failing_since or now
                if now + pause - failing_since > patience:
                    raise OutageError(
                        f"{self._place} has not answered in {patience:g} seconds; the last of {number + 1} attempts: "
                        f"{self._without_secrets(str(error))}"
                    ) from None
                given_up.wait(pause)
            except ModelError as error:
                raise ModelError(self._without_secrets(str(error))) from None
        raise AssertionError("counting does not end")

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

    def _without_secrets(self, text: str) -> str:
        """What a server says may quote what it was sent."""
        for value in self._headers.values():
            for secret in (value, value.rpartition(" ")[2]):  # `Bearer abc` may be quoted as `abc`
                text = text.replace(secret, "***") if len(secret) > 3 else text
        return text


def headers_from_environment() -> dict[str, str]:
    """What is sent with every request, such as a key; it is neither stored nor shown."""
    headers = {}
    for line in filter(None, map(str.strip, os.environ.get(HEADERS, "").splitlines())):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not (name and colon and value) or " " in name or not (line.isascii() and line.isprintable()):
            raise InputError(
                f"{HEADERS} must hold lines such as `Authorization: Bearer KEY`; a line of it (not shown here) is none"
            )
        headers[name.lower()] = value
    return headers

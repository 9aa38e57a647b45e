"""A network for a process that is to be killed. It logs every moment, and reports the one that a test has chosen.

Every model call is a moment, and so is every SQL statement on the run file. Each is a line in a log, which is handed to
the operating system at once, so that a kill loses none. At the chosen moment the process kills itself, or prints "now"
and continues, so that the test can kill it later.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import sqlite3
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Model, ScoreGradient

Pixels = NDArray[np.float32]
Exact = NDArray[np.float64]

SHAPE = (3, 8, 8)


class Network(Model):
    """Two layers with gradients. The scores of a row do not depend on other rows, not even in the last bit."""

    gives = "gradient"

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self._first = random.normal(size=(16, 192))
        self._second = random.normal(size=(3, 16))

    def __call__(self, images: Pixels) -> Exact:
        return _product(self._hidden(images), self._second)

    def vjp(self, images: Pixels, slope: ScoreGradient) -> tuple[Exact, Pixels]:
        hidden = self._hidden(images)
        scores = _product(hidden, self._second)
        back = _product(slope(scores), self._second.T) * (1 - hidden**2)
        return scores, _product(back, self._first.T).reshape(images.shape).astype(np.float32)

    def _hidden(self, images: Pixels) -> Exact:
        return np.tanh(_product(images.reshape(len(images), -1) - 0.5, self._first))


def _product(rows: NDArray[Any], matrix: Exact) -> Exact:
    total: Exact = (rows[:, None, :] * matrix).sum(
        axis=-1
    )  # a matrix product may round differently for other numbers of rows
    return total


class Log:
    """The moments so far, and the chosen one: `rows/moment/now` or `rows/moment/later`."""

    def __init__(self) -> None:
        self._file = os.open(os.environ["WATCH_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        rows, self._moment, self._how = os.environ.get("WATCH_FOR", "0//").split("/")
        self._rows = int(rows)  # rows of searches to be shown before the moment
        self._searching = False

    def shown(self, images: Pixels) -> None:
        if self._searching:
            self._rows -= len(images)
        self.moment(" ".join(["shown", *(hashlib.sha1(image.tobytes()).hexdigest()[:12] for image in images)]))

    def executed(self, statement: str) -> None:
        """Log an SQL statement. The run file is opened after the checks, so searches begin then."""
        self._searching = True
        self.moment(" ".join(statement.split()[:3]))

    def moment(self, what: str) -> None:
        os.write(self._file, f"{what}\n".encode())
        if self._how and self._rows <= 0 and what.startswith(self._moment):
            if self._how == "now":
                os.kill(os.getpid(), signal.SIGKILL)
            self._how = ""
            print("now", file=sys.stderr, flush=True)


class Watched(Network):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def __call__(self, images: Pixels) -> Exact:
        self._log.shown(images)
        scores = super().__call__(images)
        self._log.moment("answered")
        return scores

    def vjp(self, images: Pixels, slope: ScoreGradient) -> tuple[Exact, Pixels]:
        self._log.shown(images)
        answer = super().vjp(images, slope)
        self._log.moment("answered")
        return answer


def build() -> Watched:
    """Return the network. WATCH_ROOM limits the bytes of every file, as a nearly full disk does."""
    if room := int(os.environ.get("WATCH_ROOM", "0")):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    log = Log()
    connect = sqlite3.connect

    def watched(*arguments: Any, **settings: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **settings)
        connection.set_trace_callback(log.executed)
        return connection

    vars(sqlite3)["connect"] = watched
    log.moment("built")
    return Watched(log)

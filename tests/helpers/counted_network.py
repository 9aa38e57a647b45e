"""A network for many processes: each row that it is shown is a line in a log, with the process that showed it.

At a chosen moment one process kills itself, raises, or says that the moment has come and goes on or waits forever. What
to do is told in a file in the working folder, since a worker on another node does not inherit an environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import ScoreGradient
from parsimon.testing import Network

WATCH: dict[str, Any] = json.loads(_file.read_text()) if (_file := Path("counted_network.json")).exists() else {}
SHAPE = (3, 8, 8)
CHECKS = {"built": 1, "shown": 3, "answered": 3}  # of 9 to 16 images in batches of 8


class Log:
    """Lines that are handed to the operating system at once, so that no kill takes them back."""

    def __init__(self) -> None:
        self._file = os.open(WATCH["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def shown(self, images: NDArray[np.float32]) -> None:
        rows = (hashlib.sha1(image.tobytes()).hexdigest()[:12] for image in images)
        os.write(self._file, " ".join([str(os.getpid()), *rows]).encode() + b"\n")


class Moment:
    """`kill/shown/7`: what happens, where, and the how many-th time; it happens in the first process to come so far.

    The checks before a run, which the driver makes, are not counted.
    """

    def __init__(self) -> None:
        self._what, self._where, times = WATCH["moment"].split("/")
        driver = os.getppid() == WATCH["test"]
        self._times = int(times) + (CHECKS[self._where] if driver and self._where else 0)

    def come(self, where: str) -> None:
        if where != self._where:
            return
        self._times -= 1
        if self._times == 0 and self._first():
            getattr(self, self._what)()

    def _first(self) -> bool:
        try:
            with Path(WATCH["come"]).open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return bool(self._what == "kill_all")
        return True

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    kill_all = kill

    def fail(self) -> None:
        raise OSError("the network has gone out")

    def wait(self) -> None:
        time.sleep(1000)

    def say(self) -> None:
        """Nothing more than has been said."""


@dataclass(frozen=True)
class Counted(Network):
    log: Any = None
    moment: Any = None

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        self.log.shown(images)
        self.moment.come("shown")
        scores = super().__call__(images)
        self.moment.come("answered")
        return scores

    def vjp(self, images: NDArray[np.float32], slope: ScoreGradient) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        return super().vjp(images, slope)  # which shows them to the above


def build() -> Counted:
    moment = Moment()
    moment.come("built")
    return Counted(SHAPE, log=Log(), moment=moment)

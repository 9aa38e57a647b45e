"""A classifier that counts its calls in this process, and presses Ctrl-C in a chosen one."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from small_model import Pixels, linear


@dataclass
class Clock:
    """The calls so far, of all models that were built, and the one that is interrupted; 0 for none."""

    calls: int = 0
    at: int = 0

    def set(self, at: int) -> None:
        self.calls, self.at = 0, at


CLOCK = Clock()


def model(images: Pixels) -> Pixels:
    CLOCK.calls += 1
    if CLOCK.calls == CLOCK.at:
        signal.raise_signal(signal.SIGINT)
    return linear(images)


def build() -> object:
    return model


again = build  # under another name, since the models of an evaluation must differ

"""What the proxies of this folder share: which fault to inject next, and a line for everything that happened."""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import threading
from collections.abc import Sequence
from typing import Any


class Faults:
    """Draws a fault for a share of the requests, and writes on standard output what became of each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._random = random.Random(options.seed)
        self._share: float = options.share
        self._kinds: list[str] = options.faults.split(",")
        self._left: float = options.die_after
        self._lock = threading.Lock()

    def draw(self) -> str | None:
        with self._lock:
            self._left -= 1
            if self._left < 0:
                os._exit(0)
            return self._random.choice(self._kinds) if self._random.random() < self._share else None

    def tell(self, **what: Any) -> None:
        with self._lock:
            print(json.dumps(what), flush=True)


def options_of(arguments: Sequence[str] = sys.argv[1:]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--to", type=int, required=True, help="The server's port.")
    parser.add_argument("--share", type=float, default=0.0, help="Of the requests that get a fault.")
    parser.add_argument("--faults", default="", help="Their kinds, with commas between.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stall", type=float, default=0.0, help="Seconds for which a slow answer is held back.")
    parser.add_argument("--die-after", type=float, default=math.inf, help="So many requests with images.")
    parser.add_argument("--key", help="What must come as the header `authorization`.")
    parser.add_argument("--certificate", help="A file with certificate and key, to speak TLS.")
    return parser.parse_args(arguments)

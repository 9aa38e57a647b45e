"""What a server between costs: wall time of a run through it over that of the same run in process, taken in turns.

    python benchmarks/server.py [mlserver] [triton]        of those that `make test-servers` has installed

Both use ONNX Runtime with one thread. Then once more through a proxy that spoils every fifth request.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
os.environ["OMP_NUM_THREADS"] = "1"

import parsimon
from parsimon import zoo
from running_servers import proxy, running

IMAGES, BUDGET, TURNS = 100, 300, 3
FAULTS = {
    "grpc": "UNAVAILABLE,RESOURCE_EXHAUSTED,INTERNAL,ABORTED,garbage,nan,slow",
    "http": "reset,half,429,503,500,garbage,nan,slow",
}


def timed(model: str) -> tuple[float, parsimon.Result]:
    images, labels = (array[:IMAGES] for array in zoo.images())
    began = time.perf_counter()
    result = parsimon.attack(model, images, labels, 8 / 255, budget=BUDGET, batch_size=64)
    return time.perf_counter() - began, result


def measure(name: str, folder: Path) -> None:
    with running(name, folder) as server:
        for protocol in ("grpc", "http"):
            if (name, protocol) == ("mlserver", "http"):
                continue  # text, which takes ten times as long
            turns = []
            for _ in range(TURNS):
                (here, expected), (there, result) = timed("robust"), timed(server.url(protocol))
                turns.append((here, there))
                assert result.outcomes == expected.outcomes
            ratio = statistics.median(there / here for here, there in turns)
            tell(name, protocol, f"{result.tally.queries:,} queries, ratio {ratio:.2f}", turns)
            options = ("--share", "0.2", "--faults", FAULTS[protocol], "--stall", "4")
            with proxy(protocol, getattr(server, protocol), folder, *options) as between:
                there, result = timed(server.url(protocol, port=between.port, settings="timeout=3"))
                faults = sum(bool(each["fault"]) for each in between.shown)
                requests = len(between.shown)
            assert result.outcomes == expected.outcomes
            assert result.traffic is not None
            assert result.traffic.answered == result.tally.rows + result.tally.padding
            tell(name, protocol, f"{faults} faults in {requests} requests: the same results, {result.traffic}", there)


def tell(*what: Any) -> None:
    print(*what, sep="  ", flush=True)


for each in sys.argv[1:] or ("mlserver", "triton"):
    with tempfile.TemporaryDirectory() as made:
        measure(each, Path(made))

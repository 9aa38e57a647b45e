"""Measure the cost of an inference server: the time of a run through it relative to the same run in process.

    python benchmarks/server.py [mlserver] [triton]        servers installed by `make test-servers`

Both use ONNX Runtime with one thread and run in turns. The script reports wall time, and processor time of client and
server together, which is meaningful on a busy machine too. It then repeats the run through a proxy that spoils every
fifth request.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))
os.environ["OMP_NUM_THREADS"] = "1"

import parsimon
from parsimon import zoo
from running_servers import proxy, running

IMAGES, BUDGET, TURNS = 100, 200, 3
FAULTS = {
    "grpc": "UNAVAILABLE,RESOURCE_EXHAUSTED,INTERNAL,ABORTED,garbage,nan,slow",
    "http": "reset,half,429,503,500,garbage,nan,slow",
}


class Took(NamedTuple):
    wall: float
    processor: float

    def over(self, other: Took) -> Took:
        return Took(self.wall / other.wall, self.processor / other.processor)


def timed(model: str, session: int | None = None) -> tuple[Took, parsimon.Result]:
    """Return the time of a run, including that of the server's processes, and its result."""
    images, labels = (array[:IMAGES] for array in zoo.images())
    wall, processor = time.perf_counter(), time.process_time() + processor_time(session)
    result = parsimon.attack(model, images, labels, 8 / 255, budget=BUDGET, batch_size=64)
    processor = time.process_time() + processor_time(session) - processor
    return Took(time.perf_counter() - wall, processor), result


def processor_time(session: int | None) -> float:
    """Return the processor seconds of the processes of a session, on Linux."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process may have ended
            after_name = file.read_text().rpartition(")")[2].split()
            if int(after_name[3]) == session:
                ticks += int(after_name[11]) + int(after_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(name: str, folder: Path) -> None:
    with running(name, folder) as server:
        for protocol in ("grpc", "http"):
            if (name, protocol) == ("mlserver", "http"):
                continue  # it sends text, which takes ten times as long
            session = server.process.pid if server.process else None
            turns = []
            for _ in range(TURNS):
                (here, expected), (there, result) = timed("robust"), timed(server.url(protocol), session)
                turns.append(there.over(here))
                assert result.outcomes == expected.outcomes
            wall, processor = (statistics.median(column) for column in zip(*turns, strict=True))
            report(
                name,
                protocol,
                f"{result.counters.queries:,} queries: wall {wall:.2f}, processor {processor:.2f}",
                turns,
            )
            options = ("--share", "0.2", "--faults", FAULTS[protocol], "--stall", "4")
            with proxy(protocol, getattr(server, protocol), folder, *options) as between:
                there, result = timed(server.url(protocol, port=between.port, settings="timeout=3"))
                faults = sum(bool(each["fault"]) for each in between.shown)
                requests = len(between.shown)
            assert result.outcomes == expected.outcomes
            assert result.traffic is not None
            assert result.traffic.answered == result.counters.rows + result.counters.padding
            report(
                name,
                protocol,
                f"{faults} faults in {requests} requests: the same results, {result.traffic}",
                f"{there.wall:.0f} s",
            )


def report(*what: Any) -> None:
    print(*what, sep="  ", flush=True)


for each in sys.argv[1:] or ("mlserver", "triton"):
    with tempfile.TemporaryDirectory() as made:
        measure(each, Path(made))

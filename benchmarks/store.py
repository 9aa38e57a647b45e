"""Measure the cost of storing a run: the fraction of wall time, and the final size of the file.

    python benchmarks/store.py                     256 bundled images on the robust network
    python benchmarks/store.py cifar10:FOLDER      all images of a data set on the standard network; takes hours

Every call to the store is timed within its run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from parsimon import runs
from parsimon.core.types import JournalEntry, Outcome
from parsimon.runs.config import RunConfig
from parsimon.runs.store import Store

BUDGET = 1000


class Timed(Store):
    """A store that measures its own time, and the size of its folder before the clean-up."""

    seconds = 0.0
    calls = 0
    largest = 0

    def save(
        self, attack: str, outcomes: Sequence[Outcome], entries: Sequence[JournalEntry], queries: int | None = None
    ) -> None:
        began = time.perf_counter()
        super().save(attack, outcomes, entries, queries)
        Timed.seconds += time.perf_counter() - began
        Timed.calls += 1

    def finish(self, attack: str) -> None:
        Timed.largest = size_of(self._path.parent)
        began = time.perf_counter()
        super().finish(attack)
        Timed.seconds += time.perf_counter() - began


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def measure(spec: RunConfig) -> None:
    Timed.seconds, Timed.calls = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        comparison = runs.run(spec, Path(folder) / "run", progress=False)
        whole = time.perf_counter() - began
        size = size_of(Path(folder) / "run")
    (result,) = comparison.results.values()
    successes = result.summary.successes
    print(
        f"{spec.attacks[0]}: {result.summary.attacked:,} images, {successes:,} fooled, "
        f"{result.counters.queries:,} queries, {whole:.0f} s; storing took {Timed.seconds / whole:.1%} of it, "
        f"{1e3 * Timed.seconds / Timed.calls:.2f} ms per model call; {Timed.largest / 1e6:,.1f} MB at most, "
        f"{size / 1e6:,.2f} MB at the end, {size / successes:,.0f} bytes per success",
        flush=True,
    )


def main() -> None:
    vars(runs)["Store"] = Timed
    if len(sys.argv) == 1:
        for attack in ("parsimonious", "square", "nes"):
            measure(RunConfig(attacks=(attack,), images=256, budget=BUDGET))
    else:
        for attack in ("parsimonious", "bandits", "pgd"):
            measure(RunConfig(attacks=(attack,), model="standard", data=sys.argv[1], images="all", budget=BUDGET))


if __name__ == "__main__":
    main()

"""What storing a run costs: the share of wall time that goes into the run file, and its size at the end.

    python benchmarks/store.py

The time is taken around every call to the store, in the run that it is a part of.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from parsimon import runs
from parsimon.protocol import Outcome, Told
from parsimon.spec import Spec
from parsimon.store import Store

IMAGES, BUDGET = 256, 1000


class Timed(Store):
    """A store that knows how long it has worked."""

    seconds = 0.0
    calls = 0

    def save(self, attack: str, ended: Sequence[Outcome], told: Sequence[Told]) -> None:
        began = time.perf_counter()
        super().save(attack, ended, told)
        Timed.seconds += time.perf_counter() - began
        Timed.calls += 1

    def finish(self, attack: str) -> None:
        began = time.perf_counter()
        super().finish(attack)
        Timed.seconds += time.perf_counter() - began


def main() -> None:
    vars(runs)["Store"] = Timed
    for attack in ("parsimonious", "square", "nes"):
        Timed.seconds, Timed.calls = 0.0, 0
        with tempfile.TemporaryDirectory() as folder:
            spec = Spec(attacks=(attack,), images=IMAGES, budget=BUDGET)
            began = time.perf_counter()
            comparison = runs.run(spec, Path(folder) / "run", progress=False)
            whole = time.perf_counter() - began
            size = (Path(folder) / "run" / "run.sqlite").stat().st_size
        (result,) = comparison.results.values()
        print(
            f"{attack}: {IMAGES} images, {result.tally.queries:,} queries, {whole:.0f} s; storing took "
            f"{Timed.seconds / whole:.1%} of it, {1e3 * Timed.seconds / Timed.calls:.2f} ms a model call; "
            f"{size / 1024:,.0f} KiB at the end, {size / result.summary.successes:,.0f} bytes a success",
            flush=True,
        )


if __name__ == "__main__":
    main()

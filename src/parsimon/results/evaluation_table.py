"""The table of an evaluation: what each attack left of the model's accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parsimon.core.threat import Threat
from parsimon.results.comparison_table import Entry, Value, accounts, column
from parsimon.results.statistics import wilson_interval
from parsimon.results.summary import summarise
from parsimon.results.table import Cell, Table


def evaluation_table(threat: Threat, entries: Sequence[Entry], correct: NDArray[np.bool_], unfinished: int) -> Table:
    """A row for the clean images, then one for each attack on those that were left to it.

    `unfinished`: how many of the images that are left an interruption has kept from some attack.
    """
    images, left = len(correct), int(correct.sum())
    summaries = {entry.name: summarise(entry.outcomes, entry.budget) for entry in entries}
    clean = [Cell("(clean)"), Cell("-"), Cell("-"), Cell("-"), _accuracy(left, images)]
    rows = []
    for name, summary in summaries.items():
        left -= summary.successes
        (mean,) = column([Value(summary.mean)])
        accuracy = _accuracy(left, images, at_most=summary.unfinished > 0)
        rows.append([Cell(name), Cell(f"{summary.attacked:,}"), Cell(f"{summary.successes:,}"), mean, accuracy])
    notes = [
        "Attacked: correctly classified images that no attack before has fooled.",
        "Mean queries: of the fooled ones.",
        "Accuracy: of all images, what is left after this attack and those before it.",
        "Intervals: 95 %, Wilson's.",
        *accounts(entries, summaries),
    ]
    if unfinished:
        notes.append(f"Interrupted: {unfinished:,} images have not met every attack; the accuracy may be lower.")
    budget = entries[0].budget
    title = f"eps {threat.eps * 255:.4g}/255, {images:,} images, at most {budget:,} queries an image for each attack"
    return Table(title, ["attack", "attacked", "fooled", "mean queries", "accuracy"], [[clean], rows], notes)


def _accuracy(count: int, images: int, *, at_most: bool = False) -> Cell:
    low, high = wilson_interval(count, images)
    return Cell(f"{'<= ' * at_most}{count / images:.1%}", interval=(f"{100 * low:.1f}", f"{100 * high:.1f}"))

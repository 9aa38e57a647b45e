"""What the live page shows of a run: how far it is, its curves, and each image as it ends."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from parsimon import runs
from parsimon.core.types import Outcome
from parsimon.report.content import Data, curves_of, digits, ending_of, facts_shown, sentence_of, tables_of
from parsimon.report.picture import perturbation_of, png
from parsimon.results.result import Comparison
from parsimon.runs.store import is_written

Kind = Literal["original", "perturbation", "adversarial"]


class Watch:
    """Looks at the run in a folder, as often as it is asked, from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._seen: _Seen | None = None

    def state(self, after: int) -> Data:
        """All that the page needs; of the images that have ended only those after the first so many."""
        with self._lock:
            seen = self._look()
            if seen is not None:
                return seen.state(after)
        words = (
            "The run was not begun yet."
            if runs.is_run(self._folder)
            else f"There is no run in {self._folder} yet. This begins one: parsimon run --out {self._folder}"
        )
        return {"state": "waiting", "name": str(self._folder), "words": words}

    def picture(self, kind: Kind, attack: int, image: int) -> bytes | None:
        """As a PNG; None of what is not there: an image that is not of the run, or that was not fooled."""
        with self._lock:
            seen = self._look()
            return None if seen is None else seen.picture(kind, attack, image)

    def _look(self) -> _Seen | None:
        """What is there of the run; None before it has begun."""
        if not runs.is_run(self._folder):
            self._seen = None
            return None
        identity = runs.identity(self._folder)
        if self._seen is None or self._seen.identity != identity:
            self._seen = _Seen(self._folder, identity)
        return self._seen if self._seen.refresh() else None


class _Seen:
    """All that was read of one run."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.identity = identity
        self._folder = folder
        self._reading = runs.StoredRun(folder)
        self._entries: list[Data] = []  # in the order in which the images ended
        self._shown: _Shown

    def refresh(self) -> bool:
        """Read what is new; whether the run has begun."""
        before = self._reading.begun
        ended = self._reading.refresh()
        if not self._reading.begun:
            return False
        if ended or not before:
            self._shown = _Shown(self._reading.comparison())
            for name, outcome in ended:
                self._entries.append(self._entry(name, outcome))
        return True

    def _entry(self, name: str, outcome: Outcome) -> Data:
        """A card of the gallery."""
        result = self._shown.comparison.results[name]
        state, queries, predicted, confidence = ending_of(outcome)
        return {
            "place": len(self._entries),
            "attack": list(self._shown.comparison.results).index(name),
            "number": outcome.index,
            "label": int(result.labels[outcome.index]),
            "before": digits(result.clean.confidence[outcome.index]),
            "state": state,
            "queries": queries,
            "predicted": predicted,
            "after": confidence,
        }

    def state(self, after: int) -> Data:
        comparison = self._shown.comparison
        unfinished = comparison.unfinished
        state = "finished" if not unfinished else "running" if is_written(self._folder) else "paused"
        attacks = [
            {
                "name": name,
                "images": len(result.outcomes),
                "ended": result.counters.ended,
                "fooled": result.counters.successes,
                "queries": max(result.counters.queries, self._reading.queries[name]),
            }
            for name, result in comparison.results.items()
        ]
        words = {
            "running": "",
            "paused": f"Nobody is working on it: {unfinished:,} attacks on images have not ended. "
            f"This goes on with it: parsimon resume {self._folder}",
            "finished": "",
        }[state]
        entries = self._entries[after:]
        new: Data = {"curves": self._shown.curves} if entries or not after else {}
        if not after:
            new |= {
                "sentence": sentence_of(
                    comparison, {"model": self._reading.config.model, "data": self._reading.config.data}
                ),
                "classes": list(self._reading.data.classes or ()),
                "side": max(np.asarray(self._reading.data.images[0]).shape[1:]),
                "facts": facts_shown(runs.facts_of(self._folder)),
            }
        return {
            "run": self.identity,
            "state": state,
            "name": str(self._folder),
            "words": words,
            "attacks": attacks,
            "entries": entries,
            "ended": len(self._entries),
            # While it runs they would change all the time, and the intervals take a moment to compute.
            "tables": None if state == "running" else self._shown.tables,
            **new,
        }

    def picture(self, kind: Kind, attack: int, image: int) -> bytes | None:
        results = list(self._shown.comparison.results.values())
        outcome = self._shown.outcomes[attack].get(image) if attack < len(results) else None
        if outcome is None:
            return None
        original = np.asarray(results[attack].images[image])
        if kind == "original":
            return png(original)
        if outcome.point is None:
            return None
        adversarial = results[attack].draw(outcome)
        if kind == "adversarial":
            return png(adversarial)
        return png(perturbation_of(original, adversarial, results[attack].threat.eps))


class _Shown:
    """What is made of the results so far, when it is asked for."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    @cached_property
    def curves(self) -> Data:
        return curves_of(self.comparison)

    @cached_property
    def tables(self) -> list[Data]:
        return tables_of(self.comparison)

    @cached_property
    def outcomes(self) -> list[dict[int, Outcome]]:
        """Of each attack, by the numbers of its images."""
        return [{each.index: each for each in result.outcomes} for result in self.comparison.results.values()]

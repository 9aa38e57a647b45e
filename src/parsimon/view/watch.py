"""The content of the live page: progress, curves, and a card for each finished image."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

import numpy as np

from parsimon import runs
from parsimon.models.named import needs_no_code
from parsimon.report.charts import has_started, radius_chart, success_chart
from parsimon.report.content import facts_shown, sentence_of, tables_of
from parsimon.report.data import Data
from parsimon.report.gallery import card_of
from parsimon.report.headline import run_top
from parsimon.report.picture import class_names, png, triptych
from parsimon.results.result import Comparison
from parsimon.runs.store import is_written
from parsimon.view import stepwise
from parsimon.view.stepwise import Target

Kind = Literal["original", "perturbation", "adversarial"]


class Watch:
    """Reads the run in a folder whenever it is asked, from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._run: _WatchedRun | None = None

    def state(self, after: int) -> Data:
        """Return all that the page needs, but only the cards that come after the first `after`."""
        with self._lock:
            run = self._refreshed()
            if run is not None:
                return run.state(after)
        words = (
            "The run has not started yet."
            if runs.is_run(self._folder)
            else f"There is no run in {self._folder} yet. Start one: parsimon run --out {self._folder}"
        )
        return {"state": "waiting", "name": str(self._folder), "words": words}

    def picture(self, kind: Kind, attack: int, image: int) -> bytes | None:
        """Return a picture as PNG; None if the run has no such image or it was not fooled."""
        with self._lock:
            run = self._refreshed()
            return None if run is None else run.picture(kind, attack, image)

    def target(self) -> Target | None:
        """Return the run's own model, for pictures; None if there is none on this machine."""
        with self._lock:
            run = self._refreshed()
            return None if run is None else run.target

    def _refreshed(self) -> _WatchedRun | None:
        """Return the run as it is now; None before it starts."""
        if not runs.is_run(self._folder):
            self._run = None
            return None
        identity = runs.identity(self._folder)
        if self._run is None or self._run.identity != identity:
            self._run = _WatchedRun(self._folder, identity)
        return self._run if self._run.refresh() else None


class _WatchedRun:
    """One run, as far as it was read."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.identity = identity
        self._folder = folder
        self._stored = runs.StoredRun(folder)
        self._cards: list[Data] = []  # in the order in which the images ended
        self._comparison: Comparison
        self._curves: Data | None = None  # of this comparison, once somebody asked, as are the tables
        self._tables: list[Data] | None = None

    def refresh(self) -> bool:
        """Read what is new, and return whether the run has started."""
        had_begun = self._stored.begun
        # Before the outcomes, so that an image that ends in between has its outcome at least.
        journal = self._stored.journal() if had_begun and self._comparison.unfinished else None
        ended = self._stored.refresh()
        if not self._stored.begun:
            return False
        if not had_begun:
            journal = self._stored.journal()
        if ended or journal is not None:
            self._comparison = self._stored.comparison(journal)
            self._curves = self._tables = None
        names = list(self._comparison.results)
        for name, outcome in ended:
            card = card_of(self._comparison.results[name], outcome, names.index(name))
            self._cards.append({"place": len(self._cards), **card})
        return True

    def state(self, after: int) -> Data:
        unfinished = self._comparison.unfinished
        state = "finished" if not unfinished else "running" if is_written(self._folder) else "paused"
        words = f"{unfinished:,} attacks on images are unfinished. Continue: parsimon resume {self._folder}"
        attacks = [
            {
                "name": name,
                "started": self._stored.queries[name] > 0 or has_started(result.outcomes),
                "images": len(result.outcomes),
                "ended": result.counters.ended,
                "fooled": result.counters.successes,
                "queries": max(result.counters.queries, self._stored.queries[name]),
            }
            for name, result in self._comparison.results.items()
        ]
        reply: Data = {
            "run": self.identity,
            "state": state,
            "name": str(self._folder),
            "words": words if state == "paused" else "",
            "attacks": attacks,
            "top": {**run_top(self._comparison), "banner": ""},
            "entries": self._cards[after:],
            "ended": len(self._cards),
            # While the run continues, they would change all the time, and their intervals take a while to compute.
            "tables": None if state == "running" else self._made_tables(),
        }
        if reply["entries"] or state == "running" or not after:
            reply["curves"] = self._curves = self._curves or success_chart({"": self._comparison})
            reply["closest"] = radius_chart({"": self._comparison})
        if not after:
            config, data = self._stored.config, self._stored.data
            reply["sentence"] = sentence_of(self._comparison, {"model": config.model, "data": config.data})
            reply["classes"] = list(class_names(data.classes, self._comparison.first.clean) or ())
            reply["side"] = max(np.asarray(data.images[0]).shape[1:])
            reply["random"] = self._comparison.first.random
            reply["own"] = config.model if self.target else None
            reply["facts"] = facts_shown(runs.facts_of(self._folder))
        return reply

    @property
    def target(self) -> Target | None:
        config, images = self._stored.config, self._stored.data.images
        first = self._comparison.first
        if config.defence or config.stochastic:  # its steps would be those of another model
            return None
        if config.model in stepwise.NETWORKS or not needs_no_code(config.model) or first.clean.kind == "labels":
            return None
        return Target(
            config.model,
            np.asarray(images[0]).shape,
            class_names(self._stored.data.classes, first.clean) or (),
            lambda number: np.asarray(images[number % len(images)]),
            first.threat.scores,
        )

    def _made_tables(self) -> list[Data]:
        self._tables = self._tables or tables_of(self._comparison.tables())
        return self._tables

    def picture(self, kind: Kind, attack: int, image: int) -> bytes | None:
        results = list(self._comparison.results.values())
        outcomes = results[attack].outcomes if attack < len(results) else ()
        outcome = next((each for each in outcomes if each.index == image), None)
        if outcome is None or (kind != "original" and outcome.point is None):
            return None
        if kind == "original":
            return png(np.asarray(results[attack].images[image]))
        pictures = triptych(results[attack], outcome)
        return png(pictures.perturbation if kind == "perturbation" else pictures.adversarial)

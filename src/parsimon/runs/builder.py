"""Results, assembled in one place: from a live run, and from a run file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsimon.core.engine import Counters
from parsimon.core.threat import Objective, Rounding, Scores, Threat
from parsimon.core.types import Attack, ImageSource, JournalEntry, Outcome
from parsimon.results.result import CleanPredictions, Result, Verification
from parsimon.runs.config import RunConfig


def threat_for(
    attack: Attack, config: RunConfig, *, targeted: bool, scores: Scores, rounding: Rounding = "inward"
) -> Threat:
    """Return the threat under which an attack works: its own loss and rounding, unless the run sets them."""
    loss: Objective = config.loss or ("margin" if config.stochastic else attack.own_loss(targeted))
    loss = "label" if attack.needs == "label" else loss
    rounding = attack.rounding if rounding == "inward" else rounding
    until_budget = config.until_budget and attack.needs == "label"
    return Threat(config.radius, targeted, loss, scores, config.eight_bit, rounding, until_budget, config.sampling)


@dataclass(frozen=True)
class ResultBuilder:
    """The parts that all results of a run share.

    Attributes:
        labels: The true class of every image.
        clean: The predictions for the clean images.
    """

    config: RunConfig
    images: ImageSource
    labels: NDArray[np.intp]
    clean: CleanPredictions

    def build(
        self,
        attack: Attack,
        threat: Threat,
        outcomes: tuple[Outcome, ...],
        counters: Counters,
        verification: Verification | None,
        *,
        stopped: bool = False,
    ) -> Result:
        """Assemble the result of one attack. `stopped` is whether Ctrl-C has ended the run."""
        shared = (self.images, self.labels, self.clean)
        defence = self.config.defence or ()
        return Result(attack, threat, self.config.budget, *shared, outcomes, counters, verification, defence, stopped)


def all_outcomes(
    chosen: list[int], ended: Mapping[int, Outcome], journal: Mapping[int, JournalEntry], threat: Threat
) -> tuple[Outcome, ...]:
    """Return the outcomes of the chosen images; one without is interrupted, with the queries of its journal."""
    return tuple(ended.get(index) or Outcome.unfinished(index, journal.get(index), threat) for index in chosen)


def images_left(outcomes: Sequence[Outcome], within: int) -> list[int]:
    """Return the images that an attack did not fool within the given queries. The next attack gets them."""
    return [outcome.index for outcome in outcomes if not (outcome.success and outcome.queries <= within)]

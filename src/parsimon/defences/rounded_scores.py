"""Rounded probabilities: Tramèr, Zhang, Juels, Reiter and Ristenpart, *Stealing Machine Learning Models via Prediction
APIs* (USENIX Security 2016).

The paper discusses services that round the probabilities they return, against attackers who copy a model. An attacker
who searches for adversarial images then cannot see small changes of the loss either. Rounding may make several classes
equal. If rounding would change the predicted class, its probability is one unit higher in the last decimal. This is as
if the service returned the class beside the probabilities. Rounded probabilities need not add up to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parsimon.core.types import Paper
from parsimon.defences.base import ScoreDefence
from parsimon.errors import check_whole


@dataclass(frozen=True)
class RoundedScores(ScoreDefence):
    """Returns rounded probabilities.

    Attributes:
        decimals: The number of decimals.
    """

    decimals: int = 2

    returns: ClassVar = "probabilities"
    paper: ClassVar = Paper(
        "Tramèr, Zhang, Juels, Reiter and Ristenpart",
        "Stealing Machine Learning Models via Prediction APIs",
        2016,
        "https://arxiv.org/abs/1609.02943",
    )
    presets: ClassVar = {"coarse": {"decimals": 2}, "fine": {"decimals": 5}}  # examples, not of an experiment

    def __post_init__(self) -> None:
        check_whole("decimals", self.decimals, 1, 12)

    def transform(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        rounded: NDArray[np.float64] = np.round(probabilities, self.decimals)
        predicted = logits.argmax(axis=1)
        changed = np.flatnonzero(rounded.argmax(axis=1) != predicted)
        rounded[changed, predicted[changed]] += 10.0**-self.decimals
        return rounded.round(self.decimals)

"""What the model makes of the clean images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class CleanPredictions:
    """The model's view of the clean images."""

    predicted: NDArray[np.intp]
    correct: NDArray[np.bool_]
    classes: int
    confidence: NDArray[np.float64]  # its probability of the predicted class
    backend: str | None = None  # how the model is run, if it says
    values: int = 0  # of an image; 0 where none was looked at
    scores: NDArray[np.float32] | None = None  # of the first clean images
    fingerprint: str | None = None  # of the model's file, where there is one
    runtime: str | None = None  # the library that runs the model, with its version
    remarks: tuple[str, ...] = ()  # on how the run was made, for whoever reads its results

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

"""After an attack: query every adversarial image once more, and check that it lies in the ball.

A success that does not hold points at a model that answers at random or mixes up its rows, or at an error in parsimon.
These queries are not charged to any image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import render
from parsimon.core.model import Model
from parsimon.core.threat import Threat
from parsimon.core.types import Image, ImageSource, Outcome
from parsimon.results.result import Verification
from parsimon.runs.preflight import classify


def verify_successes(
    model: Model,
    threat: Threat,
    images: ImageSource,
    goals: NDArray[np.intp],
    outcomes: Sequence[Outcome],
    batch_size: int,
    classes: int,
    stopped: Callable[[], bool],
) -> Verification | None:
    """Query the adversarial image of every success; return None if it is stopped between two batches."""
    fooled = [outcome for outcome in outcomes if outcome.point is not None]
    failed: list[int] = []
    for start in range(0, len(fooled), batch_size):
        if stopped():
            return None
        batch = fooled[start : start + batch_size]
        originals = [np.asarray(images[outcome.index]) for outcome in batch]
        drawn = [
            render(image, threat, outcome.point)
            for image, outcome in zip(originals, batch, strict=True)
            if outcome.point is not None
        ]
        scores = classify(model, np.stack(drawn), batch_size, classes)
        _, wins, _ = threat.judge(scores, goals[[outcome.index for outcome in batch]])
        failed += [
            outcome.index
            for outcome, original, image, win in zip(batch, originals, drawn, wins, strict=True)
            if not (win and in_ball(original, image, threat))
        ]
    return Verification(len(fooled), tuple(failed))


def in_ball(original: Image, image: Image, threat: Threat) -> bool:
    """Check the definition of the ball, without the bounds that an attack works with."""
    if image.min() < 0 or image.max() > 1:
        return False
    if threat.eight_bit:
        levels, before = (np.rint(each.astype(np.float64) * 255) for each in (image, original))
        on_grid = np.array_equal(image, (levels / 255).astype(np.float32))
        return on_grid and np.abs(levels - before).max() <= threat.eight_bit_steps
    slack = 0.0 if threat.rounding == "inward" else 2**-24
    return bool(np.abs(image.astype(np.float64) - original).max() <= threat.eps + slack)

"""Query every adversarial image once more after an attack, and check that it lies in the ball.

If a success does not hold, the model is random or mixes up its rows, or parsimon has an error. These queries are not
charged to any image.
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
from parsimon.runs.workers.worker import EngineConfig


def verify_successes(
    model: Model,
    config: EngineConfig,
    images: ImageSource,
    goals: NDArray[np.intp],
    outcomes: Sequence[Outcome],
    stopped: Callable[[], bool],
) -> Verification | None:
    """Query the adversarial image of every success; return None if stopped between two batches."""
    threat, batch_size = config.threat, config.batch_size
    successes = [(outcome.index, outcome.point) for outcome in outcomes if outcome.point is not None]
    failed: list[int] = []
    for start in range(0, len(successes), batch_size):
        if stopped():
            return None
        batch = successes[start : start + batch_size]
        indices = [index for index, _ in batch]
        originals = [np.asarray(images[index]) for index in indices]
        adversarial = [render(image, threat, point) for image, (_, point) in zip(originals, batch, strict=True)]
        scores = classify(model, np.stack(adversarial), batch_size, config.classes)
        _, wins, _ = threat.judge(scores, goals[indices])
        failed += [
            index
            for index, original, image, win in zip(indices, originals, adversarial, wins, strict=True)
            if not (win and in_ball(original, image, threat))
        ]
    return Verification(len(successes), tuple(failed))


def in_ball(original: Image, image: Image, threat: Threat) -> bool:
    """Return whether an image lies in the ball, by definition and not by the bounds that attacks use."""
    if image.min() < 0 or image.max() > 1:
        return False
    if threat.eight_bit:
        levels, before = (np.rint(each.astype(np.float64) * 255) for each in (image, original))
        on_grid = np.array_equal(image, (levels / 255).astype(np.float32))
        return on_grid and np.abs(levels - before).max() <= threat.eight_bit_steps
    slack = 0.0 if threat.rounding == "inward" else 2**-24
    return bool(np.abs(image.astype(np.float64) - original).max() <= threat.eps + slack)

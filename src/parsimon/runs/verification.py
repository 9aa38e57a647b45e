"""Query every adversarial image once more after an attack, and check that it lies in the ball.

If a success does not hold, the model is random or mixes up its rows, or parsimon has an error. These queries are not
charged to any image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsimon.core.canvas import render
from parsimon.core.model import Model
from parsimon.core.threat import Threat
from parsimon.core.types import Image, ImageSource, Outcome
from parsimon.results.result import Verification
from parsimon.runs.classify import classify
from parsimon.runs.workers.worker import EngineConfig


class Redrawn(NamedTuple):
    """An adversarial image, rendered from its stored point."""

    outcome: Outcome
    original: Image
    image: Image


def redraw(
    images: ImageSource, outcomes: Sequence[Outcome], threat: Threat, batch_size: int
) -> Iterator[list[Redrawn]]:
    """Yield the adversarial images of all successes, in batches."""
    successes = [outcome for outcome in outcomes if outcome.point is not None]
    for start in range(0, len(successes), batch_size):
        batch = []
        for outcome in successes[start : start + batch_size]:
            assert outcome.point is not None, "only successes are left"
            original = np.asarray(images[outcome.index])
            batch.append(Redrawn(outcome, original, render(original, threat, outcome.point)))
        yield batch


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
    queried, failed = 0, []
    for batch in redraw(images, outcomes, threat, batch_size):
        if stopped():
            return None
        scores = classify(model, np.stack([each.image for each in batch]), batch_size, config.classes)
        _, wins, _ = threat.judge(scores, goals[[each.outcome.index for each in batch]])
        queried += len(batch)
        failed += [
            outcome.index
            for (outcome, original, image), win in zip(batch, wins, strict=True)
            if not (win and in_ball(original, image, threat))
        ]
    return Verification(queried, tuple(failed))


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

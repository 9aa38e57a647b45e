"""Maximise the loss beyond the first success, for figures 1 and 2.

A table shows when an image is fooled; these figures show the highest loss that a search reaches. `Climb` wraps an
attack so that no success ends it, and keeps its best point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsimon import setsearch
from parsimon.attacks.parsimonious import ask_corners, empty_set
from parsimon.core.canvas import render
from parsimon.core.grid import first_grid
from parsimon.core.model import AnswerLevel
from parsimon.core.types import Attack, ImageContext, Point, Search
from parsimon.data import Data
from parsimon.results.result import Result
from parsimon.runs.config import RunConfig
from parsimon.runs.execute import Inputs, execute


class Best(NamedTuple):
    """The point with the highest loss that a search found."""

    loss: float
    point: Point


@dataclass(frozen=True)
class Climb(Attack):
    """An attack that no success ends; it collects the best point of each image in `best`."""

    attack: Attack
    best: dict[int, Best] = field(default_factory=dict, compare=False)

    @property
    def needs(self) -> AnswerLevel:  # type: ignore[override]
        return self.attack.needs

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        search = self.attack.search(context, rng)
        highest = -math.inf
        try:
            ask = next(search)
            while True:
                reply = yield ask._replace(eligible_from=math.inf)
                place = int(np.argmax(reply.loss))
                if reply.loss[place] > highest:
                    highest = float(reply.loss[place])
                    self.best[context.index] = Best(highest, ask.points.point(place))
                ask = search.send(reply)
        except StopIteration:
            return


@dataclass(frozen=True)
class OverPixels(Attack):
    """Set search over single pixels and channels, without blocks or mini-batches.

    Attributes:
        local: Use local search to convergence, then the better of the set and its complement (section 3.3); otherwise
            greedy insertion alone (section 3.2).
    """

    local: bool

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        grid = first_grid(context.shape, 1, None)
        order = rng.permutation(grid.count)

        def climb() -> setsearch.SetSearch:
            found = yield from setsearch.evaluate(empty_set(grid))
            if self.local:
                return (yield from setsearch.local_search(found, [order], max_iterations=None))
            return (yield from setsearch.lazy_greedy(found, order, inserting=True))

        yield from ask_corners(grid, climb())


class Climbed(NamedTuple):
    """The highest loss of a search on each image."""

    result: Result
    best: Mapping[int, Best]

    @property
    def losses(self) -> NDArray[np.float64]:
        return np.array([self.best[outcome.index].loss for outcome in self.result.outcomes])

    def perturbations(self) -> NDArray[np.float32]:
        """Return the perturbation of each image at its best point."""
        threat, images = self.result.threat, self.result.images
        originals = ((outcome.index, np.asarray(images[outcome.index])) for outcome in self.result.outcomes)
        return np.stack([render(image, threat, self.best[index].point) - image for index, image in originals])


def climb(spec: RunConfig, attacks: Mapping[str, Attack], data: Data, in_flight: int | None) -> dict[str, Climbed]:
    """Run each attack on the images of a configuration, without stopping at successes."""
    climbs = {name: Climb(attack) for name, attack in attacks.items()}
    results = execute(spec.replace(in_flight=in_flight), climbs, Inputs(spec.model, data.images, data.labels))
    return {name: Climbed(result, climbs[name].best) for name, result in results.items()}

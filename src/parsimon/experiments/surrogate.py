"""How high the loss can be driven (figures 1 and 2): attacks that do not stop at a success.

They run as all attacks do, but for one thing: a table asks when an image is fooled, these figures ask where a search
ends up. So each is wrapped in `Climb`, which lets no success end it and keeps the best point that it was told of.
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
from parsimon.core.types import Attack, ImageContext, Point, Search
from parsimon.data import Data
from parsimon.results.result import Result
from parsimon.runs.config import RunConfig
from parsimon.runs.execute import Inputs, execute


class Best(NamedTuple):
    """The point of the highest loss that a search was told of."""

    loss: float
    point: Point


@dataclass(frozen=True)
class Climb(Attack):
    """An attack that no success ends. `best` fills with what it has found, by the number of the image."""

    attack: Attack
    best: dict[int, Best] = field(default_factory=dict, compare=False)

    @property
    def white_box(self) -> bool:  # type: ignore[override]  # it is what the wrapped attack is
        return self.attack.white_box

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
    """Set search with every pixel of every channel an element of its own: no blocks, no mini-batches.

    Attributes:
        local: Local search until a round of insertion and deletion changes nothing, then the better of the set and its
            complement (section 3.3); otherwise greedy insertion alone (section 3.2).
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
    """How high a search came on each image."""

    result: Result
    best: Mapping[int, Best]

    @property
    def losses(self) -> NDArray[np.float64]:
        return np.array([self.best[outcome.index].loss for outcome in self.result.outcomes])

    def perturbations(self) -> NDArray[np.float32]:
        """What was added to each image at its best point."""
        threat, images = self.result.threat, self.result.images
        originals = ((outcome.index, np.asarray(images[outcome.index])) for outcome in self.result.outcomes)
        return np.stack([render(image, threat, self.best[index].point) - image for index, image in originals])


def climb(spec: RunConfig, attacks: Mapping[str, Attack], data: Data, in_flight: int | None) -> dict[str, Climbed]:
    """Each attack on the images of a spec, none stopped by a success."""
    climbs = {name: Climb(attack) for name, attack in attacks.items()}
    results = execute(spec.replace(in_flight=in_flight), climbs, Inputs(spec.model, data.images, data.labels))
    return {name: Climbed(result, climbs[name].best) for name, result in results.items()}

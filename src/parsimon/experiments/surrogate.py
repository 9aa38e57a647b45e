"""Maximise the loss beyond the first success, for figures 1 and 2.

A table shows when an image is fooled; these figures show the highest loss that a search reaches. `Climb` wraps an
attack so that no success ends it, and keeps its best point.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from parsimon import setsearch
from parsimon.attacks.parsimonious import ask_corners, empty_set
from parsimon.core.canvas import render
from parsimon.core.grid import first_grid
from parsimon.core.model import AnswerLevel
from parsimon.core.types import Attack, ImageContext, Picture, Point, Search
from parsimon.data import Data
from parsimon.results.result import Result
from parsimon.runs.config import RunConfig
from parsimon.runs.execute import execute
from parsimon.runs.preparation import Inputs
from parsimon.runs.store import RUN_FILE, Store


class Best(NamedTuple):
    """The point with the highest loss that a search found."""

    loss: float
    point: Point


@dataclass(frozen=True)
class Climb(Attack):
    """An attack that no success ends; it collects the best point of each image in `best`.

    Attributes:
        attack: The attack.
        best: The best point of each image.
        kept: A folder that keeps the best image of each search when it ends.
    """

    attack: Attack
    best: dict[int, Best] = field(default_factory=dict, compare=False)
    kept: Path | None = field(default=None, compare=False)

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
        finally:  # by itself, by its budget, or by Ctrl-C
            if self.kept is not None and context.index in self.best:
                found = self.best[context.index]
                self.kept.mkdir(parents=True, exist_ok=True)
                image = render(np.asarray(context.image), context.threat, found.point)
                np.savez(self.kept / f"{context.index}.npz", loss=found.loss, image=image)

    def recall(self, image: int) -> bool:
        """Read the best image of a search that has ended; return whether it was kept."""
        try:
            with np.load(self.kept / f"{image}.npz") as file:  # type: ignore[operator]  # a stored search has a folder
                pixels = file["image"]
                self.best[image] = Best(float(file["loss"]), Picture(pixels.shape, pixels.tobytes()))
        except (OSError, ValueError, KeyError, BadZipFile):
            return False
        return True


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


def climb(
    spec: RunConfig, attacks: Mapping[str, Attack], data: Data, folder: Path, **execution: Any
) -> dict[str, Climbed]:
    """Run each attack on the images of a configuration, without stopping at successes.

    The run is stored in the folder, and continued from there. A kill may have left an outcome without its best image:
    then the run starts again.
    """
    climbs = {
        name: Climb(attack, kept=folder / f"best-{number}") for number, (name, attack) in enumerate(attacks.items())
    }
    if (folder / RUN_FILE).exists():
        with Store(folder, data.images) as store:
            whole = all(each.recall(image) for name, each in climbs.items() for image in store.outcomes(name))
        if not whole:
            shutil.rmtree(folder)

    @contextmanager
    def open_store() -> Iterator[Store]:
        folder.mkdir(parents=True, exist_ok=True)
        with Store(folder, data.images, write=True) as store:
            store.check_fact("fingerprint", data.fingerprint)
            yield store

    config = spec.replace(**execution)
    results = execute(config, climbs, Inputs(spec.model, data.images, data.labels), open_store=open_store)
    return {name: Climbed(result, climbs[name].best) for name, result in results.items()}

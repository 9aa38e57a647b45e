"""Watch an attack: an attack is a generator, so another one can stand in between and note what is asked and told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

import parsimon
from parsimon import zoo
from parsimon.core.types import Corners, ImageContext, Search


class JournalEntry(NamedTuple):
    """One question of an attack on corners, and its answer."""

    asked: Corners
    loss: np.ndarray


@dataclass(frozen=True)
class Watched(parsimon.Attack):
    """The same questions as `inner`, written down. The engine keeps the last answer to itself if it is a success."""

    inner: parsimon.Attack
    told: list[JournalEntry] = field(default_factory=list, compare=False, repr=False)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        search = self.inner.search(context, rng)
        try:
            ask = next(search)
            while True:
                reply = yield ask
                assert isinstance(ask.points, Corners)
                self.told.append(JournalEntry(ask.points, reply.loss))
                ask = search.send(reply)
        except StopIteration:
            return


def main() -> None:
    images, labels = zoo.images()
    watched = Watched(parsimon.Parsimonious())
    result = parsimon.attack("robust", images[1:2], labels[1:2], eps=8 / 255, attack=watched, budget=400)
    print(f"{result.queries[0]} queries, in {len(watched.told)} questions")
    for asked, loss in watched.told[:8]:
        print(f"blocks of {asked.grid.block}, {asked.size:3} corners, the best of them {loss.max():.3f}")


if __name__ == "__main__":
    main()

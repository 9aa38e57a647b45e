"""Watch an attack: wrap its generator in another one that records each ask and the losses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

import parsimon
from parsimon import zoo
from parsimon.core.types import Corners, ImageContext, Search


class JournalEntry(NamedTuple):
    """One ask for corners, and their losses."""

    asked: Corners
    loss: np.ndarray


@dataclass(frozen=True)
class Watched(parsimon.Attack):
    """Run the attack `inner`, and record its asks. The last one is missing if it ends in a success.

    The engine then stops the search, and does not send the losses.
    """

    inner: parsimon.Attack
    journal: list[JournalEntry] = field(default_factory=list, compare=False, repr=False)

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        search = self.inner.search(context, rng)
        try:
            ask = next(search)
            while True:
                reply = yield ask
                assert isinstance(ask.points, Corners)
                self.journal.append(JournalEntry(ask.points, reply.loss))
                ask = search.send(reply)
        except StopIteration:
            return


def main() -> None:
    images, labels = zoo.images()
    watched = Watched(parsimon.Parsimonious())
    result = parsimon.attack("robust", images[1:2], labels[1:2], eps=8 / 255, attack=watched, budget=400)
    print(f"{result.queries[0]} queries, in {len(watched.journal)} recorded asks")
    for asked, loss in watched.journal[:8]:
        print(f"blocks of {asked.grid.block}, {asked.size:3} corners, highest loss {loss.max():.3f}")


if __name__ == "__main__":
    main()

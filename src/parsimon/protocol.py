"""The few types that rooms share: what an attack asks, what it is told, what becomes of an image.

How queries are counted, in one place:

- a query is one image shown to the model on behalf of a search; a charged one counts against the image's budget;
- it is counted when its reply is delivered, in the order in which the search asked, and never twice;
- the attack on an image ends at its first success or when its budget is gone: what was asked after that point in the
  same breath is evaluated perhaps, but not counted, since an attacker who asks one at a time would not have asked it;
- classifying the clean images and the checks before a run are not queries of any search and are not counted;
- rows that only fill a model batch to its fixed shape are not queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from parsimon.blocks import Grid
from parsimon.setsearch import Mask
from parsimon.threat import Threat

Image = NDArray[np.float32]  # (channels, rows, columns) in [0, 1]


class Corners(NamedTuple):
    """Corners of the ball: +eps on the blocks of a set, -eps elsewhere.

    For each flip, the base with that one block flipped; without flips, the base alone.
    """

    grid: Grid
    base: Mask
    flips: Sequence[int] = ()

    @property
    def size(self) -> int:
        return len(self.flips) or 1

    def point(self, number: int) -> Corner:
        members = self.base.copy()
        if self.flips:
            members[self.flips[number]] ^= True
        return Corner(self.grid, np.packbits(members).tobytes())


class Images(NamedTuple):
    """Any images (n, channels, rows, columns)."""

    pixels: NDArray[np.float32]

    @property
    def size(self) -> int:
        return len(self.pixels)

    def point(self, number: int) -> Image:
        return np.array(self.pixels[number])


@dataclass(frozen=True)
class Corner:
    """One corner of the ball, a bit for each block."""

    grid: Grid
    bits: bytes

    @property
    def members(self) -> Mask:
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.grid.count).astype(np.bool_)


Point = Corner | Image


class Ask(NamedTuple):
    """What a search wants to know.

    `charged`: whether it counts against the budget. `eligible_from`: a success whose loss is below this does not end
    the attack (-inf: every success does; +inf: none does). Both say in the open what a published attack does quietly.
    """

    points: Corners | Images
    charged: bool = True
    eligible_from: float = -math.inf


class Reply(NamedTuple):
    """The losses of what was asked, in its order. Larger is always better for the attacker."""

    loss: NDArray[np.float64]


Search = Generator[Ask, Reply, None]


@dataclass(frozen=True)
class Scene:
    """All that an attack knows of its image."""

    index: int  # the image's number in its data set, whatever else is attacked beside it
    image: Image
    threat: Threat
    budget: int

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.image.shape
        return channels, height, width


class Attack(Protocol):
    """A frozen dataclass whose fields are its settings."""

    def search(self, scene: Scene, rng: np.random.Generator) -> Search: ...


class Oracle(Protocol):
    """The model as the attacker sees it: images (k, channels, rows, columns) in [0, 1] to scores (k, classes)."""

    @property
    def namespace(self) -> Any:
        """The array-api namespace of the images that it takes."""

    @property
    def device(self) -> Any:
        """Where those images lie."""

    @property
    def fixed_batch(self) -> bool:
        """Whether every call must have the same shape for a row's scores not to depend on its neighbours."""

    def __call__(self, images: Any) -> NDArray[Any]: ...


Model = Callable[[NDArray[np.float32]], NDArray[Any]]


@dataclass(frozen=True)
class Task:
    """An image to attack, and the class to leave (untargeted) or to reach (targeted)."""

    index: int
    image: Image
    goal: int


Ended = Literal["success", "budget", "exhausted", "interrupted"]


@dataclass(frozen=True)
class Outcome:
    """What became of one image."""

    index: int
    success: bool
    queries: int
    ended: Ended
    uncharged: int = 0
    predicted: int | None = None  # the class at the point of success
    point: Point | None = None

"""The few types that rooms share: what an attack asks, what it is told, what becomes of an image.

How queries are counted, in one place:

- a query is one image shown to the model on behalf of a search; a charged one counts against the image's budget;
- it is counted when its reply is delivered, in the order in which the search asked, and never twice;
- the attack on an image ends at its first success or when its budget is gone: what was asked after that point in the
  same breath is evaluated perhaps, but not counted, since an attacker who asks one at a time would not have asked it;
- classifying the clean images and the checks before a run are not queries of any search and are not counted;
- rows that only fill a model batch to its fixed shape are not queries.

Some published attacks do what this rule does not foresee. It is allowed, and counted apart for each image:

- `uncharged`: evaluations that the attack asks for without being charged, such as success checks of an iterate;
- `outside`: those of all its evaluations whose image lies outside the ball, such as probes; none of them is a success;
- `out_of_range`: those of them with a pixel below 0 or above 1, which no picture has; 8-bit mode has none;
- `gradients`: those that also told the gradient, which only a white-box attack may ask for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from parsimon.core.grid import Grid, Window
from parsimon.core.threat import Loss, Rounding, Threat
from parsimon.errors import InputError, quote
from parsimon.setsearch import Mask

Image = NDArray[np.float32]  # (channels, rows, columns) in [0, 1]
ImageSource = Sequence[Image] | NDArray[np.float32]  # anything with a length whose items are images


class Corners(NamedTuple):
    """Corners of the ball: +eps on the blocks of a set, -eps elsewhere.

    For each flip, the base with that one block flipped; without flips, the base alone. Two hints save work in drawing:
    a base that is another with one block flipped may say so in `moved`; and a search that asks for single pixels'
    signs, without flips, may change its base in place between questions, if each of them says in `changed` in which
    windows the base is not as it was asked for before. Both are looked at while the question is asked, and not later.
    """

    grid: Grid
    base: Mask
    flips: Sequence[int] = ()
    moved: tuple[Mask, int] | None = None
    changed: Sequence[Window] | None = None

    @property
    def size(self) -> int:
        return len(self.flips) or 1

    def point(self, number: int) -> Corner:
        members = self.base.copy()
        if self.flips:
            members[self.flips[number]] ^= True
        return Corner(self.grid, np.packbits(members).tobytes())


class Images(NamedTuple):
    """Any images (n, channels, rows, columns), in the ball or not."""

    pixels: NDArray[np.float32]

    @property
    def size(self) -> int:
        return len(self.pixels)

    def point(self, number: int) -> Picture:
        return Picture(self.pixels.shape[1:], self.pixels[number].tobytes())


@dataclass(frozen=True)
class Corner:
    """One corner of the ball, a bit for each block."""

    grid: Grid
    bits: bytes

    @property
    def members(self) -> Mask:
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.grid.count).astype(np.bool_)


@dataclass(frozen=True)
class Picture:
    """One image, its pixels as bytes: it can be compared and stored as it is."""

    shape: tuple[int, ...]
    data: bytes

    @property
    def pixels(self) -> Image:
        return np.frombuffer(self.data, np.float32).reshape(self.shape)


Point = Corner | Picture


class Ask(NamedTuple):
    """What a search wants to know.

    `charged`: whether it counts against the budget. `eligible_from`: a success whose loss is below this does not end
    the attack (-inf: every success does; +inf: none does). Both say in the open what a published attack does quietly.
    `gradient`: whether a white-box attack wants the loss's gradient too.
    """

    points: Corners | Images
    charged: bool = True
    eligible_from: float = -math.inf
    gradient: bool = False


class Reply(NamedTuple):
    """The losses of what was asked, in its order. Larger is always better for the attacker."""

    loss: NDArray[np.float64]
    gradient: NDArray[np.float32] | None = None  # with respect to each image, if it was asked for


Search = Generator[Ask, Reply, None]


@dataclass(frozen=True)
class ImageContext:
    """All that an attack knows of its image."""

    index: int  # the image's number in its data set, whatever else is attacked beside it
    image: Image
    threat: Threat
    budget: int

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.image.shape
        return channels, height, width

    @cached_property
    def bounds(self) -> tuple[Image, Image]:
        """The lowest and the highest image of the ball."""
        return self.threat.bounds(self.image)

    def project(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """The nearest image of the ball, or images."""
        low, high = self.bounds
        projected: NDArray[np.float32] = np.minimum(np.maximum(pixels, low), high).astype(np.float32, copy=False)
        return projected


class Attack(ABC):
    """A frozen dataclass whose fields are its settings, with one generator about one image.

    It asks, is told the losses, and knows nothing of batches, devices, counting or stopping. Whatever it draws at
    random it draws from `rng`, so that the same replies always lead to the same questions.
    """

    white_box: ClassVar[bool] = False  # whether it may ask for gradients
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # settings by the name of the experiment they come from

    @abstractmethod
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        """Ask until there is nothing left to ask; the engine ends it at its first success or at its budget."""

    def own_loss(self, targeted: bool) -> Loss:  # noqa: ARG002  (for those that override it)
        """The loss that it climbs where the user does not choose one."""
        return "cross-entropy"

    @property
    def rounding(self) -> Rounding:
        """How the bounds of its ball are rounded; see `Threat`."""
        return "inward"

    @classmethod
    def preset(cls, name: str, **settings: Any) -> Self:
        """The attack as in a published experiment, but for the given settings."""
        if name not in cls.presets:
            raise InputError(f"{cls.__name__} has the presets {', '.join(cls.presets) or '(none)'}; got {quote(name)}")
        return cls(**{**cls.presets[name], **settings})


class JournalEntry(NamedTuple):
    """What a search was told of an image that is still in work: the journal by which it can be resumed."""

    image: int  # its number in its data set
    loss: NDArray[np.float64]  # of each answered point, in the order of the questions
    gradient: NDArray[np.float32] | None  # of those points for which it was asked
    outside: int  # how many of the points lay outside the ball
    uncharged: int  # how many of them were not charged
    out_of_range: int = 0  # how many of them had a pixel outside [0, 1]


@dataclass(frozen=True)
class Task:
    """An image to attack, and the class to leave (untargeted) or to reach (targeted).

    `told` is what its search was told before an interruption; it is told that again, and the model is not asked.
    """

    index: int
    image: Image
    goal: int
    told: JournalEntry | None = None


Ended = Literal["success", "budget", "exhausted", "interrupted"]


@dataclass(frozen=True)
class Outcome:
    """What became of one image. The counts are explained at the top of this module."""

    index: int
    success: bool
    queries: int
    ended: Ended
    uncharged: int = 0
    outside: int = 0
    gradients: int = 0
    predicted: int | None = None  # the class at the point of success
    point: Point | None = None
    # The model's probability of that class there. A framework may round its last digits otherwise in a batch of another
    # shape, and two runs that came to the same are equal all the same.
    confidence: float | None = field(default=None, compare=False)
    out_of_range: int = 0

    @classmethod
    def unfinished(cls, index: int, told: JournalEntry | None) -> Outcome:
        """Of an image whose attack has not ended, by what its search was told so far."""
        if told is None:
            return cls(index, False, 0, "interrupted")
        gradients = 0 if told.gradient is None else len(told.gradient)
        queries = len(told.loss) - told.uncharged
        counts = (told.uncharged, told.outside, gradients)
        return cls(index, False, queries, "interrupted", *counts, out_of_range=told.out_of_range)

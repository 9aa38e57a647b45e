"""The types that packages share: what an attack asks, what it receives, and the outcome of an image.

How queries are counted:

- A query is one image shown to the model for a search. A charged query counts against the budget of its image.
- A query is counted when its loss is delivered, in the order in which the search asked, and only once.
- An attack ends at its first success or when its budget is spent. Later points of the same ask may be evaluated, but
  are not counted. An attacker who sends one query at a time would not have sent them.
- Clean images, checks before a run, and rows that only fill a batch to its fixed shape are not queries.

Some published attacks make evaluations that this rule does not cover. They are allowed, and counted per image:

- `uncharged`: evaluations without charge, such as success checks of an iterate.
- `outside`: evaluations of images outside the ball, such as probes. They never succeed.
- `out_of_range`: those of them with a pixel below 0 or above 1. There are none in 8-bit mode.
- `gradients`: evaluations that also returned the gradient, for white-box attacks only.

On a random model, an attack returns one point per image, and fresh draws of it decide. They are counted as `draws`,
and belong to no other count. All other queries are counted as above, each repetition once.

A label-only attack sees the predicted class alone, and looks for an adversarial image close to the clean one. It may
ask outside the ball, and all of its queries are charged. The *radius* of an image is the distance of the closest
adversarial image found. With `until_budget` such an attack continues after its success: `queries` still counts to the
success, and `extra` the rest.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsimon.core.grid import Grid, Window
from parsimon.core.model import AnswerLevel
from parsimon.core.parsing import Configurable
from parsimon.core.threat import Loss, Rounding, Threat
from parsimon.setsearch import Mask

Image = NDArray[np.float32]  # (channels, rows, columns) in [0, 1]
ImageSource = Sequence[Image] | NDArray[np.float32]  # anything with a length whose items are images


class Corners(NamedTuple):
    """Corners of the ball, each given by a set of blocks: +eps on the blocks of the set, -eps on all others.

    Attributes:
        grid: The blocks.
        base: The set that all corners differ from in one block.
        flips: One corner per flip: the base with the membership of that block flipped. Without flips, the base alone.
        moved: A mask and a block, if the base is that mask with that block flipped. It saves a comparison.
        changed: The windows in which the search has changed `base` in place since its last ask. Only for a grid of
            single pixels, without flips. None if the base is never changed in place.
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
    """Any images (n, channels, rows, columns), inside or outside the ball."""

    pixels: NDArray[np.float32]

    @property
    def size(self) -> int:
        return len(self.pixels)

    def point(self, number: int) -> Picture:
        return Picture(self.pixels.shape[1:], self.pixels[number].tobytes())


@dataclass(frozen=True)
class Corner:
    """One corner of the ball, with one bit per block."""

    grid: Grid
    bits: bytes

    @property
    def members(self) -> Mask:
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.grid.count).astype(np.bool_)


@dataclass(frozen=True)
class Picture:
    """One image as bytes, which can be compared and stored."""

    shape: tuple[int, ...]
    data: bytes

    @property
    def pixels(self) -> Image:
        return np.frombuffer(self.data, np.float32).reshape(self.shape)


Point = Corner | Picture


Ended = Literal["success", "budget", "exhausted", "interrupted"]


class Ask(NamedTuple):
    """Points whose losses a search wants.

    Attributes:
        points: Corners of the ball, or any images.
        charged: Whether they count against the budget.
        eligible_from: A success with a loss below this does not end the attack. -inf: every success does; +inf: none.
        gradient: Whether the search also wants the gradient of the loss; for white-box attacks only.
        margins: Whether the search also wants the margins of the contenders; for attacks that need scores.
        verdict: If set, the points are fresh draws of the point that the attack returns, on a random model. They end
            the attack: as a success if more than half of them err, otherwise as given here.
    """

    points: Corners | Images
    charged: bool = True
    eligible_from: float = -math.inf
    gradient: bool = False
    margins: bool = False
    verdict: Ended | None = None

    def ends_at(self, loss: float) -> bool:
        """Return whether a success with this loss, which may be infinite, ends the attack."""
        return loss >= self.eligible_from and self.eligible_from < math.inf


class Reply(NamedTuple):
    """The losses of the points of an ask, in its order. A larger loss is always better for the attacker.

    A label-only attack receives minus the distance of an adversarial point to the clean image, and -inf for any other.

    Attributes:
        loss: The loss of each point.
        gradient: The gradient with respect to each image, if the ask wanted it.
        margins: Per point and contender, by how much its score exceeds that of the true class, if the ask wanted it.
            The contenders of an image are the other classes with the highest scores, in a fixed order. They are chosen
            at the first point of the first ask for margins. None unless the attack is untargeted and climbs the margin
            loss, which is the highest margin.
    """

    loss: NDArray[np.float64]
    gradient: NDArray[np.float32] | None = None
    margins: NDArray[np.float32] | None = None


def join_replies(replies: Sequence[Reply]) -> Reply:
    """Return the replies to the parts of an ask, in their order, as one."""
    gradients = [each.gradient for each in replies if each.gradient is not None]
    margins = [each.margins for each in replies if each.margins is not None]
    return Reply(
        np.concatenate([each.loss for each in replies]),
        np.concatenate(gradients) if gradients else None,
        np.concatenate(margins) if margins else None,
    )


Search = Generator[Ask, Reply, None]


def next_ask(search: Search, reply: Reply | None) -> Ask | None:
    """Send a reply to a search and return its next ask, or None if it has ended. The reply None starts a search."""
    try:
        return next(search) if reply is None else search.send(reply)
    except StopIteration:
        return None


@dataclass(frozen=True)
class ImageContext:
    """Everything that an attack knows about its image."""

    index: int  # the number of the image in its data set
    image: Image
    threat: Threat
    budget: int
    example: Image | None = None  # an image of the target class, for targeted label-only attacks

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.image.shape
        return channels, height, width

    @cached_property
    def bounds(self) -> tuple[Image, Image]:
        """The lowest and the highest image of the ball."""
        return self.threat.bounds(self.image)

    def project(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Return the nearest image in the ball, for one image or several."""
        low, high = self.bounds
        projected: NDArray[np.float32] = np.minimum(np.maximum(pixels, low), high).astype(np.float32, copy=False)
        return projected


class Paper(NamedTuple):
    """The paper that an attack comes from."""

    authors: str
    title: str
    year: int
    link: str


class Attack(Configurable, ABC):
    """A frozen dataclass whose fields are its settings, with one generator that attacks one image.

    The generator yields asks and receives losses. It knows nothing of batches, devices, counting or stopping. All its
    randomness comes from `rng`, so that the same replies always lead to the same asks.

    Attributes:
        needs: The level of response that it needs; a white-box attack needs gradients.
        climbs: Whether it keeps a change only if the change raises the loss.
        paper: The paper that it comes from, if there is one.
    """

    needs: ClassVar[AnswerLevel] = "loss"
    climbs: ClassVar[bool] = True
    paper: ClassVar[Paper | None] = None

    @abstractmethod
    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        """Ask until there is nothing left to ask; the engine ends it at a success or when its budget is spent."""

    @property
    def white_box(self) -> bool:
        """Whether it may ask for gradients."""
        return self.needs == "gradient"

    def most_evaluations(self, budget: int) -> int:
        """Return the most evaluations of one image within a budget, uncharged ones included."""
        return budget

    def own_loss(self, targeted: bool) -> Loss:  # noqa: ARG002  (used by subclasses)
        """Return the loss that it climbs unless the user chooses one."""
        return "cross-entropy"

    @property
    def rounding(self) -> Rounding:
        """How the bounds of its ball are rounded; see `Threat`."""
        return "inward"


class Margins(NamedTuple):
    """The margins of the contenders of an image."""

    contenders: NDArray[np.int32]  # classes
    values: NDArray[np.float32]  # per point and contender


class JournalEntry(NamedTuple):
    """Losses that a search has received, by which the attack on an unfinished image can be resumed."""

    image: int  # its number in its data set
    loss: NDArray[np.float64]  # per point, in the order of the asks
    gradient: NDArray[np.float32] | None  # per point for which the search asked for it
    outside: int  # number of points outside the ball
    uncharged: int  # number of points without charge
    out_of_range: int = 0  # number of points with a pixel outside [0, 1]
    predicted: int | None = None  # the class at the point of the highest loss, for label-only attacks
    margins: Margins | None = None  # if the search asked for them


@dataclass(frozen=True)
class Task:
    """An image to attack.

    Attributes:
        index: The number of the image in its data set.
        image: Its pixels.
        goal: The class to leave (untargeted) or to reach (targeted).
        journal: Losses from before an interruption. They are replayed, without queries to the model.
        example: An image that the model classifies as the goal, from which a targeted label-only attack may start.
            Its class is known from the clean predictions, so it costs no query. None if there is none.
    """

    index: int
    image: Image
    goal: int
    journal: JournalEntry | None = None
    example: Image | None = None


Radii = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Outcome:
    """The outcome of the attack on one image. The counts are explained at the top of this module."""

    index: int
    success: bool
    queries: int
    ended: Ended
    uncharged: int = 0
    outside: int = 0
    gradients: int = 0
    predicted: int | None = None  # the class at the point of success
    point: Point | None = None
    # The model's probability of that class. It is not compared: its last digits depend on the shape of the batch.
    confidence: float | None = field(default=None, compare=False)
    out_of_range: int = 0
    flat: bool = False  # not a success, and all of its losses, two at least, were equal
    radii: Radii = ()  # each query that found a closer adversarial image, and its radius; for label-only attacks
    extra: int = 0  # charged queries after the success
    draws: int = 0  # fresh draws of the point that was returned, on a random model
    errors: int = 0  # those of them in which the model erred
    flagged: int | None = None  # charged queries that a detector flagged; None: nothing watched them
    first_flag: int | None = None  # number of the first of them

    @property
    def radius(self) -> float | None:
        """The distance of the closest adversarial image found, inside or outside the ball; None if there is none."""
        return self.radii[-1][1] if self.radii else None

    @property
    def error_rate(self) -> float | None:
        """The share of fresh draws in which a random model erred; None without such draws."""
        return self.errors / self.draws if self.draws else None

    @property
    def charged(self) -> int:
        """All charged queries."""
        return self.queries + self.extra

    @classmethod
    def unfinished(cls, index: int, journal: JournalEntry | None, threat: Threat) -> Outcome:
        """Return the outcome of an interrupted attack, counted from its journal."""
        if journal is None:
            return cls(index, success=False, queries=0, ended="interrupted")
        label_only = threat.loss == "label"
        return cls(
            index,
            success=False,
            queries=len(journal.loss) - journal.uncharged,
            ended="interrupted",
            uncharged=journal.uncharged,
            outside=journal.outside,
            gradients=0 if journal.gradient is None else len(journal.gradient),
            out_of_range=journal.out_of_range,
            flat=not label_only and len(journal.loss) > 1 and bool((journal.loss == journal.loss[0]).all()),
            radii=radii_of(journal.loss.tolist()) if label_only else (),
        )


def radii_of(losses: Iterable[float], before: float = -math.inf, queries: int = 0) -> Radii:
    """Return the queries of a label-only attack that found a closer adversarial image, and their radii.

    `before` is the highest loss of the `queries` before these.
    """
    found = []
    for number, loss in enumerate(losses, queries + 1):
        if loss > before:
            before = loss
            found.append((number, -loss))
    return tuple(found)

"""Moon, An, Song: *Parsimonious Black-Box Adversarial Attacks via Efficient Combinatorial Optimization* (ICML 2019).

Every query is a corner of the ball: +eps on a set of blocks, -eps elsewhere. Lazy greedy local search finds the set
(Algorithms 1 to 3). It works level by level, over a hierarchy of smaller and smaller blocks (Algorithms 4 and 5).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import ClassVar, Literal, get_args

import numpy as np

from parsimon import setsearch
from parsimon.core.grid import Grid, first_grid
from parsimon.core.threat import Rounding
from parsimon.core.types import Ask, Attack, Corners, ImageContext, Paper, Reply, Search
from parsimon.errors import MOST, InputError, check_choice, check_flag, check_whole, quote
from parsimon.setsearch import Elements, Found, LazyRule, Mask, Phase, SetSearch

Behaviour = Literal["paper", "published"]
Greedy = Literal["lazy", "naive", "stochastic"]


@dataclass(frozen=True)
class Parsimonious(Attack):
    """The attack of the paper; its one hyperparameter is the size of the first blocks.

    Attributes:
        behaviour: `paper`: Algorithms 1 to 5. `published`: query for query like the authors' code. That code forces the
            first flip of each phase, repeats known queries, and tests only adopted flips for success. It never tries
            the complement, never converges, and orders blocks by `RandomState(image number)`. It also rounds the bounds
            of the ball to the nearest float, so that a pixel may exceed eps by up to 6e-8.
        block: Side of the first blocks, in pixels of the noise image; None: about an eighth of its side.
        noise: Rows and columns of the noise image, which is upsampled to the image. None: those of the image, or the
            next smaller power of two if the blocks do not fit.
        mini_batch: Number of blocks that are inserted and deleted together (section 4).
        max_iterations: Rounds of insertion and deletion per mini-batch (MAXITER).
        greedy: How a phase picks blocks: `lazy` (Algorithms 1 and 2), `naive`, `stochastic` (section 3.4).
        delete_zero: For `published`: let deletion adopt a flip without effect, as the authors' code does for CIFAR-10,
            but not for ImageNet.
    """

    behaviour: Behaviour = "paper"
    block: int | None = None
    noise: tuple[int, int] | None = None
    mini_batch: int = 64
    max_iterations: int = 1
    greedy: Greedy = "lazy"
    delete_zero: bool = True

    paper: ClassVar = Paper(
        "Moon, An and Song",
        "Parsimonious Black-Box Adversarial Attacks via Efficient Combinatorial Optimization",
        2019,
        "https://arxiv.org/abs/1905.06635",
    )
    presets: ClassVar = {
        "cifar10": {"block": 4},
        "imagenet": {"block": 32},  # for 299 x 299 as in the paper, this gives a noise image of 256 x 256
        "published-cifar10": {"behaviour": "published", "block": 4},
        "published-imagenet": {"behaviour": "published", "block": 32, "noise": (256, 256), "delete_zero": False},
    }

    def __post_init__(self) -> None:
        check_choice("behaviour", self.behaviour, get_args(Behaviour))
        check_choice("greedy", self.greedy, get_args(Greedy))
        for name in ("mini_batch", "max_iterations"):
            check_whole(name, getattr(self, name), 1, MOST)
        check_flag("delete_zero", self.delete_zero)
        if self.behaviour == "published" and (self.greedy, self.max_iterations) != ("lazy", 1):
            raise InputError("behaviour='published' needs greedy='lazy' and max_iterations=1")
        if self.block is not None and not (
            isinstance(self.block, Integral)
            and not isinstance(self.block, bool)
            and 1 <= self.block <= MOST
            and int(self.block).bit_count() == 1
        ):
            what = f"block must be a power of two, so that it can be halved down to 1, and at most {MOST:,}"
            raise InputError(f"{what}; got {quote(self.block)}")
        if self.noise is not None:
            if not isinstance(self.noise, tuple) or len(self.noise) != 2:
                raise InputError(f"noise must be a pair (rows, columns) or None; got {quote(self.noise)}")
            for side in self.noise:
                check_whole("each side of noise", side, 1, MOST)

    @property
    def rounding(self) -> Rounding:
        return "nearest" if self.behaviour == "published" else "inward"

    def search(self, context: ImageContext, rng: np.random.Generator) -> Search:
        grid = first_grid(context.shape, self.block, self.noise)
        if self.behaviour == "published":
            return self._published(grid, np.random.RandomState(context.index))
        return self._paper(grid, rng)

    def _paper(self, grid: Grid, rng: np.random.Generator) -> Search:
        """Search level by level, from the coarsest grid to single pixels (Algorithm 5)."""
        known: dict[int, float] = {}  # shared by all levels: on a finer grid, a corner is still the same corner
        members = empty_set(grid)
        while True:
            level = setsearch.remembering(self._level(grid, members, rng), known, grid.words)
            members, _ = yield from ask_corners(grid, level)
            if grid.block == 1:
                return
            members = grid.split(members)
            grid = grid.halved()

    def _level(self, grid: Grid, members: Mask, rng: np.random.Generator) -> SetSearch:
        """Run local search on one grid (Algorithm 3); on the last one, until it no longer raises the value."""
        phases: dict[Greedy, Phase] = {
            "lazy": setsearch.lazy_greedy,
            "naive": setsearch.greedy,
            "stochastic": partial(setsearch.stochastic_greedy, rng=rng),
        }
        found = yield from setsearch.evaluate(members)
        while True:
            before = found.value
            batches = setsearch.mini_batches(rng.permutation(grid.count), self.mini_batch)
            found = yield from setsearch.local_search(
                found, batches, phase=phases[self.greedy], max_iterations=self.max_iterations
            )
            if grid.block > 1 or found.value <= before:
                return found

    def _published(self, grid: Grid, rng: np.random.RandomState) -> Search:
        """Search as the authors' code does."""
        insertion = LazyRule(force_first=True, adopt_zero=True, ask_again=True)
        deletion = LazyRule(force_first=True, adopt_zero=self.delete_zero, ask_again=True)

        def mini_batch_search(members: Mask, batch: Elements) -> SetSearch:
            found = yield from setsearch.evaluate(members)
            found = yield from setsearch.lazy_greedy(found, batch, inserting=True, rule=insertion)
            return (yield from setsearch.lazy_greedy(found, batch, inserting=False, rule=deletion))

        members = empty_set(grid)
        while True:
            for batch in setsearch.mini_batches(rng.permutation(grid.count), self.mini_batch):
                search = mini_batch_search(members, batch)
                members, _ = yield from ask_corners(grid, search, adopted_only=True)
            if grid.block > 1:
                members = grid.split(members)
                grid = grid.halved()


def empty_set(grid: Grid) -> Mask:
    """Return the empty set of blocks: -eps everywhere."""
    return np.zeros(grid.count, np.bool_)


def ask_corners(grid: Grid, search: SetSearch, *, adopted_only: bool = False) -> Generator[Ask, Reply, Found]:
    """Run a set search whose sets are corners of the ball; with `adopted_only`, only adopted sets end the attack."""
    try:
        family = next(search)
        while True:
            base, flips, adopted_from, moved = family
            reply = yield Ask(Corners(grid, base, flips, moved), True, adopted_from if adopted_only else -math.inf)
            family = search.send(reply.loss)
    except StopIteration as stop:
        found: Found = stop.value
        return found

"""The plain loop of the authors' published code: one image after another, one mini-batch after another.

It is the slow twin of `Parsimonious("published")`, without generators, engine or canvas. It renders every queried image
in full and sends at most 100 per model call. The tests compare the two, and benchmarks/loop.py times them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon import Threat
from parsimon.core.types import Image

CHUNK = 100


class BudgetGoneError(Exception):
    """Where the published code would find out only later."""


@dataclass
class Loop:
    """The attack on one image of equal height and width."""

    model: Callable[[NDArray[np.float32]], NDArray[Any]]
    threat: Threat
    image: Image
    goal: int
    number: int
    budget: int
    noise_side: int
    block: int
    mini_batch: int = 64
    delete_zero: bool = True
    queries: int = field(default=0, init=False)
    adversarial: Image | None = field(default=None, init=False)

    def run(self) -> bool:
        rng = np.random.RandomState(self.number)
        channels = self.image.shape[0]
        noise = np.full((channels, self.noise_side, self.noise_side), -1)
        block = self.block
        try:
            while True:
                cells = range(0, self.noise_side, block)
                blocks = [(row, column, channel) for row in cells for column in cells for channel in range(channels)]
                order = rng.permutation(len(blocks))
                for start in range(0, len(blocks), self.mini_batch):
                    chosen = [blocks[number] for number in order[start : start + self.mini_batch]]
                    loss, success = self._ask([noise])
                    if success[0]:
                        return self._won(noise)
                    for side in (-1, 1):  # insertion looks at the blocks at -eps, deletion at those at +eps
                        noise, loss, won = self._phase(noise, loss, chosen, block, side)
                        if won:
                            return True
                block = max(1, block // 2)
        except BudgetGoneError:
            return False

    def _phase(self, noise: Any, loss: Any, blocks: list[Any], block: int, side: int) -> tuple[Any, Any, bool]:
        candidates = [place for place in blocks if noise[place[2], place[0], place[1]] == side]
        heap = []
        for start in range(0, len(candidates), CHUNK):
            flips = [self._flip(noise, place, block) for place in candidates[start : start + CHUNK]]
            losses, successes = self._ask(flips, stop_at_success=True)
            if successes.any():
                return noise, loss, self._won(flips[int(successes.argmax())])
            heap += [(loss[0] - each, start + number) for number, each in enumerate(losses)]
        if not heap:
            return noise, loss, False
        heapq.heapify(heap)
        change, number = heapq.heappop(heap)
        noise, loss = self._flip(noise, candidates[number], block), loss - change
        while heap:
            _, number = heapq.heappop(heap)
            flip = self._flip(noise, candidates[number], block)
            losses, successes = self._ask([flip])
            change = loss[0] - losses[0]
            if heap and change > heap[0][0]:
                heapq.heappush(heap, (change, number))
                continue
            if change > 0 or (side == 1 and not self.delete_zero and change == 0):
                break
            noise, loss = flip, losses
            if successes[0]:
                return noise, loss, self._won(noise)
        return noise, loss, False

    def _ask(self, noises: list[Any], stop_at_success: bool = False) -> tuple[Any, Any]:
        allowed = noises[: self.budget - self.queries]
        if not allowed:
            raise BudgetGoneError
        images = np.stack([self._draw(noise) for noise in allowed])
        losses, successes, _ = self.threat.judge(self.model(images), np.full(len(images), self.goal))
        counted = int(successes.argmax()) + 1 if stop_at_success and successes.any() else len(allowed)
        self.queries += counted
        if counted < len(noises) and not (stop_at_success and successes.any()):
            raise BudgetGoneError
        return losses, successes

    def _draw(self, noise: Any) -> Image:
        side = self.image.shape[1]
        nearest = np.arange(side) * self.noise_side // side
        low, high = self.threat.bounds(self.image)
        return np.where(noise[:, nearest][:, :, nearest] > 0, high, low)

    def _flip(self, noise: Any, place: Any, block: int) -> Any:
        row, column, channel = place
        flipped = noise.copy()
        flipped[channel, row : row + block, column : column + block] *= -1
        return flipped

    def _won(self, noise: Any) -> bool:
        self.adversarial = self._draw(noise)
        return True

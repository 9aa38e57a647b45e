"""A slow, obvious twin of the engine: one image at a time, with its own rendering, loss and counting."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from parsimon.core.engine import Engine
from parsimon.core.grid import Grid
from parsimon.core.threat import CONTENDERS, Threat
from parsimon.core.types import (
    Ask,
    Attack,
    Corner,
    Corners,
    Image,
    ImageContext,
    Images,
    Outcome,
    Reply,
    Search,
    Task,
    next_ask,
)
from parsimon.testing.model import BUDGET, SHAPES, THREATS, Network, eight_bit, tasks_for, threats_for

_NETWORK = Network(SHAPES[0])

PixelOutcome = tuple[Outcome, bytes | None]  # an outcome, with pixels instead of its point
# Each ask with its reply before the search receives it, or with None if the attack has ended; then the outcome.
Exchanges = Generator[tuple[Ask, Reply | None], None, Outcome]


class Seen(NamedTuple):
    """One evaluated image."""

    shown: Image
    loss: float
    predicted: int
    hit: bool  # whether it is adversarial and lies in the ball


@dataclass(frozen=True)
class Case:
    """Images to attack, by the twin or by the engine."""

    network: Network = _NETWORK
    threat: Threat = THREATS[0]
    budget: int = BUDGET
    count: int = 6

    @classmethod
    def of(cls, attack: Attack, **settings: Any) -> Self:
        """Return a case under the first threat for this attack."""
        return cls(threat=threats_for(attack)[0], **settings)

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tasks_for(self.network.shape, self.threat, self.count)

    def context(self, task: Task) -> ImageContext:
        return ImageContext(task.index, task.image, self.threat, self.budget, task.example)

    def search(self, attack: Attack, task: Task) -> Search:
        return attack.search(self.context(task), np.random.default_rng([0, task.index]))

    def by_hand(self, attack: Attack, task: Task) -> Exchanges:
        """Attack one image, counted as described in `core.types`. The point of the outcome is an image."""
        search, context = self.search(attack, task), self.context(task)
        outcome = Outcome(task.index, False, 0, "exhausted")
        reply: Reply | None = None
        seen: list[Seen] = []
        contenders: list[int] | None = None
        while (ask := next_ask(search, reply)) is not None:
            assert ask.points.size, f"{attack} asks for no image: an ask must have at least one point."
            assert attack.white_box or not ask.gradient, f"{attack} asks for gradients, but is not a white-box attack."
            assert attack.needs in ("scores", "gradient") or not ask.margins, (
                f"{attack} asks for margins, but does not need scores."
            )
            assert attack.needs != "label" or (ask.charged and ask.eligible_from == -math.inf), (
                f"{attack} is label-only: all of its asks must be charged, and end at any success."
            )
            evaluated = []
            for shown in rendered(context, ask.points):
                assert shown.shape == context.shape, (
                    f"{attack} asks for an image of shape {shown.shape} about one of {context.shape}."
                )
                if ask.charged and outcome.queries == self.budget:
                    outcome = replace(outcome, ended="budget")
                    break
                outside = not within(shown, context.bounds)
                outcome = replace(
                    outcome,
                    queries=outcome.queries + ask.charged,
                    uncharged=outcome.uncharged + (not ask.charged),
                    outside=outcome.outside + outside,
                    out_of_range=outcome.out_of_range + bool(shown.min() < 0 or shown.max() > 1),
                    gradients=outcome.gradients + ask.gradient,
                )
                assert outcome.uncharged <= self.budget + 1, (
                    f"{attack} asks for more than {self.budget + 1} uncharged images with a budget of {self.budget}: "
                    "uncharged queries must be bounded."
                )
                loss, predicted, gradient, scores = self._evaluate(task, shown, ask.gradient)
                if ask.margins and contenders is None:
                    ranked = sorted(range(len(scores)), key=lambda number: -scores[number])
                    contenders = [number for number in ranked if number != task.goal][:CONTENDERS]
                hit = self.fooled(predicted, task) and not outside
                seen.append(Seen(shown, loss, predicted, hit))
                if hit and math.inf > ask.eligible_from <= loss and not self.threat.until_budget:
                    outcome = replace(_success(outcome, seen[-1]), ended="success")
                    break
                evaluated.append((loss, gradient, [scores[number] - scores[task.goal] for number in contenders or ()]))
            reply = None
            if outcome.ended == "exhausted":
                losses, gradients, margins = zip(*evaluated, strict=True)
                with_margins = ask.margins and self.threat.loss == "margin" and not self.threat.targeted
                reply = Reply(
                    np.array(losses),
                    np.stack(gradients) if ask.gradient else None,
                    np.array(margins, np.float32) if with_margins else None,
                )
            yield ask, reply
            if reply is None:
                break
        if attack.needs == "label":
            return self._with_radii(outcome, seen)
        flat = not outcome.success and len(seen) > 1 and len({each.loss for each in seen}) == 1
        return replace(outcome, flat=flat)

    def _with_radii(self, outcome: Outcome, seen: Sequence[Seen]) -> Outcome:
        """Complete the outcome of a label-only attack."""
        losses = [each.loss for each in seen]
        closer = [number for number, loss in enumerate(losses) if loss > max(losses[:number], default=-math.inf)]
        outcome = replace(outcome, radii=tuple((number + 1, -losses[number]) for number in closer))
        hits = [number for number, each in enumerate(seen, 1) if each.hit]
        if not self.threat.until_budget or not hits:
            return outcome
        counted = replace(outcome, queries=hits[0], extra=len(seen) - hits[0])
        return _success(counted, seen[closer[-1]])

    def fooled(self, predicted: int, task: Task) -> bool:
        """Return whether this prediction is a success."""
        return (predicted == task.goal) == self.threat.targeted

    def _evaluate(
        self, task: Task, shown: Image, with_gradient: bool
    ) -> tuple[float, int, Image | None, NDArray[np.float64]]:
        """Return the loss of one image, its predicted class, the gradient if it is wanted, and the scores."""
        goal, gradient = task.goal, None
        if with_gradient:
            goals = np.array([goal])
            (scores,), (gradient,) = self.network.vjp(
                shown[None], lambda scores: self.threat.loss_gradient(scores, goals)
            )
        else:
            (scores,) = self.network(shown[None])
        predicted = int(scores.argmax())
        if self.threat.loss == "label":
            loss = -self._distance(task, shown) if self.fooled(predicted, task) else -math.inf
            return loss, predicted, None, scores
        if self.threat.loss == "margin":
            loss = np.delete(scores, goal).max() - scores[goal]
        else:
            loss = scores.max() + np.log(np.exp(scores - scores.max()).sum()) - scores[goal]
        return -loss if self.threat.targeted else loss, predicted, gradient, scores

    def _distance(self, task: Task, shown: Image) -> float:
        """Return the distance to the clean image, in single precision or in levels; in the ball it is at most eps."""
        distance = float(np.float32(np.abs(shown.astype(np.float64) - task.image).max()))
        if self.threat.eight_bit:
            distance = round(255 * distance) / 255
        inside = within(shown, self.threat.bounds(task.image))
        return min(distance, self.threat.eps) if inside else max(distance, math.nextafter(self.threat.eps, math.inf))

    def by_twin(self, attack: Attack) -> dict[int, PixelOutcome]:
        """Return the outcomes of the twin, by image."""
        outcomes = {}
        for task in self.tasks:
            exchanges = self.by_hand(attack, task)
            try:
                while True:
                    next(exchanges)
            except StopIteration as stop:
                outcomes[task.index] = self._with_pixels(stop.value, task)
        return outcomes

    def by_engine(self, attack: Attack, *, backwards: bool = False, **settings: int) -> dict[int, PixelOutcome]:
        """Return the outcomes of the engine. Call `by_twin` first: it detects an attack that never ends."""
        tasks = {task.index: task for task in (self.tasks[::-1] if backwards else self.tasks)}
        engine = Engine(attack, self.network, self.threat, budget=self.budget, **settings)
        outcomes = engine.run(tasks.values())
        return {outcome.index: self._with_pixels(outcome, tasks[outcome.index]) for outcome in outcomes}

    def _with_pixels(self, outcome: Outcome, task: Task) -> PixelOutcome:
        """Make an outcome comparable, whether its point is a corner or an image."""
        point = outcome.point
        if point is None:
            return outcome, None
        points = Corners(point.grid, point.members) if isinstance(point, Corner) else Images(point.pixels[None])
        (shown,) = rendered(self.context(task), points)
        return replace(outcome, point=None), shown.tobytes()

    def compare(self, attack: Attack, expected: dict[int, PixelOutcome], where: str, **settings: Any) -> None:
        """Compare the outcomes of the engine with those of the twin."""
        found = self.by_engine(attack, **settings)
        for index, outcome in expected.items():
            assert found[index] == outcome, (
                f"{attack} has another outcome {where} than one query at a time: {found[index][0]}, not {outcome[0]}."
            )


def _success(outcome: Outcome, found: Seen) -> Outcome:
    point = Images(found.shown[None]).point(0)
    return replace(outcome, success=True, predicted=found.predicted, point=point)


def rendered(context: ImageContext, points: Corners | Images) -> Iterator[Image]:
    """Yield each point as the model should receive it."""
    if isinstance(points, Images):
        pixels = points.pixels.astype(np.float32)
        yield from eight_bit(pixels) if context.threat.eight_bit else pixels
        return
    low, high = context.threat.bounds(context.image)
    for flips in [[flip] for flip in points.flips] or [[]]:
        members = points.base.copy()
        members[flips] = ~members[flips]
        yield np.where(members[_block_of_each_pixel(points.grid)], high, low)


@lru_cache(maxsize=64)
def _block_of_each_pixel(grid: Grid) -> NDArray[np.intp]:
    """Return the block number of each pixel: by row, column and channel of the noise image."""
    channels, *sides = grid.shape
    numbers = np.arange(grid.count).reshape(*(side // grid.block for side in grid.noise), channels)
    noise = numbers.repeat(grid.block, axis=0).repeat(grid.block, axis=1)
    rows, columns = (np.arange(side) * of // side for side, of in zip(sides, grid.noise, strict=True))
    return noise[rows][:, columns].transpose(2, 0, 1)


def within(pixels: Image, bounds: tuple[Image, Image]) -> bool:
    """Return whether all pixels lie between two images."""
    return bool((bounds[0] <= pixels).all() and (pixels <= bounds[1]).all())

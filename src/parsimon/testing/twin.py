"""The slow, obvious twin of the engine: one image at a time, with a drawing, a loss and a count of its own."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.engine import Engine
from parsimon.core.grid import Grid
from parsimon.core.threat import Threat
from parsimon.core.types import Ask, Attack, Corner, Corners, Image, ImageContext, Images, Outcome, Reply, Search, Task
from parsimon.testing.model import BUDGET, SHAPES, THREATS, Network, eight_bit, tasks_for

_NETWORK = Network(SHAPES[0])

Fate = tuple[Outcome, bytes | None]  # an outcome, with the pixels that were shown in place of its point
# Each question with its reply before the search is told it, or with None where the attack has ended; then the outcome.
Talk = Generator[tuple[Ask, Reply | None], None, Outcome]


@dataclass(frozen=True)
class Case:
    """Some images to attack, by hand or in the engine."""

    network: Network = _NETWORK
    threat: Threat = THREATS[0]
    budget: int = BUDGET
    count: int = 6

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tasks_for(self.network.shape, self.threat, self.count)

    def context(self, task: Task) -> ImageContext:
        return ImageContext(task.index, task.image, self.threat, self.budget)

    def search(self, attack: Attack, task: Task) -> Search:
        return attack.search(self.context(task), np.random.default_rng([0, task.index]))

    def by_hand(self, attack: Attack, task: Task) -> Talk:
        """The twin: one image at a time, counted as the top of `protocol` says. The outcome's point is an image."""
        search, context = self.search(attack, task), self.context(task)
        outcome = Outcome(task.index, False, 0, "exhausted")
        reply: Reply | None = None
        while (ask := next_question(search, reply)) is not None:
            assert ask.points.size, f"{attack} asks for no image at all, to which there is no reply."
            assert attack.white_box or not ask.gradient, f"{attack} asks for gradients, but is not a white-box attack."
            told = []
            for shown in drawn(context, ask.points):
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
                    f"{attack} asks for more than {self.budget + 1} images without being charged, on a budget of "
                    f"{self.budget}: an attack that lives on free questions would never end."
                )
                loss, predicted, gradient = self._told(task.goal, shown, ask.gradient)
                if self.fooled(predicted, task) and not outside and loss >= ask.eligible_from:
                    point = Images(shown[None]).point(0)
                    outcome = replace(outcome, success=True, ended="success", predicted=predicted, point=point)
                    break
                told.append((loss, gradient))
            reply = None
            if outcome.ended == "exhausted":
                losses, gradients = zip(*told, strict=True)
                reply = Reply(np.array(losses), np.stack(gradients) if ask.gradient else None)
            yield ask, reply
            if reply is None:
                break
        return outcome

    def fooled(self, predicted: int, task: Task) -> bool:
        return (predicted == task.goal) == self.threat.targeted

    def _told(self, goal: int, shown: Image, with_gradient: bool) -> tuple[float, int, Image | None]:
        """For one image: the loss, the class that the network sees, perhaps the gradient."""
        gradient = None
        if with_gradient:
            slope = lambda scores: self.threat.loss_gradient(scores, np.array([goal]))  # noqa: E731
            (scores,), (gradient,) = self.network.vjp(shown[None], slope)
        else:
            (scores,) = self.network(shown[None])
        if self.threat.loss == "margin":
            loss = np.delete(scores, goal).max() - scores[goal]
        else:
            loss = scores.max() + np.log(np.exp(scores - scores.max()).sum()) - scores[goal]
        return -loss if self.threat.targeted else loss, int(scores.argmax()), gradient

    def alone(self, attack: Attack) -> dict[int, Fate]:
        """What becomes of each image by hand."""
        fates = {}
        for task in self.tasks:
            talk = self.by_hand(attack, task)
            try:
                while True:
                    next(talk)
            except StopIteration as stop:
                fates[task.index] = self._fate(stop.value, task)
        return fates

    def together(self, attack: Attack, *, backwards: bool = False, **settings: int) -> dict[int, Fate]:
        """The same in the engine. Call `alone` first: it stops an attack without an end, which the engine would not."""
        tasks = {task.index: task for task in (self.tasks[::-1] if backwards else self.tasks)}
        engine = Engine(attack, self.network, self.threat, budget=self.budget, **settings)
        return {outcome.index: self._fate(outcome, tasks[outcome.index]) for outcome in engine.run(tasks.values())}

    def _fate(self, outcome: Outcome, task: Task) -> Fate:
        """An outcome that can be compared, whether its point is a corner or an image."""
        point = outcome.point
        if point is None:
            return outcome, None
        points = Corners(point.grid, point.members) if isinstance(point, Corner) else Images(point.pixels[None])
        (shown,) = drawn(self.context(task), points)
        return replace(outcome, point=None), shown.tobytes()

    def hold(self, attack: Attack, alone: dict[int, Fate], where: str, **settings: Any) -> None:
        """The engine's fates against those by hand."""
        together = self.together(attack, **settings)
        for index, fate in alone.items():
            assert together[index] == fate, (
                f"{attack} comes to another end {where} than by hand: {together[index][0]}, not {fate[0]}."
            )


def next_question(search: Search, reply: Any) -> Ask | None:
    """The next question, if there is one; the reply None starts a search."""
    try:
        return search.send(reply)
    except StopIteration:
        return None


def drawn(context: ImageContext, points: Corners | Images) -> Iterator[Image]:
    """Each of the points as the model should be shown it."""
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
    """Blocks are numbered by row, column and channel of the noise image, which is stretched to the image."""
    channels, *sides = grid.shape
    numbers = np.arange(grid.count).reshape(*(side // grid.block for side in grid.noise), channels)
    noise = numbers.repeat(grid.block, axis=0).repeat(grid.block, axis=1)
    rows, columns = (np.arange(side) * of // side for side, of in zip(sides, grid.noise, strict=True))
    return noise[rows][:, columns].transpose(2, 0, 1)


def within(pixels: Image, bounds: tuple[Image, Image]) -> bool:
    return bool((bounds[0] <= pixels).all() and (pixels <= bounds[1]).all())

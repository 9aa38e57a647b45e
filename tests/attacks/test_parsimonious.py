"""The paper's behaviour, against a slow and literal twin of Algorithms 1 to 5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from parsimon import InputError, Parsimonious, Threat
from parsimon.core.grid import first_grid
from parsimon.core.types import Corners, ImageContext, Reply

RenderedBatch = NDArray[np.bool_]  # an image's pixels at +eps
Function = Callable[[RenderedBatch], float]


def arbitrary(seed: int) -> Function:
    """Any value for any image: nothing that a search could rely on."""
    return lambda drawn: float(np.random.default_rng([seed, crc32(drawn.tobytes())]).random())


def smooth(seed: int, shape: tuple[int, ...]) -> Function:
    """A weighted sum with some interaction, as a classifier's loss has."""
    rng = np.random.default_rng(seed)
    weights, pairs = rng.normal(size=shape), rng.normal(size=shape) / 4
    return lambda drawn: float((weights * drawn).sum() + (pairs * drawn * np.roll(drawn, 1, -1)).sum())


def asked_images(
    attack: Parsimonious, shape: tuple[int, int, int], function: Function, budget: int
) -> list[RenderedBatch]:
    """All that a search asks for, in order, until it ends or has asked for so many."""
    context = ImageContext(3, np.zeros(shape, np.float32), Threat(0.1), budget)
    search = attack.search(context, np.random.default_rng(7))
    asked: list[RenderedBatch] = []
    try:
        ask = next(search)
        while len(asked) < budget:
            assert isinstance(ask.points, Corners)
            points = [ask.points.point(number) for number in range(ask.points.size)]
            drawn = [point.grid.stretch(point.members) for point in points]
            asked += drawn
            ask = search.send(Reply(np.array([function(each) for each in drawn])))
    except StopIteration:
        pass
    return asked[:budget]


class Twin:
    """Algorithms 1 to 5 over whole images, with lists for heaps, and each image asked for once."""

    def __init__(self, attack: Parsimonious, shape: tuple[int, int, int], function: Function) -> None:
        self.attack, self.function = attack, function
        self.grid = first_grid(shape, attack.block, attack.noise)
        self.known: dict[bytes, float] = {}
        self.asked: list[RenderedBatch] = []

    def value(self, members: Any) -> float:
        drawn = self.grid.stretch(members)
        if drawn.tobytes() not in self.known:
            self.known[drawn.tobytes()] = self.function(drawn)
            self.asked.append(drawn)
        return self.known[drawn.tobytes()]

    def with_flip(self, members: Any, element: int) -> Any:
        return np.where(np.arange(len(members)) == element, ~members, members)

    def phase(self, members: Any, batch: Any, inserting: bool) -> Any:
        """Algorithm 1 or 2."""
        now = self.value(members)
        queue = [element for element in batch if members[element] != inserting]
        bound = {element: self.value(self.with_flip(members, element)) - now for element in queue}
        while queue:
            top = max(queue, key=lambda element: bound[element])  # the first of equals
            others = [bound[element] for element in queue if element != top]
            bound[top] = self.value(self.with_flip(members, top)) - now
            if others and bound[top] < max(others):
                continue
            if bound[top] <= 0:
                break
            queue.remove(top)
            members = self.with_flip(members, top)
            now = self.value(members)
        return members

    def run(self) -> list[RenderedBatch]:
        """Algorithm 5 with mini-batches."""
        rng = np.random.default_rng(7)
        members = np.zeros(self.grid.count, np.bool_)
        while True:
            before = self.value(members)
            order = rng.permutation(self.grid.count)
            for start in range(0, len(order), self.attack.mini_batch):
                batch = order[start : start + self.attack.mini_batch].tolist()
                for _ in range(self.attack.max_iterations):
                    members = self.phase(members, batch, inserting=True)
                    members = self.phase(members, batch, inserting=False)
            if self.value(~members) > self.value(members):
                members = ~members
            if self.grid.block > 1:
                members = self.grid.split(members)
                self.grid = self.grid.halved()
            elif self.value(members) <= before:
                return self.asked


SHAPES = [(3, 8, 8), (1, 6, 9), (3, 5, 8)]


@settings(max_examples=40)
@given(
    shape=st.sampled_from(SHAPES),
    block=st.sampled_from([2, 4, None]),
    mini_batch=st.sampled_from([5, 64]),
    max_iterations=st.sampled_from([1, 2]),
    seed=st.integers(0, 999),
    kind=st.sampled_from(["arbitrary", "smooth"]),
)
def test_it_asks_what_the_paper_asks_in_that_order_until_it_converges(
    shape: tuple[int, int, int], block: int | None, mini_batch: int, max_iterations: int, seed: int, kind: str
) -> None:
    attack = Parsimonious(block=block, mini_batch=mini_batch, max_iterations=max_iterations)
    function = arbitrary(seed) if kind == "arbitrary" else smooth(seed, shape)
    expected = Twin(attack, shape, function).run()
    asked = asked_images(attack, shape, function, budget=10**6)
    assert len(asked) == len(expected)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(asked, expected, strict=True))


@pytest.mark.parametrize("greedy", ["lazy", "naive", "stochastic"])
@given(shape=st.sampled_from(SHAPES), seed=st.integers(0, 999))
@settings(max_examples=15)
def test_no_image_is_asked_for_twice(greedy: Any, shape: tuple[int, int, int], seed: int) -> None:
    asked = asked_images(Parsimonious(block=4, greedy=greedy), shape, arbitrary(seed), budget=5000)
    assert len({drawn.tobytes() for drawn in asked}) == len(asked)


def test_the_first_question_is_minus_eps_everywhere() -> None:
    for behaviour in ("paper", "published"):
        first, *_ = asked_images(Parsimonious(behaviour), (3, 8, 8), smooth(0, (3, 8, 8)), budget=1)
        assert not first.any()


@pytest.mark.parametrize("greedy", ["lazy", "naive", "stochastic"])
def test_every_greedy_raises_the_function(greedy: Any) -> None:
    function = smooth(1, (3, 8, 8))
    asked = asked_images(Parsimonious(greedy=greedy), (3, 8, 8), function, budget=3000)
    assert max(map(function, asked)) > function(asked[0]) + 5


def test_lazy_evaluation_needs_fewer_queries_than_naive() -> None:
    function = smooth(1, (3, 8, 8))
    lazy, naive = (
        asked_images(Parsimonious(block=2, greedy=greedy), (3, 8, 8), function, 10**6) for greedy in ("lazy", "naive")
    )
    assert len(lazy) < len(naive) / 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"block": 3}, "block must be a power of two"),
        ({"behaviour": "fast"}, "behaviour must be one of paper, published; got 'fast'"),
        ({"greedy": "eager"}, "greedy must be one of lazy, naive, stochastic"),
        ({"behaviour": "published", "greedy": "naive"}, "behaviour='published' needs greedy='lazy'"),
        ({"mini_batch": 0}, "mini_batch must be a whole number, at least 1; got 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Parsimonious(**settings)


def test_a_block_that_does_not_fit_the_noise_is_refused() -> None:
    with pytest.raises(InputError, match="noise of 10 x 8 cannot be cut in blocks of 4"):
        asked_images(Parsimonious(block=4, noise=(10, 8)), (3, 16, 16), arbitrary(0), budget=1)

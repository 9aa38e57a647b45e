"""When Thrift combines flips, and what that brings, on a linear model whose best corner is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from driving import context_of, random_image
from linear_margins import LinearMargins, drive
from parsimon import Thrift
from parsimon.attacks.block_refiner import BlockRefiner
from thrift_blocks import EPS, levels

SHAPE = (3, 8, 8)
PLAIN = {"contrast": False, "texture": False}


def attacked(model: LinearMargins, *, seed: int = 0, **settings: Any) -> float:
    """Attack one image, and return the highest loss of any query."""
    search = Thrift(**settings).search(context_of(random_image(SHAPE), EPS), np.random.default_rng(seed))
    drive(search, model)
    return max(float(model.margins(signs).max()) for signs in model.asked)


def flips(model: LinearMargins) -> Iterator[tuple[frozenset[int], float, float]]:
    """Yield what each query flips of the best corner before it, the loss of that corner, and its own."""
    best = model.asked[0]
    for signs in model.asked[1:]:
        before, after = (float(model.margins(each).max()) for each in (best, signs))
        channels_first = (signs ^ best).transpose(2, 0, 1)
        yield frozenset(np.flatnonzero(channels_first).tolist()), before, after
        best = signs if after > before else best


@pytest.mark.parametrize("contenders", [1, 2, 9])
def test_combinations_are_tried_after_three_blocks_and_each_time_half_as_many_more_are_refined(
    contenders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def count(name: str) -> None:
        method = getattr(BlockRefiner, name)

        def counted(*arguments: Any) -> Any:
            calls.append(name)
            return method(*arguments)

        monkeypatch.setattr(BlockRefiner, name, counted)

    count("refine_next")
    count("best_combination")
    attacked(LinearMargins((8, 8, 3), contenders), **PLAIN)
    del calls[0]  # the channels: the first queries, before the search
    due, expected = 3.0, []
    for blocks in range(1, calls.count("refine_next") + 1):
        expected.append("refine_next")
        if blocks >= due:
            expected.append("best_combination")
            due = 1.5 * blocks
    assert calls == expected
    assert calls.count("best_combination") > 5


@pytest.mark.parametrize("seed", range(5))
def test_where_effects_add_up_a_combination_is_only_asked_for_if_it_gains(seed: int) -> None:
    model = LinearMargins((8, 8, 3), 5, seed)
    attacked(model, **PLAIN)
    blocks = set().union(*levels(SHAPE))
    combined = [(before, after) for flipped, before, after in flips(model) if flipped not in blocks]
    assert 0 < len(combined) < 2 + math.log(len(model.asked) / 3, 1.5)  # no more than times that they are tried
    assert all(after > before for before, after in combined)


def test_with_a_single_other_class_there_is_nothing_to_combine() -> None:
    """Every flip that raises its margin has been kept, so no query is spent on that."""
    models = [LinearMargins((8, 8, 3), 1) for _ in range(2)]
    for model, combine in zip(models, (True, False), strict=True):
        attacked(model, combine=combine)
    np.testing.assert_array_equal(models[0].asked, models[1].asked)


def test_with_several_classes_the_end_is_at_least_as_good() -> None:
    ends = []
    for seed in range(12):
        models = [LinearMargins((8, 8, 3), 5, seed) for _ in range(2)]
        with_combinations, without = (
            attacked(model, combine=combine) for model, combine in zip(models, (True, False), strict=True)
        )
        best = float(np.abs(models[0].weights).sum(axis=(1, 2, 3)).max())
        ends.append((with_combinations, without, best))
    together, alone, best_of_all = np.array(ends).T
    assert (together >= alone).all()
    assert np.mean(together == best_of_all) > 0.7 > np.mean(alone == best_of_all)

"""The keys by which a random model is drawn, from the clean images to the audit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import parsimon
from parsimon.core.model import Keys, Model
from parsimon.runs.audit import audit_attack
from parsimon.testing import Network

SHAPE = (3, 8, 8)


class Recording(Model):
    """A random model that draws from its keys, and keeps them."""

    random = True

    def __init__(self) -> None:
        self.network, self.calls = Network(SHAPE), list[list[tuple[int, ...]]]()

    def __call__(self, images: Any) -> NDArray[Any]:  # noqa: ARG002
        raise AssertionError("a random model is drawn by keys")

    def draw(self, images: Any, keys: Keys) -> NDArray[Any]:
        assert len(keys) == len(images)
        self.calls.append([tuple(key) for key in keys.tolist()])
        noise = [np.random.default_rng(key).normal(0, 0.05, SHAPE) for key in keys.tolist()]
        return self.network(np.clip(images + np.array(noise), 0, 1).astype(np.float32))

    def taken(self) -> list[tuple[int, ...]]:
        """Return the keys of all calls so far, and forget them."""
        keys = [key for call in self.calls for key in call]
        self.calls.clear()
        return keys


def test_every_draw_has_seed_image_purpose_and_number_and_no_two_share_them() -> None:
    """A model may read its keys, so they must mean the same in a run and in its audit."""
    model, images = Recording(), np.random.default_rng(0).random((12, *SHAPE), np.float32)
    labels = model.network(images).argmax(axis=1)
    settings: dict[str, Any] = {"attack": "square", "budget": 60, "seed": 5, "stochastic": True, "draws": 9}
    result = parsimon.attack(model, images, labels, 0.1, progress=False, **settings)
    outcomes = {outcome.index: outcome for outcome in result.outcomes}
    fooled = [index for index, outcome in outcomes.items() if outcome.success]
    assert 0 < len(fooled) < len(outcomes)

    run = model.taken()
    # The first clean draws are repeated, to see whether the model varies.
    expected = {(5, image, 2, number) for image in range(12) for number in range(9)}
    expected |= {(5, index, 1, number) for index in outcomes for number in range(9)}
    queries = [(5, index, 0, number) for index, outcome in outcomes.items() for number in range(outcome.queries)]
    assert set(run) == expected | set(queries)
    assert sorted(key for key in run if key[2] in (0, 1)) == sorted(key for key in set(run) if key[2] in (0, 1))

    audit = audit_attack(model, result, labels, 4, seed=5)
    assert audit.queried == len(fooled)
    assert sorted(model.taken()) == sorted((5, index, 3, number) for index in fooled for number in range(9))

"""Check that the response to an image depends on that image alone: not on the call, and not on the rest of its batch.

The images of the first batch are queried once more, in another batch of as many images. If a response differs, both
batches are queried again: a random model then differs from itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsimon.core.model import Keys, Model
from parsimon.core.threat import Scores
from parsimon.errors import ModelError
from parsimon.runs.classify import classify
from parsimon.runs.same_model import agree, count_differing, largest_difference, spread_of

# The part of the spread, or of the classes, that the rest of the batch may change with a warning. 8-bit activations
# whose range is taken from the batch changed up to 0.015 in the bundled networks, batch normalisation 0.14 and more.
_MOST_CHANGED = 0.05
_REMEDY = "Switch off dropout and random preprocessing (model.eval())."
_ALLOW_RANDOM = "If the model is random by design, allow that with stochastic=True."
_CURE = "If the model uses batch normalisation, call model.eval(). If it is meant for single images, use batch_size=1."


@dataclass(frozen=True)
class OtherBatch:
    """A batch that shows images of a first batch beside others than before.

    Attributes:
        pixels: Its images.
        rows: The last row of each image of the first batch that is shown.
        numbers: The number of that image in the first batch.
    """

    pixels: NDArray[np.float32]
    rows: NDArray[np.intp]
    numbers: NDArray[np.intp]

    @classmethod
    def of(cls, pixels: NDArray[np.float32], batch_size: int) -> OtherBatch:
        """Return the batch reversed, with copies of its first image in place of half of the others.

        Reordering alone would leave the mean of a batch as it is. The shape stays, since frameworks round differently
        for another one. A single image stands beside a half-black copy of itself, unless every batch has one image.
        """
        count = len(pixels)
        order = np.arange(count)[::-1]
        order = np.where(order <= count // 2, 0, order)
        shown = pixels[order]
        if count == 1 < batch_size:
            darkened = shown.copy()
            darkened[:, :, : -(-shown.shape[2] // 2)] = 0
            shown = np.concatenate([darkened, shown])
        numbers, from_the_end = np.unique(order[::-1], return_index=True)
        return cls(shown, len(shown) - 1 - from_the_end, numbers)


def check_consistency(
    model: Model,
    pixels: NDArray[np.float32],
    scores: NDArray[Any],
    kind: Scores,
    batch_size: int,
    keys: Keys | None = None,
) -> tuple[str, ...]:
    """Refuse a model whose responses are random, or depend on the rest of the batch; warn if they do so a little.

    With keys, one per image, the model draws from them, and may be random beyond that.
    """
    other = OtherBatch.of(pixels, batch_size)
    others_keys = None
    if keys is not None:
        others_keys = np.repeat(keys[:1], len(other.pixels), axis=0)  # copies are of the first image
        others_keys[other.rows] = keys[other.numbers]
    query = partial(classify, model, batch_size=batch_size, classes=scores.shape[1])
    elsewhere = query(other.pixels, keys=others_keys)
    if _same(elsewhere[other.rows], scores[other.numbers], kind):
        return ()
    repeated = ((scores, query(pixels, keys=keys)), (elsewhere, query(other.pixels, keys=others_keys)))
    for before, again in repeated:
        if not _same(again, before, kind):
            if keys is not None:
                return ()
            raise _random(again, before, kind)
    return _depending(elsewhere[other.rows], scores[other.numbers], kind)


def _same(again: NDArray[Any], before: NDArray[Any], kind: Scores) -> bool:
    return count_differing(again, before) == 0 if kind == "labels" else agree(again, before)


def _random(again: NDArray[Any], before: NDArray[Any], kind: Scores) -> ModelError:
    """Return the error for a model whose responses to the same batch differ."""
    what = "classes" if kind == "labels" else "scores"
    return ModelError(
        f"the model gives the same images different {what} from call to call: {_described(again, before, kind)}. A "
        f"search cannot rely on such {'labels' if kind == 'labels' else what}. {_REMEDY} {_ALLOW_RANDOM}"
    )


def _depending(elsewhere: NDArray[Any], before: NDArray[Any], kind: Scores) -> tuple[str, ...]:
    """Refuse responses that depend on the rest of the batch, or warn if they do so a little."""
    if kind == "labels":
        what, much = "classes", count_differing(elsewhere, before) > _MOST_CHANGED * len(before)
    else:
        what, much = "scores", largest_difference(elsewhere, before) > _MOST_CHANGED * spread_of(before)
    found = f"{what} depend on the other images in the batch or on their order"
    difference = f"in another batch, {_described(elsewhere, before, kind)}"
    if much:
        raise ModelError(
            f"the model's {found}: {difference}. Results would depend on the batch size. {_CURE}",
            argument="batch_size",
        )
    return (f"The model's {found} a little: {difference}. Another batch size may change results.",)


def _described(again: NDArray[Any], before: NDArray[Any], kind: Scores) -> str:
    """Return by how much two responses to the same images differ, in words."""
    if kind == "labels":
        return f"{count_differing(again, before)} of {len(before)} differ"
    return (
        f"they differ by up to {largest_difference(again, before):.3g}, where the scores of an image spread over "
        f"{spread_of(before):.3g}"
    )

"""How a point is packed in the run file: to the last bit, and small where it is near the original image."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from parsimon.blocks import first_grid
from parsimon.protocol import Corners, Images, Outcome, Point
from parsimon.store import Store

SHAPE = (3, 4, 5)
any_bits = arrays(np.uint32, (2, *SHAPE), elements=st.integers(0, 2**32 - 1))


def stored(point: Point, images: NDArray[np.float32]) -> tuple[Outcome, int]:
    """What comes back of a success on the second image, and how many bytes its point took."""
    outcome = Outcome(1, True, 7, "success", predicted=2, point=point)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Store(folder, images, write=True) as store:
            store.save("an attack", [outcome], [])
            store.finish("an attack")
        with Store(folder, images) as store:
            ((_, back),) = store.outcomes("an attack").items()
        with closing(sqlite3.connect(folder / "run.sqlite")) as database:
            ((size,),) = database.execute("SELECT LENGTH(point) FROM outcomes").fetchall()
    return back, size


@settings(max_examples=30)
@given(bits=any_bits)
def test_an_image_of_any_bits_comes_back_to_the_last(bits: NDArray[np.uint32]) -> None:
    original, changed = bits.view(np.float32)
    point = Images(changed[None]).point(0)
    back, _ = stored(point, np.stack([np.zeros(SHAPE, np.float32), original]))
    assert back.point == point
    assert (back.index, back.queries, back.ended, back.predicted) == (1, 7, "success", 2)


@settings(max_examples=20)
@given(members=arrays(np.bool_, 192))
def test_a_corner_comes_back_and_takes_a_bit_for_each_block(members: NDArray[np.bool_]) -> None:
    images: NDArray[Any] = np.zeros((2, 3, 32, 32), np.float32)
    point = Corners(first_grid((3, 32, 32), 4), members).point(0)
    back, size = stored(point, images)
    assert back.point == point
    assert size <= 192 / 8 + 11  # and zlib's own


def test_an_image_takes_the_less_the_nearer_it_is_to_the_original() -> None:
    random = np.random.default_rng(0)
    images = random.random((2, 3, 32, 32), dtype=np.float32)
    anywhere = random.random((3, 32, 32), dtype=np.float32)
    noise = images[1] + np.float32(8 / 255) * (2 * random.random((3, 32, 32), dtype=np.float32) - 1)
    steps = images[1] + np.float32(2 / 255) * random.integers(-4, 5, (3, 32, 32)).astype(np.float32)
    sizes = [stored(Images(each[None]).point(0), images)[1] for each in (images[1], steps, noise, anywhere)]
    assert sizes == sorted(sizes)
    assert sizes[0] < 50
    assert sizes[2] < 0.8 * anywhere.nbytes

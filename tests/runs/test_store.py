"""Points and journal entries are stored without losing a bit; points near the original image are small."""

from __future__ import annotations

import sqlite3
import tempfile
import zlib
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from parsimon.core.grid import first_grid
from parsimon.core.types import Corners, Images, JournalEntry, Margins, Outcome, Point
from parsimon.runs.packing import pack_entries, unpack_bits, unpack_difference, unpack_entries
from parsimon.runs.store import Store

SHAPE = (3, 4, 5)
any_bits = arrays(np.uint32, (2, *SHAPE), elements=st.integers(0, 2**32 - 1))


def stored(point: Point, images: NDArray[np.float32]) -> tuple[Outcome, int]:
    """Store a success on the second image; return it as it is read, and the bytes of its point."""
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
def test_an_image_of_any_bits_is_read_back_exactly(bits: NDArray[np.uint32]) -> None:
    original, changed = bits.view(np.float32)
    point = Images(changed[None]).point(0)
    back, _ = stored(point, np.stack([np.zeros(SHAPE, np.float32), original]))
    assert back.point == point
    assert (back.index, back.queries, back.ended, back.predicted) == (1, 7, "success", 2)


@settings(max_examples=20)
@given(members=arrays(np.bool_, 192))
def test_a_corner_is_read_back_and_takes_one_bit_per_block(members: NDArray[np.bool_]) -> None:
    images: NDArray[Any] = np.zeros((2, 3, 32, 32), np.float32)
    point = Corners(first_grid((3, 32, 32), 4), members).point(0)
    back, size = stored(point, images)
    assert back.point == point
    assert size <= 192 / 8 + 11  # zlib's header


def test_an_image_takes_fewer_bytes_the_nearer_it_is_to_the_original() -> None:
    random = np.random.default_rng(0)
    images = random.random((2, 3, 32, 32), dtype=np.float32)
    anywhere = random.random((3, 32, 32), dtype=np.float32)
    noise = images[1] + np.float32(8 / 255) * (2 * random.random((3, 32, 32), dtype=np.float32) - 1)
    steps = images[1] + np.float32(2 / 255) * random.integers(-4, 5, (3, 32, 32)).astype(np.float32)
    sizes = [stored(Images(each[None]).point(0), images)[1] for each in (images[1], steps, noise, anywhere)]
    assert sizes == sorted(sizes)
    assert sizes[0] < 50
    assert sizes[2] < 0.8 * anywhere.nbytes


numbers = st.integers(0, 5)


@st.composite
def some_entries(draw: st.DrawFn) -> list[JournalEntry]:
    """Draw the journal entries of one model call."""
    with_gradients, entries = draw(st.booleans()), []
    for image in draw(st.lists(st.integers(0, 2**40), max_size=4)):
        length = draw(numbers)
        counts = [draw(st.integers(0, length)) for _ in range(4)]
        margins = None
        if length and draw(st.booleans()):
            points = draw(st.integers(1, length))  # fewer than all where only some asks wanted margins
            margins = Margins(np.arange(3, dtype=np.int32) + image % 7, np.full((points, 3), image / 9, np.float32))
        gradient = np.full((counts[0], 1, 2, 3), image, np.float32) if with_gradients and counts[0] else None
        outside, uncharged, out_of_range = counts[1:]
        counted = JournalEntry(image, np.arange(length) / 7, gradient, outside, uncharged, out_of_range)
        entries.append(counted._replace(margins=margins))
    return entries


def plain(entries: list[JournalEntry]) -> list[tuple[Any, ...]]:
    """Return entries as values that can be compared."""

    def value(each: Any) -> Any:
        return tuple(map(value, each)) if isinstance(each, Margins) else np.asarray(each).tolist()

    return [tuple(map(value, part)) for part in entries]


@given(some_entries())
def test_journal_entries_are_read_back(entries: list[JournalEntry]) -> None:
    assert plain(list(unpack_entries(pack_entries(entries)))) == plain(entries)


@given(some_entries(), st.data())
def test_truncated_or_extended_journal_entries_are_refused(entries: list[JournalEntry], data: st.DataObject) -> None:
    packed = pack_entries(entries)
    for other in (packed[: data.draw(st.integers(0, len(packed) - 1))], packed + data.draw(st.binary(min_size=1))):
        with pytest.raises(ValueError, match=r"^it"):
            list(unpack_entries(other))


@given(some_entries(), st.data())
def test_any_bytes_are_unpacked_or_refused(entries: list[JournalEntry], data: st.DataObject) -> None:
    content = bytearray(pack_entries(entries))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    for packed in (bytes(content), data.draw(st.binary()), zlib.compress(data.draw(st.binary()))):
        for unpack in (
            lambda packed: list(unpack_entries(packed)),
            lambda packed: unpack_bits(packed, 9),
            lambda packed: unpack_difference(packed, np.zeros(3, np.float32)),
        ):
            with suppress(ValueError):
                unpack(packed)


def test_the_counts_of_one_image_are_added_up_over_calls(tmp_path: Path) -> None:
    with Store(tmp_path, (), write=True) as store:
        for counts in ((1, 0, 1), (2, 1, 0), (0, 2, 2)):
            store.save("an attack", [], [JournalEntry(4, np.zeros(3), None, *counts)], 3)
        entries = store.journal("an attack")[4]
    assert (len(entries.loss), entries.outside, entries.uncharged, entries.out_of_range) == (9, 3, 3, 3)

"""Blacklight against hashes of every window by hand and a comparison of all pairs."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from parsimon.defences import Blacklight
from parsimon.defences.blacklight import Hashes, _Fingerprints, _highest
from parsimon.errors import InputError

Images = NDArray[np.float32]


def attack_queries(count: int, changed: float, shape: tuple[int, ...] = (3, 8, 8), seed: int = 0) -> Images:
    """A random walk from an image: every query changes a fraction of the pixels of the one before, within 0.05."""
    rng = np.random.default_rng(seed)
    base = rng.random(shape)
    walk, current = [], base.copy()
    for _ in range(count):
        moved = rng.random(shape) < changed
        current = np.where(moved, base + rng.choice([-0.05, 0.05], shape), current)
        walk.append(np.clip(current, 0, 1))
    return np.array(walk, np.float32)


def mixed_queries() -> Images:
    """Two attacks with steps of different size and unrelated images, in random order."""
    unrelated = np.random.default_rng(9).random((30, 3, 8, 8), dtype=np.float32)
    queries = np.concatenate([attack_queries(40, 0.05), attack_queries(30, 0.5, seed=1), unrelated])
    return queries[np.random.default_rng(4).permutation(len(queries))]


def by_pairs(fingerprints: list[set[int]], threshold: int) -> list[bool]:
    """A query is flagged if it shares more than the threshold with any one query before."""
    return [
        any(len(now & before) > threshold for before in fingerprints[:number])
        for number, now in enumerate(fingerprints)
    ]


def windows(defence: Blacklight, image: Images) -> list[tuple[int, ...]]:
    levels = defence.quantised(image[None])[0].tolist()
    last = len(levels) - defence.window
    return [tuple(levels[start : start + defence.window]) for start in range(0, last + 1, defence.stride)]


@pytest.mark.parametrize("threshold", [0, 5, 25, 40])
def test_flags_equal_a_comparison_of_all_pairs(threshold: int) -> None:
    defence = Blacklight(threshold=threshold)
    queries = mixed_queries()
    fingerprints = [set(each.tolist()) for each in defence.fingerprints(queries)]
    expected = by_pairs(fingerprints, threshold)
    assert 5 < sum(expected) < 95
    assert defence.history().observe(queries).tolist() == expected


def test_flags_equal_those_of_sha_256() -> None:
    """Another hash keeps other windows, but agrees on which queries are similar."""
    defence = Blacklight()
    queries = np.concatenate([attack_queries(30, 0.01, (3, 32, 32)), attack_queries(3, 1, (3, 32, 32), seed=5)])
    fingerprints = []
    for image in queries:
        hashes = {hashlib.sha256(bytes(window)).hexdigest() for window in windows(defence, image)}
        fingerprints.append({int(each, 16) for each in sorted(hashes)[-50:]})
    expected = by_pairs(fingerprints, 25)
    assert expected == [False] + [True] * 29 + [False] * 3
    assert defence.history().observe(queries).tolist() == expected


@pytest.mark.parametrize("cuts", [[1] * 100, [100], [3, 0, 50, 47], [99, 1]])
def test_flags_do_not_depend_on_how_queries_are_cut_into_calls(cuts: list[int]) -> None:
    queries = mixed_queries()
    whole = Blacklight().history().observe(queries)
    history = Blacklight().history()
    ends = list(itertools.accumulate(cuts, initial=0))
    parts = [history.observe(queries[start:end]) for start, end in itertools.pairwise(ends)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert whole.dtype == np.bool_


def test_histories_are_separate_and_queries_are_not_changed() -> None:
    queries = attack_queries(5, 0.01)
    before = queries.copy()
    defence = Blacklight()
    first, second = defence.history(), defence.history()
    assert first.observe(queries).tolist() == [False, True, True, True, True]
    assert second.observe(queries[:1]).tolist() == [False]
    assert first.observe(queries[:1]).tolist() == [True]  # the same image again
    np.testing.assert_array_equal(queries, before)


@pytest.mark.parametrize(
    ("defence", "repeated"),
    [
        (Blacklight(), False),
        (Blacklight(window=7, keep=10, threshold=5, stride=3, step=255), True),  # 128 windows, in many places
    ],
)
def test_hashes_are_equal_exactly_if_windows_are(defence: Blacklight, repeated: bool) -> None:
    images = np.repeat(np.random.default_rng(0).random((3, 3, 8, 1)), 8, axis=3).astype(np.float32)
    hash_of: dict[tuple[int, ...], int] = {}
    count = 0
    for image in images:
        hashes = defence._hashes(image[None])[0].tolist()
        for window, value in zip(windows(defence, image), hashes, strict=True):
            assert hash_of.setdefault(window, value) == value
            count += 1
    assert len(set(hash_of.values())) == len(hash_of)
    assert (len(hash_of) < count / 1.5) == repeated


def test_a_fingerprint_holds_the_highest_different_hashes() -> None:
    rng = np.random.default_rng(0)
    for pool in (5, 60, 10**6):  # many, some and hardly any repetitions
        hashes: Hashes = rng.integers(0, pool, 500).astype(np.uint64)
        assert _highest(hashes, 50).tolist() == sorted(set(hashes.tolist()))[-50:]


def test_pixels_are_quantised_with_the_salt_in_the_order_row_column_channel() -> None:
    defence = Blacklight(salt=3)
    images = np.random.default_rng(1).random((2, 3, 4, 5), dtype=np.float32)
    rng = np.random.default_rng(3)
    rng.integers(2**63)  # the base of the hash
    values = rng.random((3, 4, 5)) * 255
    levels = defence.quantised(images)
    for number in range(2):
        expected = [
            round(((float(images[number, channel, row, column]) * 255 + values[channel, row, column]) % 255) / 50)
            for row in range(4)
            for column in range(5)
            for channel in range(3)
        ]
        assert levels[number].tolist() == expected


def test_another_salt_gives_other_fingerprints() -> None:
    image = attack_queries(1, 0.1)
    first, second = (set(next(iter(Blacklight(salt=salt).fingerprints(image))).tolist()) for salt in (0, 1))
    assert not first & second


def test_unrelated_images_are_not_flagged_and_small_steps_are() -> None:
    unrelated = np.random.default_rng(0).random((200, 3, 32, 32), dtype=np.float32)
    assert not Blacklight().history().observe(unrelated).any()
    steps = attack_queries(200, 0.001, (3, 32, 32))
    assert Blacklight().history().observe(steps).tolist() == [False] + [True] * 199


@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 4, 5), (1, 28, 28)])
def test_small_and_grey_images_pass(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).random((3, *shape), dtype=np.float32)
    sizes = {len(each) for each in Blacklight().fingerprints(images)}
    assert sizes == {min(50, max(1, int(np.prod(shape)) - 19))}
    assert not Blacklight().history().observe(images).any()


def test_the_index_is_searched_only_if_the_suspect_does_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    search = _Fingerprints._most_shared

    def counted(self: _Fingerprints, fingerprint: frozenset[int]) -> int:
        searched.append(fingerprint)
        return search(self, fingerprint)

    monkeypatch.setattr(_Fingerprints, "_most_shared", counted)
    assert Blacklight().history().observe(attack_queries(300, 0.0005, (3, 32, 32))).sum() == 299
    assert len(searched) < 20


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"window": 0}, "window must be a whole number"),
        ({"keep": 0}, "keep must be a whole number"),
        ({"step": 256}, "step must be a whole number"),
        ({"stride": 0}, "stride must be a whole number"),
        ({"salt": -1}, "salt must be a whole number"),
        ({"threshold": -1}, "threshold must be a whole number"),
        ({"threshold": 50}, "threshold must be below keep, or nothing is flagged; got 50 and 50"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Blacklight(**settings)

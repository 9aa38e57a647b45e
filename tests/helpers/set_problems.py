"""Set functions, search problems, a driver, and slow twins of the searches, for the tests of set search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import xor
from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from parsimon.setsearch import (
    Elements,
    Family,
    Found,
    LazyRule,
    Mask,
    SetSearch,
)
from parsimon.setsearch.theory import SetFunction, Table, tabulate

PUBLISHED_RULE = LazyRule(force_first=True, adopt_zero=True, ask_again=True)

property_test = settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


# --- running a search by hand ---------------------------------------------------------------------------------------


class Run(NamedTuple):
    found: Found
    families: list[Family]
    asked: list[frozenset[int]]  # their sets at the time of the yield
    replies: list[list[float]]

    @property
    def members(self) -> frozenset[int]:
        return set_of(self.found.members)

    def steps(self) -> list[tuple[Family, list[float], Mask]]:
        """Return each family with its reply and the working set after it."""
        bases = [family.base for family in self.families] + [self.found.members]
        return list(zip(self.families, self.replies, bases[1:], strict=True))


def run(search: SetSearch, function: SetFunction) -> Run:
    families: list[Family] = []
    asked: list[frozenset[int]] = []
    replies: list[list[float]] = []
    try:
        family = next(search)
        while len(families) < 5000:
            sets = [set_of(mask) for mask in family.sets()]
            families.append(family)
            asked += sets
            replies.append([function(members) for members in sets])
            family = search.send(np.array(replies[-1]))
    except StopIteration as stop:
        return Run(stop.value, families, asked, replies)
    raise AssertionError("this search does not end")


def set_of(mask: Mask) -> frozenset[int]:
    return frozenset(element for element, member in enumerate(mask) if member)


def mask_of(members: Iterable[int], size: int) -> Mask:
    mask = np.zeros(size, np.bool_)
    mask[list(members)] = True
    return mask


def word_of(members: Iterable[int], words: Sequence[int]) -> int:
    """Return the hash of a set in `remembering`."""
    return reduce(xor, (words[element] for element in members), 0)


def start_at(function: Table, members: Iterable[int] = ()) -> Found:
    return Found(mask_of(members, function.size), function(frozenset(members)))


def values_at(size: int, values: dict[tuple[int, ...], float]) -> Table:
    """Return the set function with these values, and 0 elsewhere."""
    return tabulate(lambda members: values.get(tuple(sorted(members)), 0.0), size)


def all_of(function: Table) -> Elements:
    return np.arange(function.size)


# --- set functions. Their values are whole numbers, so that no test depends on rounding ------------------------------


def coverage(size: int, rng: np.random.Generator) -> SetFunction:
    """Return the weight of the covered items minus the cost of the members."""
    covers = rng.random((size, 12)) < 0.3
    weights, costs = rng.integers(1, 10**6, 12), rng.integers(1, 10**6, size)
    return lambda members: float(weights[covers[list(members)].any(axis=0)].sum() - costs[list(members)].sum())


def directed_cut(size: int, rng: np.random.Generator) -> SetFunction:
    weights = rng.integers(0, 10**6, (size, size))

    def cut(members: frozenset[int]) -> float:
        inside = mask_of(members, size)
        return float(weights[inside][:, ~inside].sum())

    return cut


def facility_location(size: int, rng: np.random.Generator) -> SetFunction:
    """Return the nearness of each customer to its nearest facility, minus the cost of the facilities."""
    nearness, costs = rng.integers(0, 10**6, (size, 6)), rng.integers(1, 10**6, size)
    return lambda members: float(nearness[list(members)].max(axis=0, initial=0).sum() - costs[list(members)].sum())


def random_similarity(size: int, seed: int) -> NDArray[np.float64]:
    """Return similarities without a zero gain, at which the lazy greedy of apricot stops."""
    rng = np.random.default_rng(seed)
    similarity = rng.random((size, size))
    similarity = np.maximum(similarity, similarity.T)
    np.fill_diagonal(similarity, 1 + rng.random(size))  # not all 1, which would make the gains of two elements tie
    return similarity


def nearness(similarity: NDArray[np.float64]) -> SetFunction:
    """Return facility location without costs, which is monotone."""
    return lambda members: float(similarity[list(members)].max(axis=0, initial=0.0).sum())


SUBMODULAR = [coverage, directed_cut, facility_location]
seeds = st.integers(0, 2**32 - 1)


@st.composite
def submodular_functions(draw: st.DrawFn) -> Table:
    size, kind = draw(st.integers(1, 7)), draw(st.sampled_from(SUBMODULAR))
    return tabulate(kind(size, np.random.default_rng(draw(seeds))), size)


@st.composite
def arbitrary_functions(draw: st.DrawFn) -> Table:
    size, ties, rng = draw(st.integers(1, 7)), draw(st.booleans()), np.random.default_rng(draw(seeds))
    values = rng.integers(-2, 2, 2**size, endpoint=True) if ties else rng.permutation(2**size)
    return Table(size, values.astype(np.float64))


class Problem(NamedTuple):
    function: Table
    start: Found
    elements: Elements  # some of the ground set, in any order
    inserting: bool


@st.composite
def problems(draw: st.DrawFn, functions: st.SearchStrategy[Table]) -> Problem:
    function = draw(functions)
    start = draw(st.sets(st.integers(0, function.size - 1)))
    elements = draw(st.permutations(range(function.size)))[draw(st.integers(0, function.size)) :]
    return Problem(function, start_at(function, start), np.array(elements, np.intp), draw(st.booleans()))


arbitrary_problems = problems(arbitrary_functions())
submodular_problems = problems(submodular_functions())


def without_ties(function: Table) -> bool:
    """Return whether all sets of one size have different values."""
    return len({(bits.bit_count(), value) for bits, value in enumerate(function.values)}) == len(function.values)


# --- the slow twins --------------------------------------------------------------------------------------------------

Sets = list[frozenset[int]]
SlowPhase = Callable[[SetFunction, frozenset[int], list[int], bool], tuple[frozenset[int], Sets]]


def slow_greedy(
    function: SetFunction, members: frozenset[int], elements: list[int], inserting: bool
) -> tuple[frozenset[int], Sets]:
    asked = []
    candidates = [element for element in elements if (element not in members) == inserting]
    while candidates:
        asked += [members ^ {element} for element in candidates]
        gains = [function(members ^ {element}) - function(members) for element in candidates]
        if max(gains) <= 0:
            break
        members ^= {candidates.pop(gains.index(max(gains)))}
    return members, asked


def slow_lazy_greedy(
    function: SetFunction, members: frozenset[int], elements: list[int], inserting: bool, at_most: int = 99
) -> tuple[frozenset[int], Sets]:
    """Algorithms 1 and 2, line by line, on a list instead of a heap; a current bound is not asked again."""
    queue = [element for element in elements if (element not in members) == inserting]
    asked = [members ^ {element} for element in queue]
    bound = {element: function(members ^ {element}) - function(members) for element in queue}
    current = set(queue)
    while queue and at_most > 0:
        first = max(queue, key=lambda element: bound[element])  # the earliest of equals
        if first not in current:
            asked.append(members ^ {first})
            bound[first] = function(members ^ {first}) - function(members)
            current.add(first)
        if any(bound[first] < bound[other] for other in queue):
            continue
        if bound[first] <= 0:
            break
        members ^= {first}
        queue.remove(first)
        current.clear()
        at_most -= 1
    return members, asked


def slow_local_search(
    phase: SlowPhase, function: SetFunction, members: frozenset[int], batches: list[Elements], max_iterations: int
) -> tuple[frozenset[int], Sets]:
    asked: Sets = []
    for batch in batches:
        for _ in range(max_iterations):
            inserted, more = phase(function, members, batch.tolist(), True)
            deleted, still_more = phase(function, inserted, batch.tolist(), False)
            asked += more + still_more
            changed, members = deleted != members, deleted
            if not changed:
                break
    return members, asked

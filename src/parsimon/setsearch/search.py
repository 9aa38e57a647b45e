"""Maximise a set function by evaluating it on chosen sets.

Every search here is a generator. It yields the sets to evaluate (`Family`), receives their values, and returns the best
set that it found (`Found`). It never calls the function. So one driver can run a single search (`maximise`, at the end
of this file), and another can run hundreds at once. Searches compose with `yield from`.

    greedy, lazy_greedy, stochastic_greedy     one phase: insert elements, or delete them, while the value rises
    local_search                               alternate insertion and deletion, then the better of S and its complement
    remembering                                any search, with a cache: no set is evaluated twice

A set is a boolean mask over the ground set 0 .. n-1. No search changes a mask that it has yielded, so two masks can be
compared by `is`. Numbers of sections, algorithms and lines are those of Moon, An and Song (ICML 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Elements = NDArray[np.intp]
Values = NDArray[np.float64]


class Family(NamedTuple):
    """Sets to evaluate: per flip, the base with the membership of that element flipped; without flips, the base.

    Attributes:
        base: The set that all others differ from in one element.
        flips: Elements.
        adopted_from: A set with a value below this one does not become the working set (up to rounding).
        moved: A mask and an element, if the base is that mask with that element flipped. It saves a comparison.
    """

    base: Mask
    flips: Sequence[int] = ()
    adopted_from: float = -math.inf
    moved: tuple[Mask, int] | None = None

    def sets(self) -> Iterator[Mask]:
        for flip in self.flips:
            yield flipped(self.base, flip)
        if not self.flips:
            yield self.base


class Found(NamedTuple):
    """A set and its value."""

    members: Mask
    value: float


SetSearch = Generator[Family, Values, Found]


class Phase(Protocol):
    """A pass over elements that inserts them, or deletes them, while the value rises."""

    def __call__(self, found: Found, elements: Elements, *, inserting: bool) -> SetSearch: ...


def flipped(members: Mask, element: int) -> Mask:
    """Return a copy of a set with the membership of one element flipped."""
    changed = members.copy()
    changed[element] = not changed[element]
    return changed


def evaluate(members: Mask) -> SetSearch:
    """Return the set itself, with its value."""
    values = yield Family(members)
    return Found(members, float(values[0]))


def greedy(found: Found, elements: Elements, *, inserting: bool, at_most: int | None = None) -> SetSearch:
    """Evaluate all candidates and adopt the best while it raises the value, `at_most` times (sections 3.2 and 3.3)."""
    members, value = found
    candidates = _candidates(members, elements, inserting)
    for _ in range(len(candidates) if at_most is None else min(at_most, len(candidates))):
        values = yield Family(members, tuple(candidates))  # a copy, since `candidates` changes
        best = int(np.argmax(values))
        if not values[best] > value:
            break
        members, value = flipped(members, candidates.pop(best)), float(values[best])
    return Found(members, value)


def stochastic_greedy(
    found: Found, elements: Elements, *, inserting: bool, rng: np.random.Generator, miss: float = 0.1
) -> SetSearch:
    """Evaluate a random sample of log(1 / miss) candidates per step (section 3.4; Mirzasoleiman et al. 2015).

    n candidates cost at most n * ceil(log(1 / miss)) values for any function, a bound that the lazy variant lacks.
    """
    if not 0 < miss < 1:
        raise ValueError(f"miss must be a probability above 0 and below 1; got {miss}")
    members, value = found
    candidates = _candidates(members, elements, inserting)
    sample = math.ceil(math.log(1 / miss))
    for _ in range(len(candidates)):
        sampled = rng.permutation(len(candidates))[:sample].tolist()
        values = yield Family(members, [candidates[position] for position in sampled])
        best = int(np.argmax(values))
        if values[best] > value:
            members, value = flipped(members, candidates.pop(sampled[best])), float(values[best])
    return Found(members, value)


@dataclass(frozen=True)
class LazyRule:
    """Choices in which the authors' published code differs from Algorithms 1 and 2. The defaults are the paper's."""

    force_first: bool = False  # adopt the best candidate of a phase even if it lowers the value
    adopt_zero: bool = False  # adopt a candidate that leaves the value unchanged
    ask_again: bool = False  # evaluate a popped candidate again even if its bound is current


PAPER_RULE = LazyRule()


def lazy_greedy(
    found: Found, elements: Elements, *, inserting: bool, rule: LazyRule = PAPER_RULE, at_most: int | None = None
) -> SetSearch:
    """Run Algorithm 1 (inserting) or Algorithm 2 (deleting): a heap of upper bounds, refreshed only at its top.

    Ties go to the element that comes first in `elements`. The paper's listing compares with a strict >, which would
    push two equal bounds back for ever. Its text says >=, and so does this code.
    """
    members, value = found
    candidates = _candidates(members, elements, inserting)
    if not candidates or at_most == 0:
        return found
    values = (yield Family(members, candidates)).tolist()  # lines 1 to 4
    heap = [(value - candidate, position) for position, candidate in enumerate(values)]  # (-gain, position)
    heapify(heap)
    moved = None
    step, current = 0, [0] * len(candidates)  # step at which each bound was computed
    while heap and step != at_most:
        loss, position = heappop(heap)  # line 6
        top = heap[0][0] if heap else math.inf  # line 7
        if current[position] != step or (rule.ask_again and step > 0):
            reply = yield Family(members, (candidates[position],), value - min(top, 0.0), moved)
            values[position] = float(reply[0])
            current[position] = step
            loss = value - values[position]
            if loss > top:  # lines 12 and 13
                heappush(heap, (loss, position))
                continue
        if loss >= 0 and not (rule.adopt_zero and loss == 0) and not (rule.force_first and step == 0):
            break  # lines 10 and 11
        moved = members, candidates[position]
        members, value = flipped(*moved), values[position]  # lines 8 and 9
        step += 1
    return Found(members, value)


def local_search(
    found: Found,
    batches: Iterable[Elements],
    *,
    phase: Phase = lazy_greedy,
    max_iterations: int | None = 1,
    complement: bool = True,
) -> SetSearch:
    """Run Algorithm 3 on each mini-batch of the ground set (section 4); with one batch it is the algorithm as written.

    Each batch gets `max_iterations` rounds. None means until a round changes nothing: the result is then a local
    optimum of the batch (Lemma 1).
    """
    for batch in batches:
        rounds = 0
        while rounds != max_iterations:
            before = found.members
            found = yield from phase(found, batch, inserting=True)
            found = yield from phase(found, batch, inserting=False)
            rounds += 1
            if found.members is before:
                break
    if complement:
        other = yield from evaluate(~found.members)
        if other.value > found.value:
            found = other
    return found


def mini_batches(order: Elements, size: int) -> list[Elements]:
    """Cut the ground set, in the given order, into batches of at most `size` elements."""
    return [order[start : start + size] for start in range(0, len(order), size)]


def zobrist_words(count: int) -> NDArray[np.uint64]:
    """Return a random word per element; the hash of a set is the exclusive or of the words of its elements."""
    return np.random.default_rng(count).integers(0, 2**64, count, dtype=np.uint64)


def remembering(search: SetSearch, cache: dict[int, float], words: Sequence[int]) -> SetSearch:
    """Run a search and answer sets that are in `cache` from there; add the values of all others.

    The cache is keyed by Zobrist hashes of 64 bits: two among 20,000 sets collide with probability 1e-11.
    """
    base: Mask | None = None
    base_word = 0
    reply: Values | None = None
    while True:
        try:
            family = next(search) if reply is None else search.send(reply)
        except StopIteration as stop:
            found: Found = stop.value
            return found
        flips = family.flips
        if family.base is not base:
            if family.moved is not None and family.moved[0] is base:
                base_word ^= words[family.moved[1]]
            else:
                changed = family.base if base is None else family.base != base
                for element in changed.nonzero()[0].tolist():
                    base_word ^= words[element]
            base = family.base
        if len(flips) == 1:  # most asks are one new flip; this spares them the lists below
            key = base_word ^ words[flips[0]]
            if key not in cache:
                reply = yield family
                cache[key] = reply.item()
                continue
        keys = [base_word ^ words[flip] for flip in flips] or [base_word]
        unknown = [position for position, key in enumerate(keys) if key not in cache]
        if len(unknown) == len(keys):  # the usual case
            reply = yield family
            cache.update(zip(keys, reply.tolist(), strict=True))
            continue
        if unknown:
            values = yield family._replace(flips=[flips[position] for position in unknown])
            cache.update(zip([keys[position] for position in unknown], values.tolist(), strict=True))
        reply = np.array([cache[key] for key in keys])


def maximise(search: SetSearch, function: Callable[[frozenset[int]], float]) -> Found:
    """Run a search on a set function and return what it found."""
    try:
        family = next(search)
        while True:
            values = [function(frozenset(np.flatnonzero(members).tolist())) for members in family.sets()]
            family = search.send(np.asarray(values, np.float64))
    except StopIteration as stop:
        found: Found = stop.value
        return found


def _candidates(members: Mask, elements: Elements, inserting: bool) -> list[int]:
    candidates: list[int] = elements[members[elements] != inserting].tolist()
    return candidates

"""Maximising a set function by asking for its values.

Every search here is a generator. It *yields* the sets whose values it wants (`Family`), *is sent* those values, and
*returns* what it found (`Found`). It never calls the function, so that one driver can answer a single search
(`maximise`, at the end of this file) and another can answer hundreds at once. Searches compose with `yield from`.

    greedy, lazy_greedy, stochastic_greedy     one phase: insert elements, or delete them, while that helps
    local_search                               insertion and deletion in turn, then the better of S and its complement
    remembering                                any search, but no set is ever asked for twice

A set is a boolean mask over the ground set 0 .. n-1. Masks are values: no search changes one that it has yielded, so
`is` tells quickly that nothing moved. The numbers in the comments are those of Moon, An and Song (ICML 2019).
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
    """Sets to evaluate: for each flip, the base with that one element's membership flipped; without flips, the base.

    A set whose value is below `adopted_from` does not become the working set by this reply (up to rounding). A base
    that is another with one element flipped may say so in `moved`, which saves whoever follows it a comparison.
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
    """One pass over some elements that inserts them, or deletes them, while that helps."""

    def __call__(self, found: Found, elements: Elements, *, inserting: bool) -> SetSearch: ...


def flipped(members: Mask, element: int) -> Mask:
    changed = members.copy()
    changed[element] = not changed[element]
    return changed


def evaluate(members: Mask) -> SetSearch:
    """The set itself, with its value."""
    values = yield Family(members)
    return Found(members, float(values[0]))


def greedy(found: Found, elements: Elements, *, inserting: bool, at_most: int | None = None) -> SetSearch:
    """Ask for every candidate's gain, adopt the best while it is positive, at most so often (sections 3.2 and 3.3)."""
    members, value = found
    candidates = _candidates(members, elements, inserting)
    for _ in range(len(candidates) if at_most is None else min(at_most, len(candidates))):
        values = yield Family(members, tuple(candidates))  # a copy: whoever keeps the family keeps these flips
        best = int(np.argmax(values))
        if not values[best] > value:
            break
        members, value = flipped(members, candidates.pop(best)), float(values[best])
    return Found(members, value)


def stochastic_greedy(
    found: Found, elements: Elements, *, inserting: bool, rng: np.random.Generator, miss: float = 0.1
) -> SetSearch:
    """Each step looks at a sample of log(1 / miss) candidates only (section 3.4; Mirzasoleiman et al. 2015).

    So n candidates cost at most n * ceil(log(1 / miss)) values, whatever the function: the strict bound that the lazy
    variant lacks.
    """
    if not 0 < miss < 1:
        raise ValueError(f"miss is a probability above 0 and below 1; got {miss}")
    members, value = found
    candidates = _candidates(members, elements, inserting)
    sample = math.ceil(math.log(1 / miss))
    for _ in range(len(candidates)):
        looked = rng.permutation(len(candidates))[:sample].tolist()
        values = yield Family(members, [candidates[position] for position in looked])
        best = int(np.argmax(values))
        if values[best] > value:
            members, value = flipped(members, candidates.pop(looked[best])), float(values[best])
    return Found(members, value)


@dataclass(frozen=True)
class LazyRule:
    """Where the authors' published code departs from Algorithms 1 and 2. The defaults are the paper's."""

    force_first: bool = False  # adopt a phase's best candidate even if it lowers the value
    adopt_zero: bool = False  # adopt a candidate that changes nothing
    ask_again: bool = False  # ask for a popped bound anew even if it is current


PAPER_RULE = LazyRule()


def lazy_greedy(
    found: Found, elements: Elements, *, inserting: bool, rule: LazyRule = PAPER_RULE, at_most: int | None = None
) -> SetSearch:
    """Algorithm 1 (inserting) and Algorithm 2 (deleting): a heap of upper bounds, refreshed only at its top.

    Ties go to the element that comes first in `elements`. The paper compares with a strict >, under which two equal
    bounds would be pushed back for ever; its text says >=, and so does this.
    """
    members, value = found
    candidates = _candidates(members, elements, inserting)
    if not candidates or at_most == 0:
        return found
    values = (yield Family(members, candidates)).tolist()  # lines 1 to 4
    heap = [(value - candidate, position) for position, candidate in enumerate(values)]  # (-gain, position)
    heapify(heap)
    moved = None
    step, current = 0, [0] * len(candidates)  # a bound is current if it was computed for this step's set
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
    """Algorithm 3 over a ground set that is cut in mini-batches (section 4); one batch is the algorithm as written.

    Each batch is searched for `max_iterations` rounds (None: until a round changes nothing, and then the result is a
    local optimum of the batch, Lemma 1).
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
    """The ground set, in the given order, cut in batches of at most `size`."""
    return [order[start : start + size] for start in range(0, len(order), size)]


def zobrist_words(count: int) -> NDArray[np.uint64]:
    """A random word for each element of a ground set; a set is known by the exclusive or of its members' words."""
    return np.random.default_rng(count).integers(0, 2**64, count, dtype=np.uint64)


def remembering(search: SetSearch, known: dict[int, float], words: Sequence[int]) -> SetSearch:
    """Run a search, and answer from memory what is `known` already, by the words of its sets; add what becomes known.

    Two among 20,000 sets share a word of 64 bits with probability 1e-11.
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
        if len(flips) == 1:  # most questions are single flips of something new: the quick way for them
            key = base_word ^ words[flips[0]]
            if key not in known:
                reply = yield family
                known[key] = reply.item()
                continue
        keys = [base_word ^ words[flip] for flip in flips] or [base_word]
        unknown = [position for position, key in enumerate(keys) if key not in known]
        if len(unknown) == len(keys):  # as most are
            reply = yield family
            known.update(zip(keys, reply.tolist(), strict=True))
            continue
        if unknown:
            answers = yield family._replace(flips=[flips[position] for position in unknown])
            known.update(zip([keys[position] for position in unknown], answers.tolist(), strict=True))
        reply = np.array([known[key] for key in keys])


def maximise(search: SetSearch, function: Callable[[frozenset[int]], float]) -> Found:
    """Run a search on a plain set function."""
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

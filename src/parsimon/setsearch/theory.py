"""Compute how submodular a small set function is, and the approximation bounds of local search.

    table = tabulate(function, size)                all values of a set function on the ground set 0 .. size-1
    brute_force(table)                              the best set and its value
    submodularity_index(table), is_submodular(table)
    is_local_optimum(table, members)                Definition 3; local search ends in a local optimum (Lemma 1)
    theorem_1(table, members), corollary_1(table, members)
    counter_example                                 the loss of a tiny network, which is not submodular

`tabulate` evaluates each of the 2^size sets once; everything else reads the table. Numbers of definitions and theorems
are those of Moon, An and Song (ICML 2019); their supplement A has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError

SetFunction = Callable[[frozenset[int]], float]

LARGEST_GROUND_SET = 16  # 65,536 sets
ROUNDING = 1e-9  # relative error of sums and differences of a few floats


@dataclass(frozen=True, eq=False)
class Table:
    """All values of a set function: values[i] belongs to the set whose elements are the 1 bits of i."""

    size: int
    values: NDArray[np.float64]

    def __call__(self, members: AbstractSet[int]) -> float:
        return float(self.values[self.bits(members)])

    def bits(self, members: AbstractSet[int]) -> int:
        """Return the position of a set in `values`."""
        for element in members:
            if not 0 <= element < self.size:
                raise InputError(f"elements must be 0..{self.size - 1} in this ground set; got {element}")
        return sum(1 << element for element in members)

    @property
    def ground_set(self) -> frozenset[int]:
        return frozenset(range(self.size))


@dataclass(frozen=True)
class Bound:
    """The two sides of an inequality left >= right."""

    left: float
    right: float

    @property
    def holds(self) -> bool:
        return self.left >= self.right or math.isclose(self.left, self.right, rel_tol=ROUNDING, abs_tol=ROUNDING)

    @property
    def vacuous(self) -> bool:
        """Whether the right side is negative; the left side never is."""
        return self.right < 0


def tabulate(function: SetFunction, size: int) -> Table:
    """Evaluate a set function on every set once."""
    if not 0 <= size <= LARGEST_GROUND_SET:
        raise InputError(
            f"the ground set must have 0 to {LARGEST_GROUND_SET} elements, as all subsets are evaluated; got {size}. "
            "Use fewer or coarser elements."
        )
    values = np.array([function(_members(bits)) for bits in range(1 << size)], np.float64)
    if not np.isfinite(values).all():
        bits = int(np.argmin(np.isfinite(values)))
        raise InputError(f"every set must have a finite value; got {values[bits]} at {_named(bits)}")
    return Table(size, values)


def brute_force(table: Table) -> tuple[frozenset[int], float]:
    """Return an optimal set C and its value F(C)."""
    best = int(np.argmax(table.values))
    return _members(best), float(table.values[best])


def submodularity_index(table: Table, within: AbstractSet[int] | None = None, cardinality: int = 2) -> float:
    """Return lambda_F(L, k) of Definition 4: the least of the single gains of k elements minus their joint gain.

    A ranges over the subsets of L (`within`; None: the ground set). S is any set of at most k (`cardinality`) elements
    outside A. It need not lie in L: Definition 4 does not require it, and Lemma 2 adds elements from outside L.
    S may be empty, so the index is never positive. For k >= 2 and L = V it is zero exactly for submodular functions.
    """
    values = table.values
    every = np.arange(len(values))
    bases = every if within is None else every[every & ~table.bits(within) == 0]
    lowest = 0.0  # reached by an S with fewer than two elements
    for count in range(2, cardinality + 1):
        for chosen in combinations(range(table.size), count):
            together = table.bits(frozenset(chosen))
            base = bases[bases & together == 0]
            one_by_one = sum(values[base | 1 << element] - values[base] for element in chosen)
            lowest = min(lowest, float(np.min(one_by_one - (values[base | together] - values[base]))))
    return lowest


def is_submodular(table: Table) -> bool:
    """Return whether Definition 2 holds, up to rounding.

    Comparing the gains at A and at A plus one element suffices, which the index for k = 2 does.
    """
    return submodularity_index(table) >= -ROUNDING * float(np.abs(table.values).max())


def is_local_optimum(table: Table, members: AbstractSet[int]) -> bool:
    """Return whether no single insertion or deletion raises the value (Definition 3)."""
    return all(table(members ^ {element}) <= table(members) for element in range(table.size))


def xi(members: AbstractSet[int], optimum: AbstractSet[int], size: int) -> int:
    """Return the number of times the proof of theorem 1 uses near submodularity between a local optimum S and C."""
    lost, missing = len(members - optimum), len(optimum - members)
    outside = size - len(members | optimum)
    return math.comb(lost, 2) + math.comb(missing, 2) + outside * len(members) + missing * len(members & optimum)


def theorem_1(table: Table, members: AbstractSet[int]) -> Bound:
    """Return both sides of 2 F(S) + F(V \\ S) >= F(C) + xi lambda_F(V, 2), for a function without negative values.

    Both sides are computed for any S; the bound is proven for local optima only.
    """
    if table.values.min() < 0:
        lowest = int(np.argmin(table.values))
        raise InputError(
            "theorem 1 and corollary 1 need a function without negative values; "
            f"got {table.values[lowest]} at {_named(lowest)}. Add {-table.values[lowest]} to every value: "
            "that changes neither the optima nor the submodularity index."
        )
    optimum, best = brute_force(table)
    return Bound(
        left=2 * table(members) + table(table.ground_set - members),
        right=best + xi(members, optimum, table.size) * submodularity_index(table),
    )


def corollary_1(table: Table, members: AbstractSet[int]) -> Bound:
    """Return both sides of max(F(S), F(V \\ S)) >= (F(C) + xi lambda_F(V, 2)) / 3, which may be `vacuous`."""
    third = theorem_1(table, members).right / 3
    return Bound(left=max(table(members), table(table.ground_set - members)), right=third)


def counter_example(members: AbstractSet[int]) -> float:
    """Return F of section 3.2: f(x) = -log(1 / (1 + exp(-w.x))), w = (-1, -1), x = (0, 0), eps = 1, V = {0, 1}.

    The second pixel raises F by 0.57 alone and by 1.43 after the first, so F is not submodular.
    """
    return math.log1p(math.exp(sum(1 if element in members else -1 for element in (0, 1))))


def _members(bits: int) -> frozenset[int]:
    return frozenset(element for element in range(bits.bit_length()) if bits >> element & 1)


def _named(bits: int) -> str:
    return f"{{{', '.join(map(str, sorted(_members(bits))))}}}"

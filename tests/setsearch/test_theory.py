"""The theory, held against its definitions written out in full, against hand computation and against local search."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsimon.errors import InputError
from parsimon.setsearch import Found, SetSearch, greedy, lazy_greedy, local_search, maximise
from parsimon.setsearch.theory import (
    LARGEST_GROUND_SET,
    Bound,
    Table,
    brute_force,
    corollary_1,
    counter_example,
    is_local_optimum,
    is_submodular,
    submodularity_index,
    tabulate,
    theorem_1,
    xi,
)

property_test = settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def subsets(members: frozenset[int], largest: int = 99) -> Iterator[frozenset[int]]:
    for count in range(min(len(members), largest) + 1):
        yield from map(frozenset, combinations(sorted(members), count))


def directed_cut(size: int, rng: np.random.Generator) -> Table:
    """Submodular, not monotone, nowhere negative."""
    weights = rng.random((size, size))

    def cut(members: frozenset[int]) -> float:
        return math.fsum(weights[one, two] for one in members for two in range(size) if two not in members)

    return tabulate(cut, size)


def nearly_submodular(size: int, rng: np.random.Generator) -> Table:
    cut = directed_cut(size, rng)
    return Table(size, cut.values + 0.1 * rng.random(2**size))


def arbitrary(size: int, rng: np.random.Generator) -> Table:
    return Table(size, rng.random(2**size))


def with_ties(size: int, rng: np.random.Generator) -> Table:
    return Table(size, rng.integers(0, 3, 2**size).astype(np.float64))


@st.composite
def functions(draw: st.DrawFn, largest: int = 5) -> Table:
    """Functions that are nowhere negative."""
    kind = draw(st.sampled_from([directed_cut, nearly_submodular, arbitrary, with_ties]))
    return kind(draw(st.integers(1, largest)), np.random.default_rng(draw(st.integers(0, 2**32 - 1))))


@st.composite
def functions_and_sets(draw: st.DrawFn, largest: int = 5) -> tuple[Table, frozenset[int]]:
    function = draw(functions(largest))
    return function, draw(st.frozensets(st.integers(0, function.size - 1)))


both_phases = pytest.mark.parametrize("phase", [greedy, lazy_greedy])


def local_optimum(phase: Callable[..., SetSearch], function: Table, start: frozenset[int]) -> frozenset[int]:
    members = np.isin(np.arange(function.size), list(start))
    batches = [np.arange(function.size)]
    search = local_search(Found(members, function(start)), batches, phase=phase, max_iterations=None, complement=False)
    return frozenset(np.flatnonzero(maximise(search, function).members).tolist())


# --- tables and brute force ------------------------------------------------------------------------------------------


def test_a_table_is_the_function_and_asks_it_once_for_each_set() -> None:
    asked: list[frozenset[int]] = []

    def function(members: frozenset[int]) -> float:
        asked.append(members)
        return sum(10.0**element for element in members)

    table = tabulate(function, 4)
    assert len(asked) == len(set(asked)) == 16
    theorem_1(table, frozenset({1, 3}))
    assert table(frozenset({1, 3})) == 1010
    assert len(asked) == 16


@property_test
@given(function=functions())
def test_brute_force_finds_the_best_of_all_sets(function: Table) -> None:
    members, value = brute_force(function)
    assert value == function(members) == max(function(other) for other in subsets(function.ground_set))


def test_the_empty_ground_set_has_one_set() -> None:
    table = tabulate(lambda _: 2.0, 0)
    assert brute_force(table) == (frozenset(), 2.0)
    assert submodularity_index(table) == 0
    assert theorem_1(table, frozenset()) == Bound(6.0, 2.0)


# --- the submodularity index -----------------------------------------------------------------------------------------


def test_the_counter_example_has_the_gains_that_the_paper_prints() -> None:
    alone = counter_example(frozenset({1})) - counter_example(frozenset())
    after = counter_example(frozenset({0, 1})) - counter_example(frozenset({0}))
    assert (round(alone, 2), round(after, 2)) == (0.57, 1.43)
    table = tabulate(counter_example, 2)
    assert not is_submodular(table)
    assert submodularity_index(table) == pytest.approx(alone - after)


def test_the_index_by_hand() -> None:
    # F = 0, 1, 2, 4 for 0, 1, 2, 3 members. From nothing, two bring 1 + 1 one by one and 2 together: 0; three bring
    # 1 + 1 + 1 one by one and 4 together: -1. From one member, two bring 1 + 1 one by one and 4 - 1 together: -1.
    table = tabulate(lambda members: (0, 1, 2, 4)[len(members)], 3)
    nothing, one = frozenset[int](), frozenset({0})
    assert submodularity_index(table, nothing, 1) == 0
    assert submodularity_index(table, nothing, 2) == 0
    assert submodularity_index(table, nothing, 3) == -1
    assert submodularity_index(table, one, 2) == -1  # A = {0}, S = {1, 2}: S leaves L
    assert submodularity_index(table) == -1


@property_test
@given(case=functions_and_sets(4), cardinality=st.integers(0, 4))
def test_the_index_is_its_definition(case: tuple[Table, frozenset[int]], cardinality: int) -> None:
    function, within = case

    def phi(chosen: frozenset[int], base: frozenset[int]) -> float:
        one_by_one = sum(function(base | {element}) - function(base) for element in chosen)
        return one_by_one - (function(base | chosen) - function(base))

    expected = min(
        phi(chosen, base)
        for base in subsets(within)
        for chosen in subsets(function.ground_set, cardinality)
        if not chosen & base
    )
    assert submodularity_index(function, within, cardinality) == pytest.approx(expected, abs=1e-12)


@property_test
@given(function=functions(4))
def test_the_index_is_zero_exactly_for_submodular_functions(function: Table) -> None:
    by_definition_2 = all(
        function(small | {element}) - function(small) >= function(large | {element}) - function(large) - 1e-9
        for large in subsets(function.ground_set)
        for small in subsets(large)
        for element in function.ground_set - large
    )
    assert is_submodular(function) == by_definition_2
    assert (submodularity_index(function) >= -1e-9) == by_definition_2


@pytest.mark.parametrize("size", range(1, 6))
def test_a_cut_is_submodular_and_its_negative_is_not(size: int) -> None:
    cut = directed_cut(size, np.random.default_rng(size))
    assert is_submodular(cut)
    assert is_submodular(Table(size, -cut.values)) == (size == 1)


@property_test
@given(case=functions_and_sets(), more=st.frozensets(st.integers(0, 4)), cardinality=st.integers(0, 3))
def test_the_index_falls_as_its_set_and_its_cardinality_grow(
    case: tuple[Table, frozenset[int]], more: frozenset[int], cardinality: int
) -> None:
    function, within = case
    index = submodularity_index(function, within, cardinality)
    assert index >= submodularity_index(function, within | more & function.ground_set, cardinality)
    assert index >= submodularity_index(function, within, cardinality + 1)


@property_test
@given(function=functions())
def test_the_index_lies_within_twice_the_optimum(function: Table) -> None:  # supplement A, below Definition 4
    assert -2 * function.values.max() <= submodularity_index(function) <= 0


@property_test
@given(case=functions_and_sets(), data=st.data())
def test_the_index_bounds_how_much_a_gain_can_grow(case: tuple[Table, frozenset[int]], data: st.DataObject) -> None:
    function, large = case  # Lemma 2
    small = frozenset(element for element in large if data.draw(st.booleans()))
    for element in function.ground_set - large:
        fall = function(small | {element}) - function(small) - (function(large | {element}) - function(large))
        assert fall >= len(large - small) * submodularity_index(function, large, 2) - 1e-9


# --- local optima, theorem 1, corollary 1 ----------------------------------------------------------------------------


def test_local_optima_by_hand() -> None:
    table = tabulate(lambda members: {(): 1, (0, 1): 3}.get(tuple(sorted(members)), 0), 2)
    assert is_local_optimum(table, frozenset())
    assert is_local_optimum(table, frozenset({0, 1}))
    assert not is_local_optimum(table, frozenset({0}))


def test_a_plateau_is_a_local_optimum() -> None:
    assert is_local_optimum(tabulate(lambda _: 1.0, 3), frozenset({1}))


def test_xi_by_hand() -> None:
    # S \ C = {0, 1, 2}, C \ S = {4, 5, 6, 7}, S and C = {3}, outside both = {8, 9}: 3 + 6 + 2 * 4 + 4 * 1
    assert xi(frozenset({0, 1, 2, 3}), frozenset({3, 4, 5, 6, 7}), 10) == 21


def test_xi_of_an_optimum_counts_only_what_is_outside() -> None:
    optimum = frozenset({0, 1})
    assert xi(optimum, optimum, 5) == 3 * 2


def test_theorem_1_by_hand() -> None:
    # The empty set is a local optimum of value 1, V = {0, 1} the optimum of value 3. Both elements: 0 + 0 - 3 - 1 = -4.
    table = tabulate(lambda members: {(): 1, (0, 1): 3}.get(tuple(sorted(members)), 0), 2)
    assert theorem_1(table, frozenset()) == Bound(left=2 * 1 + 3, right=3 + 1 * -4)
    assert corollary_1(table, frozenset()) == Bound(left=3, right=-1 / 3)


@both_phases
@property_test
@given(case=functions_and_sets(6))
def test_theorem_1_and_corollary_1_hold_where_local_search_ends(
    phase: Callable[..., SetSearch], case: tuple[Table, frozenset[int]]
) -> None:
    function, start = case
    members = local_optimum(phase, function, start)
    assert is_local_optimum(function, members)
    theorem, corollary = theorem_1(function, members), corollary_1(function, members)
    assert theorem.left >= theorem.right - 1e-9
    assert corollary.vacuous or corollary.left >= corollary.right - 1e-9
    assert theorem.holds
    assert corollary.holds


@property_test
@given(case=functions_and_sets(6))
def test_theorem_1_holds_at_every_local_optimum(case: tuple[Table, frozenset[int]]) -> None:
    function, _ = case
    for members in subsets(function.ground_set):
        assert not is_local_optimum(function, members) or theorem_1(function, members).holds


@property_test
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 6))
def test_corollary_1_promises_a_third_of_the_optimum_of_a_submodular_function(seed: int, size: int) -> None:
    cut = directed_cut(size, np.random.default_rng(seed))
    promised = corollary_1(cut, local_optimum(lazy_greedy, cut, frozenset()))
    assert promised.right == pytest.approx(cut.values.max() / 3)
    assert not promised.vacuous


def test_theorem_1_may_fail_where_a_set_is_not_a_local_optimum() -> None:
    # A path 0 -> 1: cutting it is worth 1, and neither nothing nor everything cuts it.
    cut = tabulate(lambda members: float(0 in members and 1 not in members), 2)
    assert is_submodular(cut)
    assert not is_local_optimum(cut, frozenset())
    assert not theorem_1(cut, frozenset()).holds
    assert not corollary_1(cut, frozenset()).holds
    assert theorem_1(cut, frozenset({0})).holds


def test_a_bound_holds_up_to_rounding() -> None:
    assert Bound(0.1 + 0.2, 0.3).holds
    assert Bound(0.3, 0.1 + 0.2).holds
    assert not Bound(0.3, 0.31).holds
    assert Bound(1.0, -0.1).vacuous
    assert not Bound(1.0, 0.0).vacuous


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [theorem_1, corollary_1])
def test_a_negative_function_is_refused_and_the_remedy_named(bound: Callable[..., Bound]) -> None:
    table = tabulate(lambda members: 2.0 - len(members) ** 2, 2)
    with pytest.raises(InputError, match=r"without negative values; got -2\.0 at \{0, 1\}\. Add 2\.0 to every value"):
        bound(table, frozenset({0}))
    shifted = Table(2, table.values + 2.0)
    assert brute_force(shifted)[0] == brute_force(table)[0]
    assert submodularity_index(shifted) == submodularity_index(table)
    bound(shifted, frozenset({0}))


@pytest.mark.parametrize("size", [-1, LARGEST_GROUND_SET + 1, 3072])
def test_a_ground_set_that_cannot_be_enumerated_is_refused_before_anything_is_asked(size: int) -> None:
    def function(members: frozenset[int]) -> float:
        raise AssertionError(members)

    with pytest.raises(InputError, match=rf"0 to {LARGEST_GROUND_SET} elements, .* got {size}"):
        tabulate(function, size)


def test_a_value_that_is_not_finite_is_refused() -> None:
    with pytest.raises(InputError, match=r"finite value; got nan at \{1\}"):
        tabulate(lambda members: math.nan if members == {1} else 0.0, 3)


@pytest.mark.parametrize("element", [-1, 3])
def test_an_element_outside_the_ground_set_is_refused(element: int) -> None:
    with pytest.raises(InputError, match=rf"elements must be 0\.\.2 in this ground set; got {element}"):
        is_local_optimum(tabulate(len, 3), frozenset({element}))

"""Local search, mini-batches and memory, held against slow twins and brute force."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsimon.setsearch import (
    Family,
    SetSearch,
    flipped,
    greedy,
    lazy_greedy,
    local_search,
    mini_batches,
    remembering,
    zobrist_words,
)
from parsimon.setsearch.theory import Table, tabulate
from set_problems import (
    Problem,
    SlowPhase,
    all_of,
    arbitrary_problems,
    mask_of,
    property_test,
    run,
    set_of,
    slow_greedy,
    slow_lazy_greedy,
    slow_local_search,
    start_at,
    submodular_problems,
    values_at,
    word_of,
)

# --- local search ----------------------------------------------------------------------------------------------------

both_phases = pytest.mark.parametrize("phase", [greedy, lazy_greedy])
both_phases_and_twins = pytest.mark.parametrize(
    ("phase", "slow_phase"), [(greedy, slow_greedy), (lazy_greedy, slow_lazy_greedy)]
)


@both_phases
@property_test
@given(problem=arbitrary_problems)
def test_local_search_until_nothing_changes_ends_in_a_local_optimum_of_any_function(
    phase: Callable[..., SetSearch], problem: Problem
) -> None:  # Lemma 1
    function, start = problem.function, problem.start
    search = local_search(start, [all_of(function)], phase=phase, max_iterations=None, complement=False)
    members = run(search, function).members
    for element in range(function.size):
        assert function(members ^ {element}) <= function(members)


@both_phases
@property_test
@given(problem=submodular_problems)
def test_local_search_reaches_a_third_of_the_optimum_of_a_submodular_function(
    phase: Callable[..., SetSearch], problem: Problem
) -> None:  # Feige et al. 2007, for functions that are nowhere negative
    function = Table(problem.function.size, problem.function.values - min(0.0, problem.function.values.min()))
    start = start_at(function, set_of(problem.start.members))
    found = run(local_search(start, [all_of(function)], phase=phase, max_iterations=None), function).found
    assert 3 * found.value >= function.values.max()


@both_phases_and_twins
@property_test
@given(problem=arbitrary_problems, max_iterations=st.integers(0, 3), size=st.integers(1, 7))
def test_local_search_is_insertion_and_deletion_in_turn_batch_by_batch(
    phase: Callable[..., SetSearch], slow_phase: SlowPhase, problem: Problem, max_iterations: int, size: int
) -> None:
    function, start, elements, _ = problem
    batches = mini_batches(elements, size)
    search = local_search(start, batches, phase=phase, max_iterations=max_iterations, complement=False)
    result = run(search, function)
    assert (result.members, result.asked) == slow_local_search(
        slow_phase, function, set_of(start.members), batches, max_iterations
    )


@both_phases_and_twins
@property_test
@given(problem=arbitrary_problems)
def test_one_batch_is_the_algorithm_without_batches(
    phase: Callable[..., SetSearch], slow_phase: SlowPhase, problem: Problem
) -> None:  # Algorithm 3 with MAXITER 1
    function, start = problem.function, problem.start
    (batch,) = mini_batches(all_of(function), function.size)
    inserted, insertion = slow_phase(function, set_of(start.members), list(range(function.size)), True)
    deleted, deletion = slow_phase(function, inserted, list(range(function.size)), False)
    result = run(local_search(start, [batch], phase=phase, complement=False), function)
    assert (result.members, result.asked) == (deleted, insertion + deletion)


@both_phases
def test_each_iteration_is_one_insertion_and_one_deletion(phase: Callable[..., SetSearch]) -> None:
    # 0, 1, 2 go in, 0 comes out; only then does 3 help, which needs a second round, and the third changes nothing.
    function = values_at(4, {(0,): 3, (0, 1): 4, (0, 1, 2): 5, (1, 2): 6, (1, 2, 3): 7})
    rounds = {
        rounds: run(local_search(start_at(function), [all_of(function)], phase=phase, max_iterations=rounds), function)
        for rounds in (0, 1, 2, 3, 4, None)
    }
    assert [result.members for result in rounds.values()] == [set(), {1, 2}] + 4 * [{1, 2, 3}]
    assert len(rounds[2].asked) < len(rounds[3].asked) == len(rounds[4].asked) == len(rounds[None].asked)


def test_the_complement_is_returned_if_it_is_better() -> None:
    function = values_at(3, {(): 1, (0, 1, 2): 2})
    search = partial(local_search, start_at(function), [all_of(function)])
    assert run(search(complement=False), function).members == set()
    assert run(search(complement=True), function).members == {0, 1, 2}


@property_test
@given(problem=arbitrary_problems)
def test_the_complement_costs_one_value_and_never_hurts(problem: Problem) -> None:
    batches = mini_batches(problem.elements, 3)
    without = run(local_search(problem.start, batches, complement=False), problem.function)
    result = run(local_search(problem.start, batches, complement=True), problem.function)
    other = frozenset(range(problem.function.size)) - without.members
    assert result.asked == [*without.asked, other]
    assert result.members == (other if problem.function(other) > without.found.value else without.members)


# --- mini-batches ----------------------------------------------------------------------------------------------------


@property_test
@given(order=st.permutations(range(20)), count=st.integers(0, 20), size=st.integers(1, 25))
def test_mini_batches_cut_the_order_exactly(order: list[int], count: int, size: int) -> None:
    batches = mini_batches(np.array(order[:count], np.intp), size)
    assert [element for batch in batches for element in batch.tolist()] == order[:count]
    assert all(len(batch) == size for batch in batches[:-1])
    assert all(0 < len(batch) <= size for batch in batches)


# --- remembering -----------------------------------------------------------------------------------------------------


def test_remembering_forwards_only_the_unknown_part_of_a_family() -> None:
    function = tabulate(lambda members: float(sum(members)), 4)
    start = start_at(function, [0])
    words: list[int] = zobrist_words(4).tolist()

    def search() -> SetSearch:
        first = yield Family(start.members, [1, 2])
        second = yield Family(start.members, [3, 2, 1], 4.0)
        third = yield Family(flipped(start.members, 1), [1])  # the start, by another way
        assert (first.tolist(), second.tolist(), third.tolist()) == ([1.0, 2.0], [3.0, 2.0, 1.0], [0.0])
        return start

    families = run(remembering(search(), {word_of({0}, words): start.value}, words), function).families
    assert [list(family.flips) for family in families] == [[1, 2], [3]]
    assert families[1].adopted_from == 4.0


def test_remembering_tells_apart_all_sets_of_a_ground_set() -> None:
    function = Table(10, np.random.default_rng(0).permutation(1024).astype(np.float64))
    every_set = [frozenset(element for element in range(10) if bits >> element & 1) for bits in range(1024)]

    def search() -> SetSearch:
        for members in every_set:
            values = yield Family(mask_of(members, 10))
            assert values.tolist() == [function(members)]
        return start_at(function)

    assert run(remembering(search(), {}, zobrist_words(10).tolist()), function).asked == every_set

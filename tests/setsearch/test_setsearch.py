"""The greedy searches, held against slow twins, brute force and another library."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parsimon.setsearch import (
    Family,
    Found,
    LazyRule,
    SetSearch,
    evaluate,
    flipped,
    greedy,
    lazy_greedy,
    local_search,
    maximise,
    mini_batches,
    remembering,
    stochastic_greedy,
    zobrist_words,
)
from parsimon.setsearch.theory import tabulate
from set_problems import (
    PUBLISHED_RULE,
    Problem,
    Sets,
    all_of,
    arbitrary_problems,
    mask_of,
    nearness,
    property_test,
    random_similarity,
    run,
    seeds,
    set_of,
    slow_greedy,
    slow_lazy_greedy,
    start_at,
    submodular_problems,
    values_at,
    without_ties,
    word_of,
)

# --- all searches, for what holds of all of them ---------------------------------------------------------------------


def insertion_then_deletion(problem: Problem) -> SetSearch:
    found = yield from lazy_greedy(problem.start, problem.elements, inserting=True)
    return (yield from lazy_greedy(found, problem.elements, inserting=False))


def searching(phase: Callable[..., SetSearch]) -> Callable[[Problem], SetSearch]:
    return lambda problem: phase(problem.start, problem.elements, inserting=problem.inserting)


def local_searching(phase: Callable[..., SetSearch], max_iterations: int | None) -> Callable[[Problem], SetSearch]:
    return lambda problem: local_search(
        problem.start, mini_batches(problem.elements, 3), phase=phase, max_iterations=max_iterations
    )


SEARCHES: dict[str, Callable[[Problem], SetSearch]] = {
    "evaluate": lambda problem: evaluate(problem.start.members),
    "greedy": searching(greedy),
    "lazy greedy": searching(lazy_greedy),
    "lazy greedy as published": searching(partial(lazy_greedy, rule=PUBLISHED_RULE)),
    "lazy insertion, then deletion": insertion_then_deletion,
    "stochastic greedy": lambda problem: stochastic_greedy(
        problem.start, problem.elements, inserting=problem.inserting, rng=np.random.default_rng(0)
    ),
    "local search, greedy": local_searching(greedy, None),
    "local search, lazy": local_searching(lazy_greedy, None),
    "local search, as published": local_searching(partial(lazy_greedy, rule=PUBLISHED_RULE), 2),
}
every_search = pytest.mark.parametrize("make_search", SEARCHES.values(), ids=SEARCHES.keys())


@every_search
@property_test
@given(problem=arbitrary_problems)
def test_found_value_is_the_value_of_the_found_set(
    make_search: Callable[[Problem], SetSearch], problem: Problem
) -> None:
    result = run(make_search(problem), problem.function)
    assert result.found.value == problem.function(result.members)


@every_search
@property_test
@given(problem=arbitrary_problems)
def test_masks_and_families_are_never_changed_after_they_were_yielded(
    make_search: Callable[[Problem], SetSearch], problem: Problem
) -> None:
    start = set_of(problem.start.members)
    result = run(make_search(problem), problem.function)
    assert [set_of(mask) for family in result.families for mask in family.sets()] == result.asked
    assert set_of(problem.start.members) == start


@every_search
@property_test
@given(problem=arbitrary_problems)
def test_remembering_asks_for_the_same_sets_in_the_same_order_but_for_none_twice(
    make_search: Callable[[Problem], SetSearch], problem: Problem
) -> None:
    words: list[int] = zobrist_words(problem.function.size).tolist()
    known: dict[int, float] = {}
    plain = run(make_search(problem), problem.function)
    remembered = run(remembering(make_search(problem), known, words), problem.function)
    assert remembered.asked == list(dict.fromkeys(plain.asked))
    assert known == {word_of(members, words): problem.function(members) for members in plain.asked}
    once_more = run(remembering(make_search(problem), known, words), problem.function)
    assert once_more.asked == []
    assert plain.members == remembered.members == once_more.members
    assert plain.found.value == remembered.found.value == once_more.found.value


# --- families, evaluate and maximise ---------------------------------------------------------------------------------


@every_search
@property_test
@given(problem=arbitrary_problems)
def test_a_base_that_says_how_it_came_about_says_the_truth(
    make_search: Callable[[Problem], SetSearch], problem: Problem
) -> None:
    for family in run(make_search(problem), problem.function).families:
        if family.moved is not None:
            np.testing.assert_array_equal(family.base, flipped(*family.moved))


def test_a_family_is_its_base_with_one_flip_each() -> None:
    family = Family(mask_of([0], 3), flips=[2, 0])
    assert [set_of(mask) for mask in family.sets()] == [{0, 2}, set()]


def test_a_family_without_flips_is_its_base() -> None:
    assert [set_of(mask) for mask in Family(mask_of([1], 3)).sets()] == [{1}]


def test_flipped_leaves_its_argument_alone() -> None:
    mask = mask_of([0], 2)
    assert set_of(flipped(mask, 1)) == {0, 1}
    assert set_of(flipped(mask, 0)) == set()
    assert set_of(mask) == {0}


@property_test
@given(problem=arbitrary_problems)
def test_maximise_asks_the_function_for_every_set_of_every_family_in_order(problem: Problem) -> None:
    asked: Sets = []

    def recorded(members: frozenset[int]) -> float:
        asked.append(members)
        return problem.function(members)

    expected = run(insertion_then_deletion(problem), problem.function)
    found = maximise(insertion_then_deletion(problem), recorded)
    assert asked == expected.asked
    assert set_of(found.members) == expected.members
    assert found.value == problem.function(expected.members)


# --- greedy ----------------------------------------------------------------------------------------------------------


@property_test
@given(problem=arbitrary_problems)
def test_greedy_is_its_slow_twin(problem: Problem) -> None:
    function, start, elements, inserting = problem
    result = run(greedy(start, elements, inserting=inserting), function)
    assert (result.members, result.asked) == slow_greedy(function, set_of(start.members), elements.tolist(), inserting)


@pytest.mark.parametrize("phase", [greedy, lazy_greedy])
@property_test
@given(problem=arbitrary_problems, at_most=st.integers(0, 4))
def test_at_most_so_many_elements_are_flipped(phase: Callable[..., SetSearch], problem: Problem, at_most: int) -> None:
    function, start, elements, inserting = problem
    unlimited = run(phase(start, elements, inserting=inserting), function)
    limited = run(phase(start, elements, inserting=inserting, at_most=at_most), function)
    flips = len(unlimited.members ^ set_of(start.members))
    assert len(limited.members ^ set_of(start.members)) == min(at_most, flips)
    assert limited.asked == unlimited.asked[: len(limited.asked)]


@pytest.mark.parametrize("phase", [greedy, lazy_greedy])
def test_ties_go_to_the_element_that_comes_first(phase: Callable[..., SetSearch]) -> None:
    function = tabulate(lambda members: min(len(members), 2), 4)
    result = run(phase(start_at(function), np.array([3, 0, 2, 1]), inserting=True), function)
    assert result.members == {3, 0}


@pytest.mark.parametrize("phase", [greedy, lazy_greedy, partial(stochastic_greedy, rng=np.random.default_rng(0))])
def test_nothing_is_asked_when_there_is_nothing_to_flip(phase: Callable[..., SetSearch]) -> None:
    function = tabulate(len, 3)
    start = start_at(function, [0, 1, 2])
    result = run(phase(start, all_of(function), inserting=True), function)
    assert result.asked == []
    assert result.found.members is start.members  # local search knows by this that nothing moved


@pytest.mark.parametrize("phase", [greedy, lazy_greedy])
def test_nothing_is_asked_when_nothing_may_be_flipped(phase: Callable[..., SetSearch]) -> None:
    function = tabulate(len, 3)
    assert run(phase(start_at(function), all_of(function), inserting=True, at_most=0), function).asked == []


# --- lazy greedy -----------------------------------------------------------------------------------------------------


@property_test
@given(problem=submodular_problems)
def test_lazy_greedy_finds_what_greedy_finds_on_submodular_functions(problem: Problem) -> None:
    function, start, elements, inserting = problem
    assume(without_ties(function))
    lazy = run(lazy_greedy(start, elements, inserting=inserting), function)
    naive = run(greedy(start, elements, inserting=inserting), function)
    assert lazy.members == naive.members
    assert len(lazy.asked) <= len(naive.asked)
    assert set(lazy.asked) <= set(naive.asked)


def test_lazy_greedy_asks_for_less_than_greedy_on_a_larger_submodular_function() -> None:
    function = nearness(random_similarity(60, seed=0))
    empty = Found(mask_of([], 60), 0.0)
    lazy = run(lazy_greedy(empty, np.arange(60), inserting=True, at_most=10), function)
    naive = run(greedy(empty, np.arange(60), inserting=True, at_most=10), function)
    assert lazy.members == naive.members
    assert len(lazy.asked) < 0.8 * len(naive.asked)


@property_test
@given(problem=arbitrary_problems, at_most=st.integers(1, 7))
def test_lazy_greedy_is_its_slow_twin_on_any_function(problem: Problem, at_most: int) -> None:
    function, start, elements, inserting = problem
    result = run(lazy_greedy(start, elements, inserting=inserting, at_most=at_most), function)
    assert (result.members, result.asked) == slow_lazy_greedy(
        function, set_of(start.members), elements.tolist(), inserting, at_most
    )


@property_test
@given(problem=arbitrary_problems)
def test_lazy_greedy_asks_for_no_set_twice(problem: Problem) -> None:
    asked = run(lazy_greedy(problem.start, problem.elements, inserting=problem.inserting), problem.function).asked
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("seed", range(3))
def test_lazy_greedy_picks_what_apricot_picks(seed: int) -> None:
    apricot = pytest.importorskip("apricot")
    similarity = random_similarity(25, seed)
    theirs = apricot.FacilityLocationSelection(12, metric="precomputed", optimizer="lazy").fit(similarity)
    for count in range(1, 13):
        empty = Found(mask_of([], 25), 0.0)
        ours = run(lazy_greedy(empty, np.arange(25), inserting=True, at_most=count), nearness(similarity))
        assert ours.members == set(theirs.ranking[:count].tolist())
        assert ours.found.value == pytest.approx(theirs.gains[:count].sum())


# --- where the published code departs from the paper -----------------------------------------------------------------


def test_force_first_adopts_a_harmful_flip_but_only_the_first() -> None:
    function = tabulate(lambda members: -len(members), 3)
    start, elements = start_at(function), all_of(function)
    forced = run(lazy_greedy(start, elements, inserting=True, rule=LazyRule(force_first=True)), function)
    assert run(lazy_greedy(start, elements, inserting=True), function).members == set()
    assert forced.members == {0}
    assert forced.found.value == -1


def test_adopt_zero_adopts_a_flip_that_changes_nothing() -> None:
    function = tabulate(lambda _: 0.0, 3)
    start, elements = start_at(function), all_of(function)
    assert run(lazy_greedy(start, elements, inserting=True), function).members == set()
    adopted = run(lazy_greedy(start, elements, inserting=True, rule=LazyRule(adopt_zero=True)), function)
    assert adopted.members == {0, 1, 2}


def test_adopt_zero_does_not_adopt_a_harmful_flip() -> None:
    function = tabulate(lambda members: -len(members), 3)
    rule = LazyRule(adopt_zero=True)
    assert run(lazy_greedy(start_at(function), all_of(function), inserting=True, rule=rule), function).members == set()


def test_ask_again_asks_for_a_bound_that_is_current() -> None:
    # After 0, the gain of 1 falls from 9 to 3 and that of 2 from 8 to 2: 1 is pushed back, 2 is pushed back, and 1 is
    # popped again with a bound that was computed for this very set.
    function = values_at(3, {(0,): 10, (1,): 9, (2,): 8, (0, 1): 13, (0, 2): 12, (0, 1, 2): 14})
    start, elements = start_at(function), all_of(function)
    paper = run(lazy_greedy(start, elements, inserting=True), function)
    again = run(lazy_greedy(start, elements, inserting=True, rule=LazyRule(ask_again=True)), function)
    assert paper.asked == [{0}, {1}, {2}, {0, 1}, {0, 2}, {0, 1, 2}]
    assert again.asked == [{0}, {1}, {2}, {0, 1}, {0, 2}, {0, 1}, {0, 1, 2}]
    assert again.members == paper.members == {0, 1, 2}


@property_test
@given(problem=arbitrary_problems)
def test_ask_again_changes_what_is_asked_and_not_what_is_found(problem: Problem) -> None:
    function, start, elements, inserting = problem
    paper = run(lazy_greedy(start, elements, inserting=inserting), function)
    again = run(lazy_greedy(start, elements, inserting=inserting, rule=LazyRule(ask_again=True)), function)
    assert again.members == paper.members
    assert list(dict.fromkeys(again.asked)) == paper.asked


# --- adopted_from ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [LazyRule(), PUBLISHED_RULE], ids=["paper", "published"])
@property_test
@given(problem=arbitrary_problems)
def test_a_reply_below_adopted_from_is_not_adopted(rule: LazyRule, problem: Problem) -> None:
    result = run(lazy_greedy(problem.start, problem.elements, inserting=problem.inserting, rule=rule), problem.function)
    for family, reply, next_base in result.steps():
        for mask, value in zip(family.sets(), reply, strict=True):
            if value < family.adopted_from:
                assert set_of(next_base) != set_of(mask)


@property_test
@given(problem=arbitrary_problems)
def test_as_published_a_single_reply_is_adopted_exactly_if_it_reaches_adopted_from(problem: Problem) -> None:
    search = lazy_greedy(problem.start, problem.elements, inserting=problem.inserting, rule=PUBLISHED_RULE)
    result = run(search, problem.function)
    for family, (value, *_), next_base in result.steps()[1:]:
        (asked,) = family.sets()
        assert (set_of(next_base) == set_of(asked)) == (value >= family.adopted_from)


# --- stochastic greedy -----------------------------------------------------------------------------------------------


@property_test
@given(problem=arbitrary_problems, seed=seeds, miss=st.floats(0.001, 0.999))
def test_stochastic_greedy_never_asks_for_more_than_its_strict_bound(problem: Problem, seed: int, miss: float) -> None:
    function, start, elements, inserting = problem
    rng = np.random.default_rng(seed)
    asked = run(stochastic_greedy(start, elements, inserting=inserting, rng=rng, miss=miss), function).asked
    assert len(asked) <= len(elements) * math.ceil(math.log(1 / miss))


@pytest.mark.parametrize("miss", [0, 1, 2, -0.1])
def test_stochastic_greedy_takes_a_probability(miss: float) -> None:
    function = tabulate(len, 3)
    search = stochastic_greedy(
        start_at(function), all_of(function), inserting=True, rng=np.random.default_rng(0), miss=miss
    )
    with pytest.raises(ValueError, match="miss must be a probability above 0 and below 1"):
        next(search)


@property_test
@given(problem=arbitrary_problems, seed=seeds)
def test_stochastic_greedy_is_a_function_of_its_random_generator(problem: Problem, seed: int) -> None:
    function, start, elements, inserting = problem
    one, two = (
        run(stochastic_greedy(start, elements, inserting=inserting, rng=np.random.default_rng(seed)), function)
        for _ in range(2)
    )
    assert (one.members, one.asked) == (two.members, two.asked)


@property_test
@given(problem=arbitrary_problems, seed=seeds)
def test_stochastic_greedy_adopts_the_best_of_each_sample_if_it_helps(problem: Problem, seed: int) -> None:
    function, start, elements, inserting = problem
    rng = np.random.default_rng(seed)
    result = run(stochastic_greedy(start, elements, inserting=inserting, rng=rng, miss=0.1), function)
    candidates = [element for element in elements.tolist() if (element not in set_of(start.members)) == inserting]
    members = set_of(start.members)
    assert len(result.families) == len(candidates)
    for family in result.families:
        assert set_of(family.base) == members
        assert len(family.flips) == min(3, len(candidates))  # ceil(log(1 / 0.1)) = 3
        assert set(family.flips) <= set(candidates)
        assert len(set(family.flips)) == len(family.flips)
        best = max(family.flips, key=lambda element: function(members ^ {element}))
        if function(members ^ {best}) > function(members):
            members ^= {best}
            candidates.remove(best)
    assert result.members == members


@property_test
@given(problem=arbitrary_problems)
def test_stochastic_greedy_with_a_sample_of_everything_is_greedy(problem: Problem) -> None:
    function, start, elements, inserting = problem
    assume(without_ties(function))
    search = stochastic_greedy(
        start, elements, inserting=inserting, rng=np.random.default_rng(0), miss=math.exp(-function.size)
    )
    assert run(search, function).members == run(greedy(start, elements, inserting=inserting), function).members

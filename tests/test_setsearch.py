"""Set searches, held against slow twins, brute force and another library."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from operator import xor
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from parsimon.setsearch import (
    Elements,
    Family,
    Found,
    LazyRule,
    Mask,
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
from parsimon.theory import SetFunction, Table, tabulate

PUBLISHED_RULE = LazyRule(force_first=True, adopt_zero=True, ask_again=True)

property_test = settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


# --- running a search by hand ---------------------------------------------------------------------------------------


class Run(NamedTuple):
    found: Found
    families: list[Family]
    asked: list[frozenset[int]]  # their sets, as they were when they were yielded
    replies: list[list[float]]

    @property
    def members(self) -> frozenset[int]:
        return set_of(self.found.members)

    def steps(self) -> list[tuple[Family, list[float], Mask]]:
        """Each family, what was replied, and the set that the search went on with."""
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
    """What `remembering` knows a set by."""
    return reduce(xor, (words[element] for element in members), 0)


def start_at(function: Table, members: Iterable[int] = ()) -> Found:
    return Found(mask_of(members, function.size), function(frozenset(members)))


def values_at(size: int, values: dict[tuple[int, ...], float]) -> Table:
    """The set function with these values, and 0 elsewhere."""
    return tabulate(lambda members: values.get(tuple(sorted(members)), 0.0), size)


def all_of(function: Table) -> Elements:
    return np.arange(function.size)


# --- set functions. Their values are whole numbers, so that no test depends on rounding ------------------------------


def coverage(size: int, rng: np.random.Generator) -> SetFunction:
    """The weight of what the members cover, less what they cost."""
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
    """How near each customer has its nearest facility, less what the facilities cost."""
    nearness, costs = rng.integers(0, 10**6, (size, 6)), rng.integers(1, 10**6, size)
    return lambda members: float(nearness[list(members)].max(axis=0, initial=0).sum() - costs[list(members)].sum())


def random_similarity(size: int, seed: int) -> NDArray[np.float64]:
    """Each element is nearest to itself, so that no gain is zero: there, apricot's lazy greedy stops looking."""
    rng = np.random.default_rng(seed)
    similarity = rng.random((size, size))
    similarity = np.maximum(similarity, similarity.T)
    np.fill_diagonal(similarity, 1 + rng.random(size))  # not all 1, which would make the gains of two elements tie
    return similarity


def nearness(similarity: NDArray[np.float64]) -> SetFunction:
    """Facility location without costs: monotone."""
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
    """No two sets of equally many members, as a greedy step compares them, have the same value."""
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
def test_lazy_greedy_picks_what_apricot_picks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # read when apricot is first imported; compiling takes longer
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
    with pytest.raises(ValueError, match="miss is a probability above 0 and below 1"):
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

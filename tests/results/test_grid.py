"""Evaluations as values: which budgets and keys they take, what their headlines say, and which radius they show."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsimon import PGD, Evaluation, EvaluationGrid, InputError, Result, Square, Threat
from parsimon.cli.evaluate import shown
from parsimon.cli.present import Output
from parsimon.core.engine import Counters
from parsimon.core.types import Outcome
from parsimon.report.headline import grid_top
from parsimon.results.result import CleanPredictions
from parsimon.runs.config import RunConfig
from parsimon.runs.evaluation import EvaluationConfig

IMAGES, CORRECT, BUDGET = 20, 16, 50
RUN = Path("run")


def result(fooled: int, *, pgd: bool = False, eps: float = 8 / 255, eight_bit: bool = False) -> Result:
    """Return the result of an attack that fools the first of the correct images, each after 5 queries."""
    labels = np.zeros(IMAGES, np.intp)
    clean = CleanPredictions(labels, np.arange(IMAGES) < CORRECT, 10, np.ones(IMAGES))
    outcomes = [
        Outcome(index, index < fooled, 5, "success" if index < fooled else "budget") for index in range(CORRECT)
    ]
    threat, pixels = Threat(eps, eight_bit=eight_bit), np.zeros((IMAGES, 3, 1, 1), np.float32)
    return Result(PGD() if pgd else Square(), threat, BUDGET, pixels, labels, clean, tuple(outcomes), Counters())


def evaluation(fooled: int, by_pgd: int | None = None, *, eps: float = 8 / 255, eight_bit: bool = False) -> Evaluation:
    results = {"Square": result(fooled, eps=eps, eight_bit=eight_bit)}
    if by_pgd is not None:
        results["PGD"] = result(by_pgd, pgd=True, eps=eps, eight_bit=eight_bit)
    return Evaluation(("Square",), results, eps, (BUDGET,))


def grid(**rows: tuple[Evaluation, ...]) -> EvaluationGrid:
    (first, *_) = rows.values()
    return EvaluationGrid(tuple(rows), tuple(each.eps for each in first), rows)


# --- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "left"), [(0, 16), (4, 16), (5, 10), (BUDGET, 10), (np.int64(BUDGET), 10)])
def test_a_budget_up_to_that_of_the_attacks_has_a_verdict(budget: Any, left: int) -> None:
    assert evaluation(6).verdict(budget).value == left / IMAGES


@pytest.mark.parametrize("budget", [BUDGET + 1, -1, math.inf, math.nan, "5", [5]])
def test_any_other_budget_is_refused_with_the_possible_ones(budget: Any) -> None:
    words = f"budget must be from 0 to {BUDGET}, the queries that each attack had; got {budget!r}"
    for answer in (evaluation(6).verdict, evaluation(6).robust_within):
        with pytest.raises(InputError, match=re.escape(words)):
            answer(budget)


# --- keys -------------------------------------------------------------------------------------------------------------

RADII = (4 / 255, 8 / 255)


@pytest.fixture
def two() -> EvaluationGrid:
    return grid(**{name: tuple(evaluation(3, eps=eps) for eps in RADII) for name in ("a", "b")})


@pytest.mark.parametrize(
    "eps", ["8/255", " 8 / 255 ", 8 / 255, np.float32(8 / 255), Fraction(8, 255), "0.03137254901960784"]
)
def test_a_radius_is_found_as_it_was_given(two: EvaluationGrid, eps: Any) -> None:
    assert two["b", eps] is two.evaluations["b"][1]


@pytest.mark.parametrize(
    "key", ["b", 3, None, ("b",), ("c", 8 / 255), ("b", 0.5), ("b", "much"), ("b", None), (["b"], "8/255")]
)
def test_any_other_key_is_refused_with_those_that_exist(two: EvaluationGrid, key: Any) -> None:
    with pytest.raises(InputError) as caught:
        two[key]
    assert f"there is no evaluation of {key!r}." in str(caught.value)
    for known in ("('a', 0.0156863)", "('a', 0.0313725)", "('b', 0.0156863)", "('b', 0.0313725)"):
        assert known in str(caught.value)


def test_iteration_yields_the_keys(two: EvaluationGrid) -> None:
    assert list(two) == [("a", RADII[0]), ("a", RADII[1]), ("b", RADII[0]), ("b", RADII[1])]
    assert [two[key] for key in two] == [*two.evaluations["a"], *two.evaluations["b"]]
    assert len(two) == 4
    assert ("b", RADII[1]) in two
    assert ("c", RADII[1]) not in two


# --- headlines --------------------------------------------------------------------------------------------------------


def test_what_pgd_leaves_stands_in_every_headline() -> None:
    bare, both = evaluation(6), evaluation(6, by_pgd=14)
    seen = "with PGD, which sees gradients: 10.0%"  # 2 of 20
    assert both.headline() == f"{bare.headline()}; {seen}"
    several = grid(a=(both,), b=(evaluation(6, by_pgd=16),))
    assert (
        several.headline()
        == f"{grid(a=(bare,), b=(bare,)).headline()}; with PGD, which sees gradients: a 10.0%, b 0.0%"
    )
    assert grid_top(several)["headlines"][0]["about"].endswith(f"; {seen}.")
    lines = [each.line for each in shown(several, RUN).headlines]
    assert lines[0].startswith("a: robust accuracy 50.0% ")
    assert lines[0].endswith(f"; {seen}")
    assert "PGD" not in shown(grid(a=(bare,)), RUN).headlines[0].line


def test_pgd_of_a_smaller_radius_counts_where_nothing_was_left_to_attack() -> None:
    smaller = replace(evaluation(16, by_pgd=16), eps=4 / 255)
    larger = Evaluation(("Square",), {}, 8 / 255, (BUDGET,), smaller)
    assert larger.headline().endswith("; with PGD, which sees gradients: 0.0%")


def test_a_gate_says_that_it_compares_black_box_attacks() -> None:
    """PGD leaves 10 %, and the threshold of 50 % is passed all the same: the attacker can only query."""
    found = shown(grid(a=(evaluation(6, by_pgd=14),)), RUN)
    assert not found._failures(Output("text", 0.5, "estimate"))
    (failure,) = found._failures(Output("text", 0.51, "estimate"))
    assert failure == "robust accuracy is 0.5000 for a at eps 8/255 (black-box attacks only)"
    (failure,) = shown(grid(a=(evaluation(6),)), RUN)._failures(Output("text", 0.51, "estimate"))
    assert failure == "robust accuracy is 0.5000 for a at eps 8/255"


# --- the radius in 8-bit mode -----------------------------------------------------------------------------------------


def test_in_eight_bit_mode_the_radius_is_shown_as_images_obey_it() -> None:
    """0.03 is 7.65/255, and pixels that are k / 255 differ by at most 7/255."""
    for eight_bit, radius in ((True, "7/255"), (False, "7.65/255")):
        one = evaluation(6, eps=0.03, eight_bit=eight_bit)
        several = grid(a=(one,))
        for text in (
            one.headline(),
            one.table().title,
            str(several),
            several.headline(),
            one.results["Square"].headline(),
        ):
            assert radius in text
            assert eight_bit == ("7.65" not in text)
        assert several["a", 0.03] is one  # the key stays what the user gave


def test_radii_that_are_the_same_in_eight_bit_mode_are_refused() -> None:
    given: Any = {"models": ("a",), "eps": (0.028, 0.03)}
    assert len(EvaluationConfig(**given).radii) == 2
    with pytest.raises(InputError, match=r"eps must be different radii, rounded down to multiples of 1/255 in 8-bit"):
        EvaluationConfig(**given, run=RunConfig(selection="any", eight_bit=True))

"""Arguments of the Python functions: numbers of every kind, and hints for misspelt names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import parsimon
from parsimon import InputError
from parsimon.attacks.registry import attack_rows
from parsimon.defences import AAA, BitDepth, InputNoise
from parsimon.runs.config import RunConfig
from parsimon.runs.evaluation import EvaluationConfig
from small_model import IMAGES, LABELS, linear

# 1/32 is the same number in every format.
REALS: list[Callable[[float], Any]] = [np.float16, np.float32, np.float64, np.longdouble, Fraction]
WHOLES: list[Callable[[int], Any]] = [np.int8, np.uint8, np.int32, np.int64, np.uint64]
EPS, BUDGET = 1 / 32, 5


def of(kind: Any) -> str:
    return str(kind.__name__)


def answers(eps: Any, budget: Any, seed: Any = 3) -> list[Any]:
    """Return what every function finds, as plain values."""
    given: Any = {"budget": budget, "seed": seed}
    attacked = parsimon.attack(linear, IMAGES, LABELS, eps, attack="square", at_most=seed, **given)
    compared = parsimon.compare(linear, IMAGES, LABELS, eps, ["square", "rays"], sample=seed, **given)
    evaluated = parsimon.evaluate(linear, IMAGES, LABELS, eps, attacks=["square"], **given)
    defended = parsimon.assess_defence(linear, IMAGES, LABELS, eps, defence="blacklight", flag_price=budget, **given)
    return [
        attacked.outcomes,
        [result.outcomes for result in compared.results.values()],
        (evaluated.eps, evaluated.budgets, evaluated.results["Square"].outcomes, str(evaluated)),
        str(defended),
        defended.headline(),
    ]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    return answers(EPS, BUDGET)


@pytest.mark.parametrize("real", REALS, ids=of)
def test_a_radius_may_be_any_real_number(real: Callable[[float], Any], expected: list[Any]) -> None:
    assert answers(real(EPS), BUDGET) == expected


@pytest.mark.parametrize("whole", WHOLES, ids=of)
def test_a_count_may_be_any_whole_number(whole: Callable[[int], Any], expected: list[Any]) -> None:
    assert answers(EPS, whole(BUDGET), whole(3)) == expected


@pytest.mark.parametrize("real", REALS, ids=of)
def test_lists_of_radii_and_budgets_may_hold_any_numbers(real: Callable[[float], Any]) -> None:
    budgets: Any = [np.int64(9), 4]
    grid = parsimon.evaluate(linear, IMAGES, LABELS, [real(EPS), real(1 / 64)], budget=budgets)
    assert grid.radii == (1 / 64, EPS)
    assert grid.any_evaluation.budgets == (4, 9)
    assert all(type(eps) is float for eps in grid.radii)


def test_lists_may_be_arrays() -> None:
    radii, budgets = np.linspace(0.01, 0.05, 3), np.array([4, 9])
    grid = parsimon.evaluate(linear, IMAGES, LABELS, radii, budget=budgets)  # type: ignore[call-overload]
    assert grid.radii == tuple(radii.tolist())
    assert grid.any_evaluation.budgets == (4, 9)


def test_settings_of_a_run_become_pythons_own() -> None:
    given: Any = {"eps": Fraction(8, 255), "budget": np.int64(7), "stochastic": np.True_, "error_rate": Fraction(1, 10)}
    config = RunConfig(**given, model=np.str_("robust"))
    assert config == RunConfig(eps=8 / 255, budget=7, stochastic=True, error_rate=0.1)
    assert RunConfig.of(config.settings()).toml() == config.toml()
    numbers: Any = {"eps": (np.float64(0.25),), "budget": (np.int8(3),), "white_box": np.False_}
    evaluation = EvaluationConfig(**numbers)
    assert (evaluation.eps, evaluation.budget, evaluation.white_box) == ((0.25,), (3,), False)


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (parsimon.Square(p_init=Fraction(1, 8)), parsimon.Square(p_init=0.125)),  # type: ignore[arg-type]
        (parsimon.RandomCorners(block=np.int64(4)), parsimon.RandomCorners(block=4)),  # type: ignore[arg-type]
        (parsimon.Scatter(block=np.uint8(4)), parsimon.Scatter(block=4)),  # type: ignore[arg-type]
        (
            parsimon.Parsimonious(block=np.int64(2), noise=(np.int8(4), 4)),  # type: ignore[arg-type]
            parsimon.Parsimonious(block=2, noise=(4, 4)),
        ),
    ],
)
def test_settings_of_an_attack_become_pythons_own(given: parsimon.Attack, plain: parsimon.Attack) -> None:
    """Integers of numpy wrap around and have no hash that a grid needs; a row has the same name."""
    (row,) = attack_rows([given]).values()
    assert repr(row) == repr(plain)
    found, wanted = (parsimon.attack(linear, IMAGES, LABELS, EPS, attack=each, budget=9) for each in (given, plain))
    assert found.outcomes == wanted.outcomes


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (InputNoise(Fraction(1, 50)), "noise,sigma=0.02"),  # type: ignore[arg-type]
        (InputNoise(np.float64(0.02)), "noise,sigma=0.02"),
        (AAA(tau=np.float32(2.5)), "aaa,tau=2.5"),  # type: ignore[arg-type]
        (BitDepth(np.int64(4)), "bit-depth,bits=4"),  # type: ignore[arg-type]
    ],
)
def test_settings_of_a_defence_act_like_pythons_own(given: Any, plain: str) -> None:
    settings: Any = {"attack": "square", "budget": 4, "stochastic": "noise" in plain, "draws": None}
    found, wanted = (parsimon.attack(linear, IMAGES, LABELS, EPS, defence=each, **settings) for each in (given, plain))
    assert found.outcomes == wanted.outcomes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"budget": 10.0}, "budget must be a whole number, at least 1; got 10.0"),
        ({"budget": [5, 10.5]}, "budget must be a whole number, at least 1; got 10.5"),
        ({"budget": np.float64(5.5)}, f"budget must be a whole number, at least 1; got {np.float64(5.5)!r}"),
        ({"budget": 0}, "budget must be a whole number, at least 1; got 0"),
        ({"budget": 2**70}, f"budget must be a whole number, at most 9,223,372,036,854,775,807; got {2**70}"),
        ({"budget": None}, "budget must be a whole number, at least 1; got None"),
        ({"budget": []}, "budget must be at least one whole number, each at least 1; got ()"),
        ({"eps": True}, "eps must be a number or a fraction such as 8/255; got True"),
        ({"eps": 1j}, "eps must be a number or a fraction such as 8/255; got 1j"),
        ({"eps": [0.01, None]}, "eps must be a number or a fraction such as 8/255; got None"),
        ({"eps": []}, "eps must be at least one number or fraction such as 8/255; got ()"),
        ({"eps": Fraction(10**400)}, "eps must be a number or a fraction such as 8/255; got Fraction(1000"),
    ],
)
def test_what_is_no_number_is_named_itself(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        parsimon.evaluate(linear, IMAGES, LABELS, **{"eps": EPS, "budget": BUDGET, **arguments})
    assert str(caught.value).startswith(words)
    assert " list" not in str(caught.value)


# --- names ------------------------------------------------------------------------------------------------------------

FUNCTIONS: list[Callable[..., Any]] = [
    parsimon.attack,
    parsimon.compare,
    parsimon.evaluate,
    parsimon.assess_defence,
]


@pytest.mark.parametrize(
    ("function", "name", "meant"),
    [
        (parsimon.evaluate, "epsilon", "eps"),
        (parsimon.evaluate, "attack", "attacks"),
        (parsimon.evaluate, "whitebox", "white_box"),
        (parsimon.attack, "epsilon", "eps"),
        (parsimon.attack, "attacks", "attack"),
        (parsimon.compare, "attack", "attacks"),
        (parsimon.compare, "relativeto", "relative_to"),
        (parsimon.assess_defence, "flagprice", "flag_price"),
        (parsimon.assess_defence, "defense", "defence"),
    ],
)
def test_a_misspelt_argument_gets_the_right_one(function: Callable[..., Any], name: str, meant: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"has no setting {name!r}: did you mean {meant}?")):
        function(linear, IMAGES, LABELS, **{name: 1})


@pytest.mark.parametrize("function", FUNCTIONS, ids=of)
def test_all_arguments_are_listed_and_nothing_else(function: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="has no setting 'zzz'") as caught:
        function(linear, IMAGES, LABELS, zzz=1)
    listed = str(caught.value).partition("It has ")[2].split(", ")
    named = [name for name in inspect.signature(function).parameters if name != "settings"]
    assert listed[: len(named)] == named
    for name in listed[len(named) :]:  # every one is taken: no other error says that there is no such setting
        with pytest.raises(InputError) as caught:
            function(linear, IMAGES, LABELS, **{name: object(), "zzz": 1})
        assert "has no setting 'zzz'" in str(caught.value)


def test_a_setting_of_attack_alone_is_refused_with_all_arguments_of_evaluate() -> None:
    with pytest.raises(
        InputError, match=r"all images count, .* It has model, images, labels, eps, attacks, white_box, "
    ):
        parsimon.evaluate(linear, IMAGES, LABELS, EPS, at_most=3)  # type: ignore[call-overload]

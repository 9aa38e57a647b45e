"""Differences between two models, held against counts by hand and a published interval."""

from __future__ import annotations

import numpy as np
import pytest

from parsimon.errors import InputError
from parsimon.results.diff import Diff, Difference, DiffRow, Standing, difference


def standing(text: str) -> Standing:
    """One letter per image: r robust, n not robust, ? unknown."""
    letters = np.array(list(text))
    return Standing(letters == "r", letters != "?")


def test_images_that_changed_are_counted_and_named() -> None:
    found = difference(standing("rrnnr"), standing("rnrnn"), range(5))
    assert found == Difference(5, 3, 2, worse=(1, 4), better=(2,))
    assert found.value == -1 / 5


def test_only_images_before_the_first_unknown_one_count() -> None:
    """The known images after it are misclassified ones alone, and would pull both accuracies down."""
    found = difference(standing("rrnr?nnnn"), standing("rnrrn?nnn"), range(9))
    assert (found.images, found.old, found.new) == (4, 3, 3)


def test_the_order_of_the_sample_decides_which_images_come_first() -> None:
    found = difference(standing("r?rn"), standing("nrrn"), [3, 2, 0, 1])
    assert (found.images, found.worse) == (3, (0,))


def test_two_runs_without_a_common_image_are_refused() -> None:
    with pytest.raises(InputError, match="same images"):
        difference(standing("?r"), standing("rr"), range(2))


def test_the_interval_is_as_published() -> None:
    # Fagerland, Lydersen and Laake, Statistical Analysis of Contingency Tables (2017), chapter 8: 59, 6, 16 and 80.
    found = Difference(161, old=59 + 16, new=59 + 6, worse=tuple(range(16)), better=tuple(range(16, 22)))
    assert found.interval == pytest.approx((-0.1186, -0.0046), abs=5e-5)
    assert found.value == pytest.approx(-10 / 161)


def test_the_p_value_is_that_of_a_fair_coin() -> None:
    found = Difference(20, old=10, new=5, worse=(0, 1, 2, 3, 4), better=())
    assert found.p == pytest.approx(2 / 2**5)


@pytest.mark.parametrize(("allowed", "passes"), [(0.02, True), (0.019, False)])
def test_the_allowed_loss_itself_passes(allowed: float, passes: bool) -> None:
    assert Difference(50, 30, 29, worse=(3,), better=()).passes(allowed) == passes


def test_the_lower_gate_compares_the_end_of_the_interval() -> None:
    same = Difference(50, 30, 30, worse=(), better=())
    assert same.passes(0.0)
    assert not same.passes(0.0, "lower")
    assert same.passes(-same.interval[0], "lower")


def test_an_unfinished_run_never_passes_and_says_so() -> None:
    diff = Diff("old", "new", (DiffRow("robust", "robust", 8 / 255, None),), unfinished=("new",))
    assert diff.failures(1.0) == ["new is unfinished"]
    assert "Unfinished: new" in diff.table().markdown()
    assert diff.as_dict()["differences"][0].keys() == {"old_model", "new_model", "eps"}


def test_a_failure_names_what_was_compared() -> None:
    diff = Diff("old", "new", (DiffRow("a", "b", 8 / 255, Difference(50, 30, 20, tuple(range(10)), ())),))
    (failure,) = diff.failures(0.02)
    assert "a -> b, 8/255" in failure
    assert "-20.0" in failure
    assert "a loss of at most 2 points is allowed" in failure
    (lower,) = diff.failures(0.02, "lower")
    assert "lower end" in lower


@pytest.mark.parametrize(("allowed", "words"), [(0.0, "0 points"), (0.07, "7 points"), (0.0025, "0.25 points")])
def test_the_allowed_loss_is_written_without_a_sign_and_never_rounded_to_nothing(allowed: float, words: str) -> None:
    diff = Diff("old", "new", (DiffRow("a", "a", 8 / 255, Difference(50, 30, 20, tuple(range(10)), ())),))
    (failure,) = diff.failures(allowed)
    assert failure.endswith(f"a loss of at most {words} is allowed")
    assert "-0.0" not in failure


def test_the_noise_of_verdicts_on_random_models_is_said_not_to_be_in_p() -> None:
    rows = (DiffRow("robust", "robust", 8 / 255, Difference(50, 30, 20, tuple(range(10)), ())),)
    plain, random = Diff("old", "new", rows), Diff("old", "new", rows, random=True)
    (note,) = set(random.table().notes) - set(plain.table().notes)
    assert "interval and p leave out the chance in the draws" in note
    assert (plain.as_dict()["random"], random.as_dict()["random"]) == (False, True)


def test_defences_are_in_the_title() -> None:
    rows = (DiffRow("robust", "robust", 8 / 255, None),)
    assert Diff("old", "new", rows).table().title == "old -> new"
    one = Diff("old", "new", rows, new_defence=("jpeg", "round"))
    assert one.table().title == "old without a defence -> new behind jpeg + round"
    assert (one.as_dict()["old_defence"], one.as_dict()["new_defence"]) == (None, ["jpeg", "round"])

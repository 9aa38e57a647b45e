"""Rounded probabilities against decimal arithmetic; the predicted class stays."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from parsimon.defences import RoundedScores
from parsimon.errors import InputError

LOGITS = arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(2, 12)), elements=st.floats(-40, 40, allow_subnormal=False)
)


@given(LOGITS, st.integers(1, 6))
def test_the_predicted_class_stays(logits: np.ndarray, decimals: int) -> None:
    before = logits.copy()
    shown = RoundedScores(decimals).transform(logits)
    np.testing.assert_array_equal(shown.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_array_equal(logits, before)
    steps = shown * 10**decimals
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
    assert np.abs(shown - softmax(logits, axis=1)).max() <= 1.5 * 10.0**-decimals + 1e-12


def test_probabilities_are_rounded_as_in_decimal_arithmetic() -> None:
    logits = np.random.default_rng(0).normal(0, 3, (200, 10))
    shown = RoundedScores(2).transform(logits)
    unit = Decimal("0.01")
    for row, result in zip(softmax(logits, axis=1), shown, strict=True):
        expected = [float(Decimal(float(value)).quantize(unit, ROUND_HALF_EVEN)) for value in row]
        best = int(np.argmax(row))
        if int(np.argmax(expected)) == best:
            assert result.tolist() == expected
        else:  # a tie that another class would win
            assert result[best] == pytest.approx(expected[best] + 0.01)
            assert np.delete(result, best).tolist() == np.delete(expected, best).tolist()


def test_a_tie_is_broken_in_favour_of_the_predicted_class() -> None:
    assert RoundedScores(2).transform(np.array([[1.0, 1.001, 1.0]])).tolist() == [[0.33, 0.34, 0.33]]
    assert RoundedScores(2).transform(np.array([[1.001, 1.0, 1.0]])).tolist() == [[0.33, 0.33, 0.33]]
    thousand = np.zeros((1, 1000))
    thousand[0, 500] = 1e-3
    shown = RoundedScores(2).transform(thousand)
    assert (shown[0, 500], shown.sum()) == (0.01, 0.01)


def test_small_changes_of_the_logits_cannot_be_seen() -> None:
    logits = np.array([[4.0, 1.0, 0.0]])
    moved = RoundedScores(2).transform(logits + np.array([[1e-3, 0, 0]]))
    np.testing.assert_array_equal(moved, RoundedScores(2).transform(logits))


@pytest.mark.parametrize("decimals", [0, 13, 2.0])
def test_an_invalid_number_of_decimals_is_refused(decimals: int) -> None:
    with pytest.raises(InputError, match="decimals must be a whole number"):
        RoundedScores(decimals)

"""AAA: the shown margin, the confidence by bisection, and a predicted class that never changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import softmax

from parsimon.defences import AAA
from parsimon.errors import InputError

Logits = NDArray[np.float64]
SHAPES = st.tuples(st.integers(1, 4), st.integers(2, 12))
# Whole numbers make ties, and margins at the ends of intervals.
ELEMENTS = st.one_of(st.floats(-60, 60, allow_subnormal=False), st.integers(-12, 12).map(float))
DEFENCES = st.builds(
    AAA,
    shape=st.sampled_from(["linear", "sine"]),
    tau=st.sampled_from([0.01, 0.5, 4.0, 6.0, 100.0]),
    alpha=st.one_of(st.none(), st.floats(0, 5)),
    temperature=st.sampled_from([0.1, 1.0, 2.08333]),
)
SETTINGS = [AAA(), AAA("sine"), AAA("linear", 4.0, 0.5, 2.0), AAA("sine", 3.0, 0.9, 0.5)]


def margins(logits: Logits) -> Logits:
    ranked = np.sort(logits, axis=1)
    return ranked[:, -1] - ranked[:, -2]


def slow_target(defence: AAA, margin: float) -> float:
    """The formulas of the paper for one margin."""
    alpha = defence.alpha if defence.alpha is not None else {"linear": 1.0, "sine": 0.7}[defence.shape]
    attractor = (math.floor(margin / defence.tau) + 1 / 2) * defence.tau
    if defence.shape == "linear":
        return attractor - alpha * (margin - attractor)
    wave = math.sin(math.pi * (1 - 2 * (margin - attractor) / defence.tau))
    return margin - alpha * defence.tau * wave


def slow_row(defence: AAA, row: Logits) -> Logits:
    """One row: the shift of the lower logits by root finding, within its limits."""
    first, second, *lower = sorted(range(len(row)), key=lambda each: (-row[each], each))
    target = max(slow_target(defence, row[first] - row[second]), 1e-4)
    wanted = softmax(row / defence.temperature)[first]

    def shown(shift: float) -> Logits:
        result = row.copy()
        result[first] = row[second] + target
        for each in lower:
            result[each] = min(row[each] - shift, row[second])
        return result

    def error(shift: float) -> float:
        return float(softmax(shown(shift))[first] - wanted)

    if error(-10) >= 0:
        return shown(-10)
    return shown(10) if error(10) <= 0 else shown(float(brentq(error, -10, 10, xtol=1e-13)))


@given(arrays(np.float64, SHAPES, elements=ELEMENTS), DEFENCES)
def test_the_predicted_class_never_changes(logits: Logits, defence: AAA) -> None:
    before = logits.copy()
    shown = defence.transform(logits)
    np.testing.assert_array_equal(shown.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_array_equal(shown.astype(np.float32).argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_array_equal(logits, before)
    assert np.isfinite(shown).all()


@given(arrays(np.float64, SHAPES, elements=ELEMENTS), DEFENCES)
def test_the_shown_margin_is_that_of_the_formula(logits: Logits, defence: AAA) -> None:
    shown = margins(defence.transform(logits))
    expected = [max(slow_target(defence, float(margin)), 1e-4) for margin in margins(logits)]
    np.testing.assert_allclose(shown, expected, atol=1e-9)


@pytest.mark.parametrize("defence", SETTINGS)
@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_logits_are_those_of_root_finding(defence: AAA, classes: int) -> None:
    logits = np.random.default_rng(classes).normal(0, 3, (200, classes))
    expected = np.stack([slow_row(defence, row) for row in logits])
    np.testing.assert_allclose(defence.transform(logits), expected, atol=1e-5)


@pytest.mark.parametrize("defence", SETTINGS)
def test_the_confidence_is_kept_where_the_margin_allows_it(defence: AAA) -> None:
    logits = np.random.default_rng(5).uniform(-4, 4, (2000, 10))  # no shift of more than 10 is needed
    wanted = softmax(logits / defence.temperature, axis=1).max(axis=1)
    shown = defence.transform(logits)
    confidence, margin = softmax(shown, axis=1).max(axis=1), margins(shown)
    lowest, highest = np.exp(margin) / (np.exp(margin) + 9), np.exp(margin) / (np.exp(margin) + 1)
    inside = (wanted > lowest + 1e-3) & (wanted < highest - 1e-3)
    assert inside.sum() > 40
    np.testing.assert_allclose(confidence[inside], wanted[inside], atol=1e-3)
    outside = np.clip(wanted, lowest, highest)
    np.testing.assert_allclose(confidence, outside, atol=2e-3)


def test_linear_reverses_every_interval_and_keeps_its_middle() -> None:
    margin = np.linspace(0.01, 5.99, 50)
    shown = AAA().target_margin(margin)
    assert (np.diff(shown) < 0).all()
    np.testing.assert_allclose(shown, 6 - margin)
    np.testing.assert_allclose(AAA().target_margin(margin + 12), 12 + 6 - margin)
    assert AAA().target_margin(np.array([3.0, 9.0])).tolist() == [3, 9]


def test_sine_falls_around_the_middle_of_every_interval() -> None:
    around = np.linspace(-0.6, 0.6, 20)
    for middle in (3, 9, 15):
        assert (np.diff(AAA("sine").target_margin(middle + around)) < 0).all()
    ends = np.array([0.0, 6.0, 12.0])
    np.testing.assert_allclose(AAA("sine").target_margin(ends), ends, atol=1e-12)


def test_a_greedy_attacker_of_the_margin_is_led_away() -> None:
    """Whoever lowers the shown margin raises the true one."""
    true = np.array([[4.0, 0.0, -1.0], [4.5, 0.0, -1.0], [5.0, 0.0, -1.0]])
    assert (np.diff(margins(true)) > 0).all()
    assert (np.diff(margins(AAA().transform(true))) < 0).all()


def test_infinite_and_huge_logits_pass() -> None:
    logits = np.array([[np.inf, 0, 1], [0, 1, -np.inf], [-np.inf, 3, -np.inf], [1e20, -1e20, 0], [5, 5, 5]])
    shown = AAA().transform(logits)
    assert not np.isnan(shown).any()
    assert shown.argmax(axis=1).tolist() == logits.argmax(axis=1).tolist()
    np.testing.assert_array_equal(shown[[0, 2]], logits[[0, 2]])  # no finite margin to change
    coarse = np.array([[2.0**54, 2.0**54 + 4]])  # the target margin of 2 is lost in the rounding of such numbers
    assert AAA().transform(coarse).argmax(axis=1).tolist() == [1]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"shape": "cosine"}, "shape must be one of linear, sine"),
        ({"tau": 0}, "tau must be a number"),
        ({"alpha": -1}, "alpha must be a number"),
        ({"temperature": 0}, "temperature must be a number"),
        ({"known": True, "shape": "sine"}, "known=true needs shape=linear and alpha=1"),
        ({"known": True, "alpha": 0}, "known=true needs shape=linear and alpha=1"),
        ({"known": True, "alpha": 0.5}, "known=true needs shape=linear and alpha=1"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        AAA(**settings)  # type: ignore[arg-type]

"""What random input has found, one test each; see `tests/fuzz`."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import parsimon
from parsimon import NES, Bandits, InputError, ModelError, Square
from parsimon.errors import check_number, first_line
from small_model import IMAGES, LABELS, Pixels, attack, linear

# --- models -----------------------------------------------------------------------------------------------------------


def test_scores_may_be_torch_tensors() -> None:  # numpy warned
    result = attack(lambda images: torch.from_numpy(linear(images)), attack=Square())
    assert result.outcomes == attack(attack=Square()).outcomes


@pytest.mark.parametrize("dtype", [np.float64, np.longdouble])
def test_scores_beyond_single_precision_are_refused(dtype: Any) -> None:  # numpy warned, and the search was misled
    with pytest.raises(ModelError, match=r"scores of at most 1e\+30"):
        attack(lambda images: linear(images).astype(dtype) * 1e300)
    scaled = attack(lambda images: linear(images).astype(dtype) * 1e25, attack=Square(), loss="margin")
    assert scaled.queries.tolist() == attack(attack=Square(), loss="margin").queries.tolist()


def test_half_precision_is_not_taken_for_large_scores() -> None:
    assert attack(lambda images: linear(images).astype(np.float16)).attacked.any()


def misbehaving(call: int) -> Any:
    """A model with a class more in one call."""
    calls = {"made": -1}

    def model(images: Pixels) -> Pixels:
        calls["made"] += 1
        scores = linear(images)
        return np.concatenate([scores, scores[:, :1]], axis=1) if calls["made"] == call else scores

    return model


def test_another_number_of_classes_in_the_second_call_is_a_sentence() -> None:  # a ValueError of numpy
    with pytest.raises(ModelError, match="the same number of classes in every call; it returned 10 before and 11 now"):
        attack(misbehaving(1))


def test_a_success_is_not_verified_by_scores_of_another_number_of_classes() -> None:  # it was
    calls = {"made": 0}

    def counting(images: Pixels) -> Pixels:
        calls["made"] += 1
        return linear(images)

    assert attack(counting, eps=0.3, attack=Square()).success.any()
    last = calls["made"] - 1  # the call that verifies the successes
    assert attack(misbehaving(last + 1), eps=0.3, attack=Square()).verification is not None
    assert attack(misbehaving(last), eps=0.3, attack=Square()).verification is None


@pytest.mark.parametrize("scores", ["logits", "probabilities"])
def test_a_success_is_what_the_model_itself_ranks_first(scores: Any) -> None:  # its rounded scores were ranked
    row = np.array([2**60, 2**60 + 1, 0])
    if scores == "probabilities":
        thirds = np.linspace(0.34, 0.36, 1000)
        third = thirds[np.log(thirds) == np.log(np.nextafter(thirds, 1))][0]
        row = np.array([third, np.nextafter(third, 1), 1 - 2 * third])
    settings = {"attack": Square(), "scores": scores, "budget": 5}
    result = attack(lambda images: np.stack([row] * len(images)), labels=[1] * len(IMAGES), **settings)
    assert result.attacked.all()
    assert not result.success.any()


def test_a_long_error_of_a_model_is_cut() -> None:
    assert len(first_line(ValueError("x" * 10_000))) < 250


# --- images and settings ----------------------------------------------------------------------------------------------


class Unreadable:
    """Images that cannot be read when they are asked for."""

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int) -> Pixels:
        if index == 3:
            raise OSError(5, "Input/output error")
        return np.asarray(IMAGES[index])


def test_an_image_that_cannot_be_read_is_a_sentence() -> None:  # the sequence's own error
    with pytest.raises(InputError, match=r"image 3 cannot be read: OSError: \[Errno 5\] Input/output error"):
        attack(images=Unreadable())


def test_a_lazy_sequence_can_be_gone_through_in_a_result() -> None:
    result = attack(images=list(IMAGES))
    np.testing.assert_array_equal(np.stack([*result.images]), IMAGES)


def test_a_radius_may_be_a_fraction() -> None:  # its table could not be written
    result = attack(eps=Fraction(1, 4))
    assert str(result) == str(attack(eps=0.25))
    assert result.outcomes == attack(eps=0.25).outcomes


@pytest.mark.parametrize("value", [np.float16(0.1), np.float32(0.1), np.longdouble(0.1), Fraction(1, 10)])
def test_a_setting_may_be_a_number_of_any_precision(value: Any) -> None:  # numpy warned
    check_number("step", value)
    check_number("step", value, 0, 1)
    assert parsimon.attack(linear, IMAGES, LABELS, 0.02, attack=NES(step=value), budget=20).attacked.all()


def test_settings_of_half_precision_are_not_multiplied_in_it() -> None:  # their product was 0
    small: Any = np.float16(1e-4)
    given = attack(attack=Bandits(probe=small, exploration=small))
    assert given.outcomes == attack(attack=Bandits(probe=float(small), exploration=float(small))).outcomes


@pytest.mark.parametrize("value", [10**400, Fraction(10**400)])
def test_a_number_beyond_all_floats_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="step must be a number from"):
        check_number("step", value)

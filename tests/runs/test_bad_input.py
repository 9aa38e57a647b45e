"""Absurd input to the Python functions: each is refused with one short sentence before the model is queried."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import parsimon
from parsimon import (
    ADBA,
    NES,
    PGD,
    Bandits,
    HopSkipJump,
    InputError,
    Parsimonious,
    RandomCorners,
    Scatter,
    SignFlip,
    SimBA,
    Square,
    Thrift,
)
from parsimon.attacks.registry import parse_attack
from parsimon.core.model import Model
from parsimon.core.parsing import parse_number
from parsimon.data import open_data
from parsimon.errors import ParsimonError, quote
from parsimon.runs.classify import classify
from parsimon.runs.config import RunConfig
from small_model import IMAGES, LABELS, linear

HUGE = 10**5000  # Python itself refuses to print it
ARRAY = np.array([1, 2])
LONG = "x" * 100_000


class Unprintable:
    """An object whose own description fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


def sentence_of(function: Callable[[], Any], kind: type[ParsimonError] = InputError) -> str:
    """The sentence with which the function refuses its input."""
    with pytest.raises(kind) as caught:
        function()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 1000
    return sentence


def attack(**settings: Any) -> Any:
    arguments = {"model": linear, "images": IMAGES, "labels": LABELS, "eps": 0.02, "budget": 20, **settings}
    return parsimon.attack(**arguments)


def label(value: object) -> str:
    """Name a case; without addresses in memory, which differ from process to process."""
    return quote(value).partition(" at 0x")[0][:30]


# --- settings of a run -----------------------------------------------------------------------------------------------

NO_NUMBERS: tuple[object, ...] = (True, 1.5, math.nan, "2", ARRAY, np.array(1), Unprintable(), [1])
SETTINGS: dict[str, tuple[object, ...]] = {
    "budget": (*NO_NUMBERS, None, 0, -1, 2**63, HUGE, np.True_),
    "seed": (*NO_NUMBERS, None, -1, 2**63, HUGE),
    "at_most": (*NO_NUMBERS, 0, -1, 2**63, HUGE),
    "sample": (*NO_NUMBERS, -1, 2**63, HUGE),
    "batch_size": (*NO_NUMBERS, 0, -1, 2**16 + 1, HUGE),
    "in_flight": (*NO_NUMBERS, 0, -1, 2**20 + 1, HUGE),
    "workers": (*NO_NUMBERS, 0, -1, 99_999, HUGE),
    "eps": (True, 0, -1, 1.5, math.nan, math.inf, "x", None, np.array([0.1]), 1j, Unprintable(), HUGE),
    "loss": (0, "", "hinge", "Margin", ARRAY, True, Unprintable(), LONG),
    "scores": (0, "", "softmax", ARRAY, True, Unprintable(), LONG),
    "eight_bit": ("no", 0, 1, None, ARRAY, Unprintable()),
    "progress": ("yes", 0, 1, ARRAY),
    "verify": ("yes", 0, None, ARRAY),
    "watch": (3, "print", ARRAY),
    "ray": (5, "", True, ARRAY, b"local"),
    "targets": (object(), "any", "", 3, True, {"cat": 1}, Unprintable(), LONG, ["next"] * 6, [0.5] * 6),
    "attack": (object(), "", LONG, 3, Thrift, ["nes"], ARRAY, Unprintable(), "nes\0"),
    "model": (None, 3, "", ARRAY, [linear], LONG, "a\0b", "http://[::1", "ftp://x", Unprintable()),
    "images": (None, 3, "images", {}, [], object(), IMAGES[0], np.empty((0, 3, 8, 8), np.float32)),
    "labels": (None, "true", 3, [LONG] * 6, [[0]] * 6, [True] * 6, [0.5] * 6, [2**80] * 6, object()),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in SETTINGS.items() for value in values], ids=label
)
def test_a_setting_that_cannot_be_used_is_refused_with_its_name(name: str, value: object) -> None:
    sentence = sentence_of(lambda: attack(**{name: value}))
    assert name.split("_")[0] in sentence or name in ("model", "attack")


def test_the_largest_settings_are_accepted() -> None:
    result = attack(budget=20, seed=2**63 - 1, sample=2**63 - 1, batch_size=2**16, in_flight=2**20, at_most=2**63 - 1)
    assert result.attacked.sum() == len(IMAGES)
    assert attack(budget=np.int64(20)).queries.tolist() == attack().queries.tolist()


def test_a_batch_that_no_memory_can_hold_is_refused_before_it_is_made() -> None:
    class Fixed(Model):
        fixed_batch = True

        def __call__(self, images: Any) -> Any:
            raise AssertionError(f"{len(images)} images are refused before the call")

    pixels = np.broadcast_to(np.float32(0), (1, 3, 20_000, 20_000))  # a single number in memory
    sentence = sentence_of(lambda: classify(Fixed(), pixels, 2**16))
    assert sentence.startswith("a batch of 65,536 images takes 292,968.8 GiB, and this machine has ")


@pytest.mark.parametrize("name", ["open_store", "survivors_only", "budgt", "bugdet", "x" * 500, "images_"])
def test_an_unknown_setting_is_answered_with_the_known_ones(name: str) -> None:
    functions: dict[str, Callable[[], Any]] = {
        "attack": lambda: attack(**{name: 3}),
        "compare": lambda: parsimon.compare(linear, IMAGES, LABELS, 0.02, ["nes"], **{name: 3}),  # type: ignore[arg-type]
        "evaluate": lambda: parsimon.evaluate(linear, IMAGES, LABELS, 0.02, **{name: 3}),  # type: ignore[call-overload]
    }
    for function, call in functions.items():
        sentence = sentence_of(call)
        assert sentence.startswith(f"{function} has no setting {quote(name)}")
        assert ("did you mean budget?" in sentence) == (name in ("budgt", "bugdet"))
        known = sentence.partition("It has ")[2].split(", ")
        assert {"images", "eps", "budget", "scores", "loss"} <= set(known)
        assert "open_store, " not in sentence
        assert "survivors_only, " not in sentence


def test_a_comparison_needs_attacks() -> None:
    sentence_of(lambda: parsimon.compare(linear, IMAGES, LABELS, 0.02, None))  # type: ignore[arg-type]


@pytest.mark.parametrize("attacks", [3, "nes", NES(), [], {}, [3], {"a": 3}, b"nes", ["nes", "nes"], ARRAY])
def test_attacks_that_are_no_list_of_attacks_are_refused(attacks: Any) -> None:
    sentence_of(lambda: parsimon.compare(linear, IMAGES, LABELS, 0.02, attacks))
    sentence_of(lambda: parsimon.evaluate(linear, IMAGES, LABELS, 0.02, attacks=attacks))


@pytest.mark.parametrize("name", [3, "", "nesty", LONG, ARRAY])
def test_a_row_that_is_not_there_is_refused(name: Any) -> None:
    sentence = sentence_of(lambda: parsimon.compare(linear, IMAGES, LABELS, 0.02, ["nes"], relative_to=name))
    assert sentence.startswith("relative_to must be one of NES; got ")


# --- settings of attacks ---------------------------------------------------------------------------------------------

WHOLE = (0, -1, 1.5, math.nan, math.inf, True, "2", None, ARRAY, 10**30, HUGE, 2**31)
NUMBER = (-1, math.nan, math.inf, -math.inf, True, "2", None, ARRAY, 1e300, HUGE)
POSITIVE = (0, 1e-300, *NUMBER)
FLAG = ("no", 0, 1, None, ARRAY, math.nan)
WORD = ("", "other", 0, None, ARRAY, True, LONG)
BLOCK = (0, -2, 1.5, math.nan, True, "4", ARRAY, 2**70, HUGE)
NOISE = (0, "8x8", (8,), (8, 8, 8), (0, 0), (0, 8), (8, -8), (8.0, 8), (True, 8), [8, 8], (2**70, 8), ARRAY)
ATTACKS: dict[type[parsimon.Attack], dict[str, tuple[object, ...]]] = {
    Parsimonious: {
        "behaviour": WORD,
        "block": BLOCK,
        "noise": NOISE,
        "mini_batch": WHOLE,
        "max_iterations": WHOLE,
        "greedy": WORD,
        "delete_zero": FLAG,
    },
    Bandits: {
        **dict.fromkeys(("online_step", "step", "exploration", "probe"), POSITIVE),
        "tile": WHOLE,
        "strict": FLAG,
    },
    NES: {
        "samples": (*WHOLE, 3),
        **dict.fromkeys(("sigma", "step"), POSITIVE),
        "momentum": (-0.1, 1, *NUMBER),
        **dict.fromkeys(("by_length", "anneal", "strict"), FLAG),
    },
    PGD: {"steps": WHOLE, "step": POSITIVE, "random_start": FLAG, "restarts": WHOLE},
    RandomCorners: {"block": BLOCK},
    Scatter: {"block": BLOCK, "limit": (-0.1, 1.1, *NUMBER)},
    SimBA: {"basis": WORD, "step": POSITIVE, "frequencies": (*POSITIVE, 1.1)},
    Square: {"p_init": (*POSITIVE, 1.1)},
    Thrift: dict.fromkeys(("contrast", "texture", "deduce", "rank", "combine"), FLAG),
    ADBA: {"next_radius": WORD},
    HopSkipJump: {"probes": WHOLE, "gamma": POSITIVE},
    SignFlip: {"alpha": (*POSITIVE, 1.1), "flip": (*POSITIVE, 0.02), "resize": (*POSITIVE, 0.9)},
}


def test_every_setting_of_every_attack_is_in_the_table() -> None:
    for kind in parsimon.attacks.ATTACKS.values():
        assert set(ATTACKS.get(kind, {})) == {field.name for field in fields(kind)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(kind, name, value) for kind, names in ATTACKS.items() for name, values in names.items() for value in values],
    ids=label,
)
def test_a_setting_of_an_attack_is_checked_for_type_and_range(
    kind: type[parsimon.Attack], name: str, value: object
) -> None:
    if value is None and name == "block":
        pytest.skip("it has a default of its own")
    assert name in sentence_of(lambda: kind(**{name: value}))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nes,samples=1000000000000000000000000000000", "samples"),
        ("nes,samples=" + "9" * 5000, "samples"),
        ("nes,samples=0", "samples"),
        ("square,p_init=nan", "p_init"),
        ("square,p_init=inf", "p_init"),
        ("square,p_init=1e99999999", "p_init"),
        ("square,p_init=1e-99999999", "p_init"),
        ("square,p_init=1E+9_9_9_9_9_9_9_9", "p_init"),
        ("square,p_init=1/0", "p_init"),
        ("square,p_init=" + "9" * 100_000, "p_init"),
        ("parsimonious,block=1180591620717411303424", "block"),
        ("parsimonious,noise=0x0", "noise"),
        ("parsimonious,noise=8x-8", "noise"),
        ("pgd,steps=1e9", "steps"),
        ("pgd,steps=99999999999", "steps"),
        ("pgd," + LONG, "settings of pgd"),
        (LONG, "there is no attack"),
        ("nes:" + LONG, "presets"),
        ("\0", "there is no attack"),
    ],
    ids=label,
)
def test_an_attack_typed_with_absurd_settings_is_refused(text: str, word: str) -> None:
    assert word in sentence_of(lambda: parse_attack(text))


# --- numbers and names as they are typed -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["8/255", "0.03", "1e-3", " 1/3 ", "2", "1e999", "-1/7", ".5", "1_000"])
def test_a_typed_number_is_the_fraction_that_it_says(text: str) -> None:
    try:
        expected = float(Fraction(text))
    except OverflowError:
        with pytest.raises(ValueError, match="too large"):
            parse_number(text)
    else:
        assert parse_number(text) == expected


@pytest.mark.parametrize("text", ["1e99999999", "1e-99999999", "1e9_9_9_9", "1/1e5", "nan", "", "x", "9" * 5000, "1/0"])
def test_a_number_that_no_machine_can_hold_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_number(text)
    assert "eps must be a number or a fraction" in sentence_of(lambda: RunConfig(eps=text))


@pytest.mark.parametrize(
    "text",
    ["", "\0", "a\0.npz", "folder:a\0", "named:\0", "imagenet:\0", "imagenet:x:\0", "cifar10:\0", "~\0", LONG]
    + [form + LONG for form in ("folder:", "named:", "imagenet:", "cifar10:", "~/")],
    ids=label,
)
def test_the_name_of_data_may_be_anything(text: str) -> None:
    sentence_of(lambda: open_data(text))

"""Attacks by name: `name:preset,key=value`."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from parsimon import InputError, Parsimonious
from parsimon.attacks import (
    ADBA,
    ATTACKS,
    NES,
    PGD,
    Bandits,
    Haggle,
    HopSkipJump,
    RandomCorners,
    RayS,
    Scatter,
    SignFlip,
    SignHunter,
    SimBA,
    Square,
    Thrift,
)
from parsimon.attacks.registry import attack_rows, parse_attack, split_settings
from parsimon.core.types import Attack

NAMES = [
    *("parsimonious", "thrift", "bandits", "nes", "square", "signhunter", "simba", "random"),
    *("scatter", "pgd"),
    *("haggle", "rays", "signflip", "hopskipjump", "adba"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parsimonious", Parsimonious()),
        ("thrift", Thrift()),
        ("thrift,texture=false,deduce=false", Thrift(texture=False, deduce=False)),
        ("bandits", Bandits()),
        ("nes", NES()),
        ("square", Square()),
        ("signhunter", SignHunter()),
        ("simba", SimBA()),
        ("random", RandomCorners()),
        ("scatter,limit=0.5", Scatter(limit=0.5)),
        ("pgd", PGD()),
        ("haggle", Haggle()),
        ("rays", RayS()),
        ("signflip", SignFlip()),
        ("signflip:imagenet", SignFlip(resize=2.0)),
        ("hopskipjump,gamma=30", HopSkipJump(gamma=30)),
        ("adba", ADBA("median")),
        ("adba,next_radius=middle", ADBA("middle")),
        ("nes:cifar10,strict=true", NES(strict=True)),
        ("nes:imagenet-0.05,strict=false", NES(sigma=0.1, by_length=True, momentum=0.0, anneal=False)),
        ("bandits:imagenet-0.05", Bandits(100.0, 0.01, 1.0, 0.1, 50)),
        ("bandits:imagenet-0.05,tile=25", Bandits(100.0, 0.01, 1.0, 0.1, 25)),
        ("square,p_init=0.3", Square(0.3)),
        ("square:imagenet,p_init=0.3", Square(0.3)),
        ("parsimonious,noise=256x256,block=32", Parsimonious(block=32, noise=(256, 256))),
        ("parsimonious:imagenet", Parsimonious(block=32)),
        ("parsimonious:imagenet,noise=none,block=none", Parsimonious()),
        ("parsimonious,noise=128x64", Parsimonious(noise=(128, 64))),
        ("parsimonious,behaviour=published,delete_zero=false", Parsimonious("published", delete_zero=False)),
        ("pgd,step=2/255", PGD(step=2 / 255)),
        ("pgd,step=1e-3,steps=7", PGD(7, 0.001)),
        ("pgd, step = 1/255 , random_start = false", PGD(step=1 / 255, random_start=False)),
        ("simba,basis=pixel", SimBA("pixel")),
        ("random,block=2", RandomCorners(2)),
    ],
)
def test_what_is_typed_is_the_attack(text: str, expected: Attack) -> None:
    assert parse_attack(text) == expected


def test_values_have_the_type_of_their_setting() -> None:
    attack = parse_attack("pgd,steps=3,step=1,random_start=false")
    assert isinstance(attack, PGD)
    assert [type(value) for value in (attack.steps, attack.step, attack.random_start)] == [int, float, bool]


def test_every_attack_has_a_name() -> None:
    assert list(ATTACKS) == NAMES


def typed(name: str, attack: Attack) -> str:
    """An attack with all of its settings, as a person would type it."""

    def value(setting: Any) -> str:
        if isinstance(setting, tuple):
            return "x".join(map(str, setting))
        return str(setting).lower() if isinstance(setting, bool | None) else str(setting)

    settings = {each.name: getattr(attack, each.name) for each in fields(attack)}  # type: ignore[arg-type]
    return ",".join([name, *(f"{key}={value(setting)}" for key, setting in settings.items())])


@pytest.mark.parametrize(
    ("name", "preset"), [(name, preset) for name, attack in ATTACKS.items() for preset in ["", *attack.presets]]
)
def test_every_preset_can_be_typed_out(name: str, preset: str) -> None:
    attack = parse_attack(f"{name}:{preset}" if preset else name)
    assert attack == (ATTACKS[name].preset(preset) if preset else ATTACKS[name]())
    assert parse_attack(typed(name, attack)) == attack


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ness", ": did you mean nes?"),
        ("NES", ": did you mean nes?"),
        ("parsimonius:cifar10", ": did you mean parsimonious?"),
        ("sqaure,p_init=0.3", ": did you mean square?"),
        ("nes strict=true", "."),
        ("", "."),
        (",strict=true", "."),
        (":cifar10", "."),
    ],
)
def test_an_unknown_attack_is_answered_with_the_closest_name_and_all_names(text: str, hint: str) -> None:
    name = text.split(",")[0].split(":")[0]
    sentence = f"there is no attack {name!r}{hint} The attacks are {', '.join(NAMES)}"
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        parse_attack(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "nes:cifar",
            "NES has no preset 'cifar': did you mean cifar10? Its presets are cifar10, imagenet-0.05, imagenet-0.03",
        ),
        (
            "square:robust,p_init=0.3",
            "Square has no preset 'robust'. Its presets are cifar10, imagenet, imagenet-targeted",
        ),
        ("random:cifar10", "RandomCorners has no preset 'cifar10'. Its presets are (none)"),
        ("signhunter:cifar10", "SignHunter has no preset 'cifar10'. Its presets are (none)"),
    ],
)
def test_an_unknown_preset_is_answered_with_the_presets(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}"):
        parse_attack(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("square,size=3", "square has no setting 'size'. Its settings are p_init"),
        ("square:cifar10,pinit=0.3", "square has no setting 'pinit': did you mean p_init? Its settings are p_init"),
        ("pgd,lr=1", "pgd has no setting 'lr'. Its settings are steps, step, random_start, restarts"),
        ("pgd,restart=1", "pgd has no setting 'restart': did you mean restarts? Its settings are steps, step, "),
        ("simba,r=1", "simba has no setting 'r'. Its settings are basis, step, frequencies"),
        ("random,blocks=2", "random has no setting 'blocks': did you mean block? Its settings are block"),
        ("nes,share=0.3", "nes has no setting 'share'. Its settings are samples, "),
        ("signhunter,step=1", "signhunter has no setting 'step'. Its settings are (none)"),
    ],
)
def test_an_unknown_setting_is_answered_with_the_settings(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}"):
        parse_attack(text)


@pytest.mark.parametrize(("text", "got"), [("square,p_init", "p_init"), ("square,", ""), ("square,0.3", "0.3")])
def test_a_setting_without_a_value_is_answered_with_the_form(text: str, got: str) -> None:
    sentence = f"the settings of square are written as key=value; got {got!r}"
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        parse_attack(text)


def test_the_name_of_a_setting_in_version_02_is_still_read() -> None:
    assert parse_attack("square,share=0.3") == Square(p_init=0.3)
    assert list(attack_rows(["square:imagenet,share=0.3"])) == ["Square:imagenet,share=0.3"]  # as the run is stored
    with pytest.raises(InputError, match="p_init is set twice in 'square,share="):
        parse_attack("square,share=0.3,p_init=0.3")


def test_settings_of_an_attack_and_of_its_run_are_told_apart() -> None:
    given = {"preset": "imagenet-0.05", "budget": 50, "tile": 25}
    attack, run_settings = split_settings(Bandits, given, ["budget", "seed"])
    assert attack == Bandits.preset("imagenet-0.05", tile=25)
    assert run_settings == {"budget": 50}
    assert split_settings(NES, {}, ["budget"]) == (NES(), {})
    sentence = "Square has no setting 'bugdet': did you mean budget? It has p_init, preset, budget, seed"
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        split_settings(Square, {"bugdet": 3}, ["budget", "seed"])


@pytest.mark.parametrize("text", ["nes,presets=1", "pgd,white_box=false", "square,p_init=0.3,presets=none"])
def test_what_is_the_same_for_every_attack_of_its_kind_is_no_setting(text: str) -> None:
    with pytest.raises(InputError, match="has no setting"):
        parse_attack(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nes,samples=many", "samples of nes must be a whole number; got 'many'"),
        ("nes,samples=1e2", "samples of nes must be a whole number; got '1e2'"),
        ("nes,samples=", "samples of nes must be a whole number; got ''"),
        ("nes,strict=yes", "strict of nes must be true or false; got 'yes'"),
        ("nes,samples=none", "samples of nes must be a whole number; got 'none'"),
        ("square,p_init=big", "p_init of square must be a number; got 'big'"),
        ("square,p_init=nan", "p_init of square must be a number; got 'nan'"),
        ("pgd,step=2/0", "step of pgd must be a number; got '2/0'"),
        ("parsimonious,block=four", "block of parsimonious must be a whole number or none; got 'four'"),
        ("parsimonious,noise=axb", "noise of parsimonious must be ROWSxCOLUMNS or none; got 'axb'"),
        ("parsimonious,noise=256", "noise of parsimonious must be ROWSxCOLUMNS or none; got '256'"),
        ("parsimonious,noise=8x8x8", "noise of parsimonious must be ROWSxCOLUMNS or none; got '8x8x8'"),
    ],
)
def test_a_bad_value_is_answered_with_its_type(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        parse_attack(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("simba,basis=wavelet", "basis must be one of pixel, dct; got 'wavelet'"),
        ("parsimonious,behaviour=fast", "behaviour must be one of paper, published; got 'fast'"),
        ("parsimonious,block=3", "block must be a power of two"),
        ("nes,samples=3", "samples come in pairs"),
        ("pgd:cifar10,restarts=0", "restarts must be a whole number, at least 1"),
    ],
)
def test_a_value_that_the_attack_refuses_is_refused_in_its_words(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        parse_attack(text)

"""What `parsimon attacks` says about an attack is what the attack does."""

from __future__ import annotations

import re

import pytest

from parsimon.attacks import ATTACKS
from parsimon.attacks.describe import describe
from parsimon.attacks.registry import parse_attack
from parsimon.errors import InputError


@pytest.mark.parametrize("name", ATTACKS)
def test_every_setting_has_a_meaning_and_a_default_that_can_be_typed(name: str) -> None:
    settings = describe(name)["settings"]
    assert all(each["meaning"].endswith(".") for each in settings)
    for each in settings:
        typed = parse_attack(f"{name},{each['name']}={each['default']}")
        default = getattr(ATTACKS[name](), each["name"])
        value = getattr(typed, each["name"])
        assert value == (pytest.approx(default, rel=1e-5) if isinstance(default, float) else default)


@pytest.mark.parametrize("name", ATTACKS)
def test_the_typed_settings_of_a_preset_are_the_preset(name: str) -> None:
    for preset, settings in describe(name)["presets"].items():
        typed = ",".join([name, *(f"{key}={value}" for key, value in settings.items())])
        assert parse_attack(typed) == parse_attack(f"{name}:{preset}")


@pytest.mark.parametrize("name", ATTACKS)
def test_a_paper_is_the_one_that_the_file_of_the_attack_starts_with(name: str) -> None:
    paper = describe(name)["paper"]
    attack = ATTACKS[name]
    if paper is None:
        assert name in ("thrift", "haggle", "random", "scatter")
        return
    text = " ".join((__import__(attack.__module__, fromlist=["_"]).__doc__ or "").split())
    assert f"*{paper['title']}*" in text
    assert str(paper["year"]) in text
    homes = r"arxiv\.org/abs/\d{4}\.\d{5}|openreview\.net/forum\?id=\w+|www\.ecva\.net/papers/[\w/]+\.pdf"
    assert re.fullmatch(rf"https://({homes})", paper["link"])
    assert paper["authors"].split(",")[0].split()[0] in text


def test_only_white_box_attacks_need_gradients() -> None:
    assert {name for name in ATTACKS if describe(name)["needs"] == "gradient"} == {"pgd"}


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean square"):
        describe("squre")

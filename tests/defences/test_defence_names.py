"""Defences by name, their papers and presets, and the order of several."""

from __future__ import annotations

import importlib
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from parsimon.defences import (
    AAA,
    DEFENCES,
    BitDepth,
    Blacklight,
    Defence,
    InputNoise,
    Jpeg,
    ResizePad,
    RoundedScores,
    defended,
    parse_defence,
)
from parsimon.defences.base import InputDefence, ScoreDefence
from parsimon.defences.registry import as_texts, describe, format_defence
from parsimon.errors import InputError
from parsimon.models import FunctionModel

NAMES = ["noise", "resize-pad", "jpeg", "bit-depth", "round", "aaa", "blacklight"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("noise", InputNoise()),
        ("noise:robust", InputNoise(0.05)),
        ("noise,sigma=1/50", InputNoise(0.02)),
        ("resize-pad:competition", ResizePad(310 / 331)),
        ("jpeg, quality = 50", Jpeg(50)),
        ("bit-depth:mnist", BitDepth(1)),
        ("round,decimals=4", RoundedScores(4)),
        ("aaa", AAA()),
        ("aaa,shape=sine,alpha=none,tau=4", AAA("sine", 4.0)),
        ("aaa:cifar10-sine,temperature=1", AAA("sine", 6.0, 0.7, 1.0)),
        ("blacklight:imagenet,threshold=30", Blacklight(window=50, threshold=30)),
    ],
)
def test_what_is_typed_is_the_defence(text: str, expected: Defence) -> None:
    assert parse_defence(text) == expected


def test_every_defence_has_a_name() -> None:
    assert list(DEFENCES) == NAMES


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nois", f"there is no defence 'nois': did you mean noise? The defences are {', '.join(NAMES)}"),
        ("", f"there is no defence ''. The defences are {', '.join(NAMES)}"),
        ("jpeg:cifar10", "Jpeg has no preset 'cifar10'. Its presets are imagenet"),
        ("noise,sigm=1", "noise has no setting 'sigm': did you mean sigma? Its settings are sigma"),
        ("noise,0.1", "the settings of noise are written as key=value; got '0.1'"),
        ("noise,sigma=a", "sigma of noise must be a number; got 'a'"),
        ("aaa,tau=1,tau=2", "tau is set twice in 'aaa,tau=1,tau=2'"),
        ("jpeg,quality=200", "quality must be a whole number, at most 100; got 200"),
    ],
)
def test_mistakes_are_answered_as_for_attacks(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        parse_defence(text)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_a_meaning_and_a_default_that_can_be_typed(name: str) -> None:
    about = describe(name)
    assert [each["name"] for each in about["settings"]] == [each.name for each in fields(DEFENCES[name])]  # type: ignore[arg-type]
    for each in about["settings"]:
        assert each["meaning"].endswith(".")
        typed = getattr(parse_defence(f"{name},{each['name']}={each['default']}"), each["name"])
        default = getattr(DEFENCES[name](), each["name"])
        assert typed == (pytest.approx(default, rel=1e-5) if isinstance(default, float) else default)


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_can_be_typed_out(name: str) -> None:
    presets = describe(name)["presets"]
    assert presets
    for preset, settings in presets.items():
        typed = parse_defence(",".join([name, *(f"{key}={value}" for key, value in settings.items())]))
        expected = parse_defence(f"{name}:{preset}")
        for each in fields(expected):  # type: ignore[arg-type]
            value = getattr(expected, each.name)
            assert getattr(typed, each.name) == (pytest.approx(value, rel=1e-5) if isinstance(value, float) else value)


@pytest.mark.parametrize(
    ("defence", "text"),
    [
        (InputNoise(), "noise"),
        (InputNoise(1 / 30), f"noise,sigma={1 / 30}"),
        (InputNoise(1e-7), "noise,sigma=1e-07"),
        (InputNoise(np.float32(0.02)), f"noise,sigma={float(np.float32(0.02))}"),  # type: ignore[arg-type]
        (AAA("sine", 4, known=False), "aaa,shape=sine,tau=4"),
        (AAA(known=True, alpha=1.0), "aaa,alpha=1.0,known=true"),
        (Blacklight.preset("imagenet"), "blacklight,window=50"),
    ],
)
def test_an_object_has_a_text_that_is_read_as_its_equal(defence: Defence, text: str) -> None:
    assert format_defence(defence) == text
    assert parse_defence(text) == defence


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_has_a_text(name: str) -> None:
    for preset in describe(name)["presets"]:
        made = parse_defence(f"{name}:{preset}")
        assert parse_defence(format_defence(made)) == made


def test_names_and_objects_become_texts() -> None:
    assert as_texts("jpeg") == as_texts(Jpeg()) == as_texts(["jpeg"]) == as_texts((Jpeg(),)) == ("jpeg",)
    assert as_texts([Jpeg(50), "aaa:cifar10"]) == ("jpeg,quality=50", "aaa:cifar10")
    for wrong in (3, [3], {"jpeg"}, Jpeg):
        with pytest.raises(InputError, match=r"defence must be a name such as 'noise,sigma=0\.02', or a list of names"):
            as_texts(wrong)
    with pytest.raises(InputError, match=r"Recording has no name .*protect\(as_model\(model\)\)"):
        as_texts(recording(InputDefence, "own", [], 1.0))


@pytest.mark.parametrize("name", NAMES)
def test_a_paper_is_the_one_that_the_file_of_the_defence_starts_with(name: str) -> None:
    about = describe(name)
    paper = about["paper"]
    text = " ".join((importlib.import_module(DEFENCES[name].__module__).__doc__ or "").split())
    assert f"{paper['authors']}, *{paper['title']}*" in text
    assert f"{paper['year']})" in text
    assert re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{5}", paper["link"])


def test_descriptions_say_what_changes_and_at_random() -> None:
    about = {name: describe(name) for name in NAMES}
    assert [each["changes"] for each in about.values()] == ["images"] * 4 + ["scores"] * 2 + ["nothing"]
    assert [name for name in NAMES if about[name]["random"]] == ["noise", "resize-pad"]
    assert all(each["summary"].endswith(".") for each in about.values())
    with pytest.raises(InputError, match="did you mean jpeg"):
        describe("jpg")


def test_a_defence_declares_what_it_is_and_nothing_else_needs_to_know() -> None:
    """A new defence is its file and a line in DEFENCES."""
    texts = {
        name: Path(importlib.import_module(kind.__module__).__file__ or "").stem for name, kind in DEFENCES.items()
    }
    classes = {kind.__name__ for kind in DEFENCES.values()}
    package = Path(importlib.import_module("parsimon").__file__ or "").parent
    own = {package / "defences" / f"{module}.py" for module in [*texts.values(), "registry", "__init__"]}
    for path in sorted({*package.rglob("*.py")} - own):
        imported = re.findall(r"from parsimon\.defences[\w.]* import ([^\n(]+)", path.read_text())
        assert not classes & set(re.findall(r"\w+", " ".join(imported))), path


def test_what_can_be_undone_is_a_defence_too() -> None:
    assert AAA().undone() == AAA(known=True)
    assert AAA(known=True).undone() is AAA("sine").undone() is AAA(alpha=0.5).undone() is None
    assert [name for name in NAMES if DEFENCES[name]().undone()] == ["aaa"]


@pytest.mark.parametrize("name", NAMES)
def test_a_defence_is_frozen(name: str) -> None:
    defence = DEFENCES[name]()
    with pytest.raises(FrozenInstanceError):
        setattr(defence, fields(defence)[0].name, 1)  # type: ignore[arg-type]


def recording(kind: type[Any], label: str, log: list[str], change: float) -> Any:
    """A defence that adds a number and notes its turn."""

    class Recording(kind):  # type: ignore[misc]
        def transform(self, values: NDArray[Any], *_: Any) -> NDArray[Any]:
            log.append(label)
            return np.asarray(values * 2 + values.dtype.type(change))

    return Recording()


def test_a_query_passes_the_defences_in_the_order_of_the_list() -> None:
    log: list[str] = []

    def function(images: NDArray[np.float32]) -> NDArray[np.float32]:
        log.append("model")
        return np.concatenate([images.reshape(len(images), -1), -images.reshape(len(images), -1)], axis=1)

    defences = [
        recording(ScoreDefence, "outer scores", log, 1.0),
        recording(InputDefence, "outer images", log, 1.0),
        recording(InputDefence, "inner images", log, 3.0),
        recording(ScoreDefence, "inner scores", log, 3.0),
    ]
    model = FunctionModel(function)
    model.returns = "logits"
    shown = defended(model, defences)(np.full((1, 1, 1, 1), 0.5, np.float32))
    assert log == ["outer images", "inner images", "model", "inner scores", "outer scores"]
    image = (0.5 * 2 + 1) * 2 + 3
    assert shown.tolist() == [[(image * 2 + 3) * 2 + 1, (-image * 2 + 3) * 2 + 1]]


def test_no_defence_leaves_the_model() -> None:
    model = FunctionModel(lambda images: images)
    assert defended(model, []) is model


@pytest.mark.parametrize("defences", ["noise", InputNoise(), 3])
def test_anything_but_a_list_is_refused(defences: Any) -> None:
    with pytest.raises(InputError, match="defences must be a list of defences or names; got"):
        defended(FunctionModel(lambda images: images), defences)


def test_anything_but_a_defence_is_refused() -> None:
    with pytest.raises(InputError, match="a defence must be an instance of"):
        defended(FunctionModel(lambda images: images), [3])  # type: ignore[list-item]


def test_two_detectors_are_refused() -> None:
    model = FunctionModel(lambda images: images)
    with pytest.raises(InputError, match="only one stateful defence"):
        defended(model, ["blacklight", "blacklight"])
    with pytest.raises(InputError, match="only one stateful defence"):
        defended(defended(model, ["noise", "blacklight"]), ["blacklight"])

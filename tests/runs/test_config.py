"""A run, described: files, hashes, differences, and sentences for what cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsimon import InputError, Square
from parsimon.core.engine import Engine
from parsimon.core.threat import Threat
from parsimon.models import as_model
from parsimon.runs.config import RunConfig
from small_model import linear

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
specs = st.builds(
    RunConfig,
    attacks=st.lists(texts, min_size=1, max_size=3).map(tuple),
    model=texts,
    data=texts,
    images=st.integers(1, 10**6) | st.just("all"),
    eps=st.sampled_from(["8/255", "0.05", "1"]),
    budget=st.integers(1, 10**6),
    targets=st.none() | st.sampled_from(["next", "random"]),
    loss=st.sampled_from([None, "margin", "cross-entropy"]),
    scores=st.sampled_from(["logits", "probabilities"]),
    eight_bit=st.booleans(),
    seed=st.integers(0, 2**31),
    batch_size=st.none() | st.integers(1, 999),
    relative_to=st.none() | texts,
)


@given(specs)
def test_a_spec_written_and_read_is_the_same(tmp_path_factory: pytest.TempPathFactory, spec: RunConfig) -> None:
    path = tmp_path_factory.mktemp("spec") / "spec.toml"
    path.write_text(spec.toml(), encoding="utf-8", newline="")
    assert RunConfig.read(path) == spec
    assert RunConfig.read(path).hash == spec.hash


@given(specs, specs)
def test_two_specs_differ_where_they_say_so(left: RunConfig, right: RunConfig) -> None:
    assert (left == right) == (not left.differences(right)) == (left.hash == right.hash)


def test_what_is_not_said_has_its_default(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text('model = "standard"\n')
    assert RunConfig.read(tmp_path / "spec.toml") == RunConfig(model="standard")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("budgets = 3", "a run has no setting 'budgets': did you mean budget? It has attacks, model, data"),
        ('budget = "3"', "budget must be a whole number, at least 1; got '3'"),
        ("budget = true", "budget must be a whole number, at least 1; got True"),
        ("eight_bit = 1", "eight_bit must be true or false; got 1"),
        ('targets = "cat"', "targets must be one of next, random; got 'cat'"),
        ('loss = "hinge"', "loss must be one of cross-entropy, margin; got 'hinge'"),
        ('images = "some"', "images must be a whole number, at least 1, or 'all'; got 'some'"),
        (
            'attacks = "nes"',
            "attacks must be a list of at least one name, none of them empty or with a NUL character; got 'nes'",
        ),
        (
            "attacks = []",
            "attacks must be a list of at least one name, none of them empty or with a NUL character; got []",
        ),
        ("eps = [0.1]", "eps must be a number or a fraction such as 8/255; got [0.1]"),
        ("[execution]\nworker = 2", "execution has no setting 'worker': did you mean workers?"),
        ("[execution]\nworkers = 0", "workers must be a whole number, at least 1; got 0"),
        ("execution = 2", "execution must be a table of settings; got 2"),
        ('eps = "8/0"', "eps must be a number or a fraction such as 8/255; got '8/0'"),
        ("budget 3", "is not a TOML file"),
    ],
)
def test_what_cannot_be_is_refused_with_the_files_name(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(InputError, match=re.escape(sentence)) as raised:
        RunConfig.read(tmp_path / "bad.toml")
    assert "bad.toml" in str(raised.value)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        RunConfig.read(tmp_path / "no.toml")


@pytest.mark.parametrize("settings", [{"attacks": ()}, {"eps": "big"}])
def test_python_is_held_to_the_same(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        RunConfig(**settings)


@pytest.mark.parametrize("name", ["budget", "seed", "batch_size", "in_flight"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3", 2**63])
def test_what_the_engine_refuses_no_configuration_has(name: str, value: Any) -> None:
    """So a run is validated without an engine."""

    def refused(make: Callable[[], object]) -> bool:
        try:
            make()
        except InputError:
            return True
        return False

    settings = {"budget": 1, name: value}
    if refused(lambda: Engine(Square(), as_model(linear), Threat(0.1), **settings)):
        assert refused(lambda: RunConfig().replace(**settings))
    else:
        assert (name, value) == ("seed", 0)


@pytest.mark.parametrize(
    ("eps", "hint"),
    [
        ("8", "got '8': did you mean 8/255?"),
        (8, "did you mean 8/255?"),
        ("-8/255", "did you mean 0.0313725?"),
        ("0", "a ball of radius 0 holds only the image itself"),
        ("0,03", "did you mean 0.03?"),
        ("8/0", "must be a number or a fraction such as 8/255; got '8/0'"),
    ],
)
def test_a_wrong_radius_comes_with_the_right_one(eps: str | float, hint: str) -> None:
    with pytest.raises(InputError) as raised:
        RunConfig(eps=eps)
    assert hint in str(raised.value)
    assert raised.value.argument == "eps"


@pytest.mark.parametrize("eps", ["8/255", " 8 / 255", "0.031372549019607843", 8 / 255])
def test_a_radius_is_a_number_or_a_fraction(eps: str | float) -> None:
    assert RunConfig(eps=eps).radius == 8 / 255


def test_eps_may_be_a_number(tmp_path: Path) -> None:
    (tmp_path / "number.toml").write_text("eps = 0.03")
    assert RunConfig.read(tmp_path / "number.toml").radius == 0.03


def test_execution_is_a_part_that_neither_the_hash_nor_the_file_of_a_run_has() -> None:
    one, other = RunConfig(), RunConfig.of({"execution": {"workers": 2, "progress": False}})
    assert one != other
    assert (one.hash, one.toml(), one.differences(other)) == (other.hash, other.toml(), [])
    assert one.replace(workers=2, progress=False) == other
